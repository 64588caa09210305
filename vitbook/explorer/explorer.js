(() => {
  "use strict";

  /* Figures that have not been started yet; another one's script on the same page may have started this one. */
  for (const host of document.querySelectorAll(".vitbook-explorer:not([data-started])")) {
    host.dataset.started = "";
    start(host).catch((error) => {
      host.querySelector(".still p:last-child").textContent += ` (They could not be opened: ${error.message})`;
    });
  }

  async function start(host) {
    const facts = JSON.parse(host.querySelector("[type='application/json']").textContent);
    const attention = await unpacked(facts);
    const root = host.attachShadow({ mode: "open" }); // from here on, the still view is not rendered
    root.innerHTML = host.querySelector("[type='text/html']").textContent;
    followScheme(host);
    explorer(root, facts, attention);
  }

  /* What every query attends to: (image, map, query) => its row of weights, in their float64 values. */
  async function unpacked({ weights, levels, names, images, views, stored, layers }) {
    const packed = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = await new Response(stream).arrayBuffer();
    const tokens = names.length;
    const maps = layers * stored + views.length - layers;
    const rows = images.length * maps * tokens;
    const tops = new Float32Array(bytes, 0, rows);
    const codes = new Uint8Array(bytes, 4 * rows);
    return (image, map, query) => {
      const row = (image * maps + map) * tokens + query;
      return Array.from(codes.subarray(row * tokens, (row + 1) * tokens), (code) => (code * tops[row]) / levels);
    };
  }

  /* Dark where the page is: by the theme of the book, JupyterLab, Colab or VS Code, else by the reader's system. */
  function followScheme(host) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const { documentElement: html, body } = document;
    const follow = () => {
      const theme =
        html.dataset.theme ||
        html.getAttribute("theme") ||
        { true: "light", false: "dark" }[body.dataset.jpThemeLight] ||
        (/vscode-(dark|light)/.exec(body.className) || [])[1];
      host.dataset.scheme = theme || (system.matches ? "dark" : "light");
    };
    follow();
    system.addEventListener("change", follow);
    for (const node of [html, body]) {
      new MutationObserver(follow).observe(node, { attributes: true });
    }
  }

  function explorer(root, facts, attention) {
    const { names, prefix, views, heads, stored, layers, images, grid } = facts;
    const [rows, columns] = grid;
    const find = (selector) => root.querySelector(selector);
    const control = (name) => find(`[name="${name}"]`);
    const state = { image: 0, view: layers - 1, head: 0, query: facts.query, pointed: null, common: false };
    const mean = heads.length > stored ? 1 : 0; // the first choice of heads is their mean, which nobody stored

    /* The row of weights that one query's view shows. */
    function row(query) {
      const { image, view, head } = state;
      if (view >= layers) {
        return attention(image, layers * stored + view - layers, query);
      }
      if (head >= mean) {
        return attention(image, view * stored + head - mean, query);
      }
      const each = Array.from({ length: stored }, (_, i) => attention(image, view * stored + i, query));
      return each[0].map((_, token) => each.reduce((sum, one) => sum + one[token], 0) / stored);
    }

    const largest = (weights) => Math.max(...weights.slice(prefix));
    const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

    function color(share) {
      const place = Math.min(share, 1) * (facts.colors.length - 1);
      const lower = Math.min(Math.floor(place), facts.colors.length - 2);
      const channel = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
      const mixed = [0, 1, 2].map((i) => {
        const [from, to] = [channel(facts.colors[lower], i), channel(facts.colors[lower + 1], i)];
        return Math.round(from + (place - lower) * (to - from));
      });
      return `rgb(${mixed.join(" ")})`;
    }

    /* Every token is a cell, which says its weight. */

    function element(tag, attributes = {}, ...children) {
      const made = document.createElement(tag);
      for (const [name, value] of Object.entries(attributes)) {
        made.setAttribute(name, value);
      }
      made.append(...children);
      return made;
    }

    const cells = names.map((name, token) =>
      element("div", { role: "gridcell", "data-token": token }, ...(token < prefix ? chip(name) : [])),
    );

    function chip(name) {
      return [element("i"), element("span", {}, name[0].toUpperCase() + name.slice(1)), element("b")];
    }

    function lay(group, from, to, width) {
      for (let token = from; token < to; token += width) {
        group.append(element("div", { role: "row", class: "row" }, ...cells.slice(token, token + width)));
      }
    }

    lay(find(".prefix"), 0, prefix, prefix || 1);
    lay(find(".patches"), prefix, names.length, columns);
    if (!prefix) {
      find(".prefix").remove();
    }

    function render() {
      const { image, view, head, common } = state;
      const query = state.pointed ?? state.query;
      const weights = row(query);
      const most = common ? Math.max(...names.map((_, token) => largest(row(token)))) : largest(weights);
      for (const [token, cell] of cells.entries()) {
        cell.style.setProperty("--color", color(most ? weights[token] / most : 0));
        cell.dataset.weight = weights[token];
        cell.tabIndex = token === state.query ? 0 : -1;
        cell.setAttribute("aria-selected", token === query);
        cell.setAttribute("aria-label", `${names[token]}: ${percent(weights[token])}`);
        if (token < prefix) {
          cell.querySelector("b").textContent = percent(weights[token]);
        }
      }
      const { title, guess, share } = images[image];
      find("caption").textContent = views[view].says
        .replace("{head}", heads[head])
        .replace("{query}", (query < prefix ? "the " : "") + names[query])
        .replace("{class}", () => guess);
      find("tbody").replaceChildren(...lines(weights));
      find(".title").replaceChildren(
        title,
        element("span", {}, guess === undefined ? "" : ` · the model says ${guess} (${percent(share)})`),
      );
      find(".patches img").src = images[image].src;
      find(".most").textContent = percent(most);
      const even = 1 / names.length;
      find(".even span").textContent = `all alike: ${percent(even)}`;
      find(".even").hidden = find(".scale i").hidden = even > most;
      find(".scale").style.setProperty("--even", `calc(${(100 * even) / most}% - 1px)`);
      control("query").value = query;
      control("head").disabled = view >= layers;
    }

    /* The same in words: the largest patches, what is before the patches, and all others together. */
    function lines(weights) {
      const patches = names.map((_, token) => token).slice(prefix);
      const top = patches.sort((a, b) => weights[b] - weights[a]).slice(0, facts.top);
      const shown = [...top, ...names.keys()].filter((token, i) => i < top.length || token < prefix);
      const others = patches.length - top.length;
      const rest = weights.reduce((sum, weight) => sum + weight, 0) - shown.reduce((sum, t) => sum + weights[t], 0);
      const said = shown.map((token) => [names[token], percent(weights[token]), token < prefix]);
      if (others) {
        said.push([others === 1 ? "the other patch" : `the other ${others} patches`, percent(Math.max(rest, 0)), true]);
      }
      return said.map(([name, share, quiet]) =>
        element("tr", { class: quiet ? "rest" : "" }, element("th", { scope: "row" }, name), element("td", {}, share)),
      );
    }

    function change(update) {
      Object.assign(state, { pointed: null }, update);
      find(".live").setAttribute("aria-live", "polite");
      render();
    }

    /* A mouse shows by pointing, and chooses by a click; a finger and the keyboard choose. */

    const board = find(".grid");
    const tokenOf = (event) => event.target.closest("[data-token]")?.dataset.token;

    function point(token) {
      if (state.pointed !== token) {
        state.pointed = token;
        find(".live").setAttribute("aria-live", "off"); // a screen reader could not keep up
        render();
      }
    }

    board.addEventListener("pointerover", (event) => {
      if (event.pointerType === "mouse" && tokenOf(event) !== undefined) {
        point(Number(tokenOf(event)));
      }
    });
    board.addEventListener("pointerleave", () => point(null));
    board.addEventListener("click", (event) => {
      if (tokenOf(event) !== undefined) {
        choose(Number(tokenOf(event)));
      }
    });

    function choose(token) {
      change({ query: token });
      cells[token].focus({ preventScroll: true });
    }

    board.addEventListener("keydown", (event) => {
      const token = state.query;
      const patch = token - prefix;
      const last = names.length - 1;
      const begin = patch < 0 ? 0 : token - (patch % columns);
      const end = patch < 0 ? prefix - 1 : begin + columns - 1;
      const goal = {
        ArrowLeft: token > begin ? token - 1 : token,
        ArrowRight: token < end ? token + 1 : token,
        ArrowUp: patch >= columns ? token - columns : prefix && patch >= 0 ? 0 : token,
        ArrowDown: patch < 0 ? prefix : token + columns <= last ? token + columns : token,
        Home: event.ctrlKey ? 0 : begin,
        End: event.ctrlKey ? last : end,
      }[event.key];
      if (goal !== undefined && !event.altKey && !event.metaKey) {
        event.preventDefault();
        event.stopPropagation(); // notebooks have shortcuts of their own
        choose(goal);
        cells[goal].scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    });

    /* Controls */

    function fill(name, choices) {
      control(name).append(...choices.map((choice, value) => element("option", { value }, choice)));
    }

    fill("view", views.map((view) => view.name));
    fill("head", heads.map((head) => head[0].toUpperCase() + head.slice(1)));
    fill("query", names.map((name) => name[0].toUpperCase() + name.slice(1)));
    control("view").value = state.view;
    for (const name of ["view", "head", "query"]) {
      control(name).addEventListener("change", (event) => change({ [name]: Number(event.target.value) }));
    }
    control("common").addEventListener("change", (event) => change({ common: event.target.checked }));
    const cover = () => board.style.setProperty("--cover", control("cover").value / 100);
    control("cover").addEventListener("input", cover);
    cover();

    find(".thumbnails").append(
      ...images.map(({ src, title }, image) => {
        const choice = element("input", { type: "radio", name: "image", "aria-label": title });
        choice.checked = image === 0;
        choice.addEventListener("change", () => change({ image }));
        return element("label", { title }, choice, element("img", { src, alt: "" }));
      }),
    );
    find(".images").hidden = images.length === 1;

    for (const image of root.querySelectorAll("img")) {
      image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 128));
    }
    find(".explorer").style.cssText = `--rows: ${rows}; --columns: ${columns}; --colors: ${facts.colors.join(", ")}`;
    find(".note span").textContent = facts.note;
    render();
  }
})();
