"use strict";

/* The figure "Ask it": a model's answer for a photograph, untouched beside changed, with what every head attends to. */

/**
 * @typedef {object} State what the address holds
 * @property {string} photo name of a photograph
 * @property {string} column "untouched" or "changed": whose head is shown large
 * @property {number} block
 * @property {number} head
 * @property {number} query a token
 * @property {string} view what the large photograph shows of the query: "rollout" of all blocks, "attention" of the open
 *   head, or tokens "alike"
 * @property {number} after how many blocks: the answer so far, and the tokens that are compared
 * @property {boolean} withoutPositions
 * @property {string} shuffle "", "after", "before" or "pixels"
 * @property {number} seed of the shuffled order
 * @property {Set<string>} removed heads, as "block.head"
 * @property {Set<number>} covered patches
 */

const TOP = 5;
const SIDE = 256; // of the photograph as it is shown, in pixels
const MOST_PIXELS = 60e6;

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {(kind: string, question?: object) => Promise<any>} thread the worker
 * @param {any} model from `packed_model`
 * @param {{name: string, title: string, credit: string, src: string}[]} album
 */
async function ask(root, thread, model, album) {
  const { config, classes } = model;
  const { depth, num_heads, patch_size } = config;
  const [rows, columns] = config.image_size.map((side) => side / patch_size);
  const prefix = model.prefix.length;
  const tokens = prefix + rows * columns;
  const find = (selector) => root.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  const choices = () => /** @type {NodeListOf<HTMLInputElement>} */ (root.querySelectorAll("[name=photo]"));
  await thread("load", model);

  const photographs = new Map(); // name → {title, canvas, seen}
  const answers = { of: null, untouched: null, changed: null }; // of: an entry of `photographs`
  let guessed = null; // what the reader has said of the change: "stays", "changes", "show"; null before
  /** @type {State} */
  const state = readAddress();

  /* Photographs */

  /** A file's photograph: shown, and given to the model. Raises Error for what is no image or too large. */
  async function addPhotograph(name, title, blob, credit = "") {
    const unreadable = () => {
      throw new Error(`${title} is not an image that this browser can read.`);
    };
    const image = Object.assign(new Image(), { src: URL.createObjectURL(blob) });
    await new Promise((resolve, reject) => Object.assign(image, { onload: resolve, onerror: reject })).catch(unreadable);
    const { naturalWidth: width, naturalHeight: height } = image; // known before anything is decoded
    if (width * height > MOST_PIXELS) {
      throw new Error(`${title} has ${width}×${height} pixels, more than this page takes: scale it down first.`);
    }
    // A bitmap has the file's own numbers, as in Python; an old browser has the image alone, and fits it to the screen.
    const pixels = window.createImageBitmap
      ? await createImageBitmap(blob, { colorSpaceConversion: "none" }).catch(unreadable)
      : image;
    URL.revokeObjectURL(image.src);
    await addCanvas(name, title, drawn(width, height, (context) => context.drawImage(pixels, 0, 0)), credit);
  }

  /** The same for what is on a canvas. */
  async function addCanvas(name, title, whole, credit = "") {
    const { width, height } = whole;
    const image = whole.getContext("2d").getImageData(0, 0, width, height);
    await thread("see", { name, image: { width, height, data: image.data } });
    const part = model.preprocessing.crop ?? 0; // the share of the shorter side that is seen; 0 for all of it
    const ratio = columns / rows;
    const across = part ? Math.min(width, height * ratio) * part : width;
    const down = part ? across / ratio : height;
    const canvas = drawn(Math.round(SIDE * Math.min(1, ratio)), Math.round(SIDE / Math.max(1, ratio)), (context, w, h) => {
      context.imageSmoothingQuality = "high";
      context.drawImage(whole, (width - across) / 2, (height - down) / 2, across, down, 0, 0, w, h);
    });
    photographs.set(name, { title, canvas, credit });
  }

  /** A canvas on which something is drawn, over white where that is transparent. */
  function drawn(width, height, draw) {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    draw(context, width, height);
    return canvas;
  }

  async function addFromAlbum(name) {
    const { title, src, credit } = album.find((one) => one.name === name);
    const bytes = Uint8Array.from(atob(src.split(",")[1]), (letter) => letter.charCodeAt(0));
    await addPhotograph(name, title, new Blob([bytes]), credit);
  }

  /** Another image: `add` shows it, and returns what is to be said of it. */
  async function take(photo, add) {
    closeCamera();
    latest++; // an answer that is still to come is one about an earlier image
    find(".notice").textContent = "";
    find(".figure").setAttribute("aria-busy", true);
    try {
      const notice = await add();
      choices().forEach((choice) => (choice.checked = choice.value === photo));
      find(".notice").textContent = notice ?? "";
      await change({ photo, covered: new Set() });
    } catch (error) {
      find(".notice").textContent = error.message;
      await change({});
    }
  }

  const takeFile = (file) =>
    take("own", async () => {
      await addPhotograph("own", file.name || "the pasted image", file);
      return remark(file);
    });

  const takeDrawing = () =>
    take("drawing", () => addCanvas("drawing", "your drawing", drawn(pad.width, pad.height, drawing.paint)));

  function takeFrame(video) {
    const frame = drawn(video.videoWidth, video.videoHeight, (context) => context.drawImage(video, 0, 0));
    take("own", () => addCanvas("own", "your image", frame));
  }

  /** What is special about a file, in a sentence. */
  async function remark(file) {
    const head = await file.slice(0, 1 << 16).arrayBuffer();
    const bytes = new Uint8Array(head);
    const moving = /^GIF8.*NETSCAPE2\.0|^RIFF.{4}WEBPVP8X.*ANIM|^.PNG.*acTL/s;
    if (moving.test(new TextDecoder("latin1").decode(head))) {
      return "An animated image: the model sees its first frame.";
    }
    for (let i = 2; bytes[0] === 0xff && bytes[1] === 0xd8 && i + 9 < bytes.length && bytes[i] === 0xff; ) {
      if (bytes[i + 1] >= 0xc0 && bytes[i + 1] <= 0xc2) {
        return bytes[i + 9] === 4 ? "A JPEG for print (CMYK): the browser's red, green and blue can differ from Python's." : "";
      }
      i += 2 + 256 * bytes[i + 2] + bytes[i + 3];
    }
    return "";
  }

  /* The order of shuffled patches: the same seed gives the same order. */
  function order() {
    const places = Array.from({ length: rows * columns }, (_, i) => i);
    let random = state.seed * 2654435761;
    for (let i = places.length - 1; i > 0; i--) {
      random = (Math.imul(random ^ (random >>> 15), 2246822519) + i) >>> 0;
      const j = (random >>> 8) % (i + 1);
      [places[i], places[j]] = [places[j], places[i]];
    }
    return places;
  }

  function changeOf() {
    const changed = {
      withoutPositions: state.withoutPositions,
      removed: [...state.removed],
      covered: [...state.covered],
    };
    return state.shuffle ? { ...changed, [state.shuffle]: order() } : changed;
  }

  const isChanged = () => state.withoutPositions || state.shuffle || state.removed.size || state.covered.size;
  const isVeiled = () => classes.length && isChanged() && control("predict").checked && guessed === null;

  /** Whose head is shown large: as long as nothing is changed, both are the same, and one is seen. */
  const openColumn = () => (isChanged() && !isVeiled() ? state.column : "untouched");

  /* Asking */

  let latest = 0;

  /** Take over what has changed, ask the model where that matters, and show all: `aloud`, where nothing else says it. */
  async function change(update, interferes = true, aloud = !interferes) {
    Object.assign(state, update);
    const own = ++latest;
    if (interferes) {
      find(".figure").setAttribute("aria-busy", true);
      const name = state.photo;
      const of = photographs.get(name);
      const untouched = of === answers.of ? answers.untouched : understood(await thread("ask", { name }));
      const changed = isChanged() ? understood(await thread("ask", { name, change: changeOf() })) : untouched;
      if (own !== latest) {
        return; // the reader has gone on
      }
      Object.assign(answers, { of, untouched, changed });
      root.querySelectorAll(".drop").forEach((drop) => drop.remove());
    }
    show(aloud);
    writeAddress();
    find(".figure").setAttribute("aria-busy", false);
  }

  /** An answer with probabilities, if there are classes; else features take their place. */
  function understood(answer) {
    const shares = (logits) => (classes.length ? softmaxOf(logits) : logits);
    return { ...answer, shares: shares(answer.logits), lens: answer.lens.map(shares) };
  }

  const best = (shares) => shares.indexOf(Math.max(...shares));

  /** A query's row of weights in one head, as the tokens lie in the image. */
  function row(column, block, head, query) {
    const places = placesOf(column);
    const all = answers[column].attention[block];
    const first = (head * tokens + places.indexOf(query)) * tokens;
    const weights = new Array(tokens);
    places.forEach((token, place) => (weights[token] = all[first + place]));
    return weights;
  }

  /**
   * How much of each token reaches a query through all blocks (attention rollout): in each block half comes by the
   * attention, its heads' mean, and half by the residual connection.
   */
  function rollout(column, query) {
    const places = placesOf(column);
    const reached = rolledOut(answers[column].attention, num_heads, tokens, places.indexOf(query));
    const shares = new Array(tokens);
    places.forEach((token, place) => (shares[token] = reached[place]));
    return shares;
  }

  /** Cosine similarity of a query's token to every token, as they lie in the image, after some blocks. */
  function similarities(column, after, query) {
    const places = placesOf(column);
    const first = places.indexOf(query) * tokens;
    const similar = new Array(tokens);
    places.forEach((token, place) => (similar[token] = answers[column].alike[after][first + place]));
    return similar;
  }

  /** For each place in the model's sequence, the token that the reader sees there: shuffled tokens come from elsewhere. */
  function placesOf(column) {
    const moved = column === "changed" && (state.shuffle === "after" || state.shuffle === "before");
    const patches = moved ? order() : Array.from({ length: rows * columns }, (_, i) => i);
    return [...model.prefix.keys(), ...patches.map((patch) => prefix + patch)];
  }

  const nameOf = (token) =>
    model.prefix[token] ?? `row ${Math.floor((token - prefix) / columns)}, column ${(token - prefix) % columns}`;

  /* Showing */

  const veil = drawn(columns, rows, () => {}).getContext("2d"); // a pixel for each patch

  /** The photograph as this column's model sees it, its patches the brighter, the more they are attended to. */
  function paint(canvas, column, weights) {
    const most = Math.max(...weights.slice(prefix));
    const dark = veil.createImageData(columns, rows);
    cells.forEach((_, patch) => {
      const covered = column === "changed" && state.covered.has(patch);
      const bright = 0.12 + 0.88 * Math.sqrt(Math.max(0, weights[prefix + patch]) / most); // as on the book's cover
      dark.data[4 * patch + 3] = covered ? 255 : 255 * (1 - bright);
    });
    veil.putImageData(dark, 0, 0);
    const context = canvas.getContext("2d");
    const { width, height } = canvas;
    context.imageSmoothingEnabled = true;
    context.drawImage(pictures[column], 0, 0, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(veil.canvas, 0, 0, width, height);
  }

  /** A photograph whose patches lie in another order. */
  function inPieces(source, from) {
    const [w, h] = [source.width / columns, source.height / rows];
    return drawn(source.width, source.height, (context) => {
      from.forEach((own, patch) => {
        const [x, y] = [patch % columns, Math.floor(patch / columns)];
        context.drawImage(source, (own % columns) * w, Math.floor(own / columns) * h, w, h, x * w, y * h, w, h);
      });
    });
  }

  const pictures = { untouched: null, changed: null }; // canvases: what each column's model is shown
  const cells = [];
  const thumbnails = { untouched: [], changed: [] };

  function build() {
    const ratio = `${columns} / ${rows}`;
    find(".figure").style.cssText = `--columns: ${columns}; --ratio: ${ratio}; --heads: ${num_heads}`;
    find(".photograph").width = photographs.get(state.photo).canvas.width;
    find(".photograph").height = photographs.get(state.photo).canvas.height;
    for (let i = 0; i < rows; i++) {
      const line = element("div", { role: "row" });
      for (let j = 0; j < columns; j++) {
        const cell = element("div", { role: "gridcell", tabindex: -1, "data-patch": i * columns + j });
        cells.push(cell);
        line.append(cell);
      }
      find(".board").append(line);
    }
    for (const column of ["untouched", "changed"]) {
      const heads = find(`[data-column=${column}] .heads`);
      const label = (text, name = "") => element("span", { "aria-hidden": true, class: name }, text); // so says each button
      heads.append(label("head", "of-block"), ...Array.from({ length: num_heads }, (_, head) => label(String(head))));
      for (let block = 0; block < depth; block++) {
        heads.append(label(`block ${block}`, "of-block"));
        for (let head = 0; head < num_heads; head++) {
          const canvas = element("canvas", { width: 12 * columns, height: 12 * rows });
          const button = element("button", { type: "button" }, canvas);
          button.addEventListener("click", () => change({ column, block, head, after: block + 1, view: "attention" }, false));
          button.addEventListener("keydown", (event) => {
            if (event.key === "Delete" || event.key === "Backspace") {
              toggleHead(block, head);
            }
          });
          thumbnails[column].push(button);
          heads.append(button);
        }
      }
    }
    control("block").append(
      element("option", { value: "" }, "none"),
      ...Array.from({ length: depth }, (_, block) => element("option", { value: block }, `all of block ${block}`)),
      element("option", { value: "some", disabled: "" }, "some"),
    );
    for (const [token, name] of model.prefix.entries()) {
      const button = element("button", { type: "button", name: "token" }, `Ask ${name}`);
      button.addEventListener("click", () => change({ query: token }, false));
      control("rollout").before(button);
    }
    control("after").max = depth;
    for (const own of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(`.of-${classes.length ? "features" : "classes"}`))) {
      own.hidden = true;
    }
    find(".strip").append(
      ...album.map(({ name, title, src }) => {
        const choice = element("input", { type: "radio", name: "photo", value: name, "aria-label": title });
        choice.addEventListener("change", () => take(name, () => addFromAlbum(name)));
        return element("label", { title }, choice, element("img", { src, alt: "" }));
      }),
    );
    for (const choice of choices()) {
      choice.checked = choice.value === state.photo;
      choice.toggleAttribute("data-first", choice.checked);
    }
  }

  function show(aloud = false) {
    const veiled = isVeiled();
    const { canvas } = photographs.get(state.photo);
    const changed = state.shuffle === "pixels" ? inPieces(canvas, order()) : canvas;
    Object.assign(pictures, { untouched: canvas, changed });
    const column = openColumn();
    const weights = row(column, state.block, state.head, state.query);
    const similar = similarities(column, state.after, state.query);
    const shares = state.view === "rollout" ? rollout(column, state.query) : weights;
    const alike = state.view === "alike";
    const others = weights.map((_, token) => token).filter((token) => state.view === "attention" || (token >= prefix && token !== state.query));
    const [most] = others.sort((a, b) => (alike ? similar[b] - similar[a] : shares[b] - shares[a]));
    const least = Math.min(...similar.slice(prefix));
    const clear = alike ? similar.map((cosine) => Math.min(cosine, similar[most]) - least) : shares;
    paint(find(".photograph"), column, clear);
    const said = (token) => (alike ? similar[token].toFixed(2).replace("-", "−") : percent(shares[token]));
    cells.forEach((cell, patch) => {
      const covered = state.covered.has(patch);
      cell.classList.toggle("covered", covered);
      cell.setAttribute("aria-selected", prefix + patch === state.query);
      cell.setAttribute("aria-label", `${nameOf(prefix + patch)}: ${covered ? "covered" : said(prefix + patch)}`);
      cell.tabIndex = patch === Math.max(0, state.query - prefix) ? 0 : -1;
    });
    const subject = {
      alike: `${stage(state.after)}. The brighter a patch, the more similar its token is to that of ${nameOf(state.query)}, by the cosine`,
      attention: `block ${state.block}, head ${state.head}. The brighter a patch, the more ${nameOf(state.query)} attends to it`,
      rollout: `all blocks at once. The brighter a patch, the more of it reaches ${nameOf(state.query)} by attention`,
    }[state.view];
    const shown = isChanged() ? `${column === "changed" ? "Changed" : "Original"}, ${subject}` : subject[0].toUpperCase() + subject.slice(1);
    say(find(".caption"), `${shown}. Most: ${nameOf(most)}, ${said(most)}.`, aloud);
    if (find("[name=mode]:checked").value !== "cover") {
      find(`[name=mode][value=${alike ? "alike" : "ask"}]`).checked = true;
    }
    find(".said").textContent = state.photo === "drawing" && classes.length ? `The model says ${answerOf(answers.untouched.shares)}.` : "";
    control("after").value = state.after;
    find("output").textContent = `${stage(state.after)}: ${classes.length ? "" : "cosine "}${answerOf(answers[column].lens[state.after])}`;
    control("after").setAttribute("aria-valuetext", find("output").textContent);
    root.querySelectorAll("[name=token]").forEach((button, token) => button.setAttribute("aria-pressed", String(token === state.query)));
    const removed = state.removed.has(`${state.block}.${state.head}`);
    control("rollout").setAttribute("aria-pressed", String(state.view === "rollout"));
    control("remove").disabled = state.view === "rollout";
    control("remove").textContent = removed ? "Put this head back" : "Remove this head";
    control("again").hidden = !state.shuffle;
    control("reset").disabled = !isChanged();
    control("positions").checked = state.withoutPositions;
    control("shuffle").value = state.shuffle;
    control("block").value = blockOut();
    find(".predict").hidden = !veiled;
    find(".figure").classList.toggle("altered", Boolean(isChanged()));
    find("[data-column=changed]").classList.toggle("veiled", veiled);
    find("#untouched").textContent = isChanged() ? "Original" : classes.length ? "The model says" : "";
    for (const name of ["untouched", "changed"]) {
      showColumn(name);
    }
    say(find(".sentence"), veiled ? "" : sentence());
    showLens(veiled);
    showSteps(column, weights);
    find(".speed").textContent =
      `${photographs.get(state.photo).credit} One answer took ${Math.round(answers.untouched.milliseconds)} ms in this browser; ` +
      "nothing was sent anywhere.";
  }

  function blockOut() {
    const out = [...state.removed];
    const blocks = new Set(out.map((name) => name.split(".")[0]));
    return !out.length ? "" : blocks.size === 1 && out.length === num_heads ? [...blocks][0] : "some";
  }

  function showColumn(column) {
    const { shares } = answers[column];
    const ranked = classes.map((_, k) => k).sort((a, b) => shares[b] - shares[a]);
    const shown = classes.length > 10 ? ranked.slice(0, 8) : classes.map((_, k) => k);
    find(`[data-column=${column}] .bars`).replaceChildren(
      ...shown.map((k) => {
        const bar = element("i", { style: `--share: ${shares[k]}` });
        return element("li", { class: k === ranked[0] ? "first" : "" }, element("span", {}, classes[k]), bar, element("b", {}, percent(shares[k])));
      }),
    );
    thumbnails[column].forEach((button, i) => {
      const [block, head] = [Math.floor(i / num_heads), i % num_heads];
      const weights = row(column, block, head, state.query);
      const largest = weights.indexOf(Math.max(...weights));
      const removed = column === "changed" && state.removed.has(`${block}.${head}`);
      paint(button.firstChild, column, weights);
      button.classList.toggle("removed", removed);
      const open = state.view !== "rollout" && column === openColumn() && block === state.block && head === state.head;
      button.setAttribute("aria-pressed", String(open));
      button.setAttribute(
        "aria-label",
        `Block ${block}, head ${head}${removed ? ", removed" : ""}: most on ${nameOf(largest)}, ${percent(weights[largest])}`,
      );
    });
  }

  /** What the change has done, in words. */
  function sentence() {
    const { untouched, changed } = answers;
    const most = Math.max(...changed.logits.map((logit, k) => Math.abs(logit - untouched.logits[k])));
    const moves = `that moves most moves by ${most < 1e-4 ? most.toExponential(0) : most.toFixed(2)}`;
    if (!classes.length) {
      const compared = `Changed and original ones have a cosine of ${answerOf(changed.logits)}; the feature ${moves}.`;
      return `The model gives ${untouched.logits.length} features and no class. ${isChanged() ? compared : ""}`;
    }
    const [before, after] = [best(untouched.shares), best(changed.shares)];
    const says = `The model says ${classes[before]} (${percent(untouched.shares[before])}).`;
    if (!isChanged()) {
      return says;
    }
    const verdict =
      before === after
        ? `The answer stays ${classes[after]}: ${percent(untouched.shares[before])} before, ${percent(changed.shares[after])} now; the logit ${moves}.`
        : `The answer changes from ${classes[before]} (${percent(untouched.shares[before])}) to ${classes[after]} (${percent(changed.shares[after])}); the logit ${moves}.`;
    const right = guessed === (before === after ? "stays" : "changes");
    const judged = guessed === "stays" || guessed === "changes" ? (right ? "As you said. " : "Not as you said. ") : "";
    return judged + verdict;
  }

  /** The first class; without classes, the cosine of features and those that the untouched model ends with. */
  const answerOf = (shares) =>
    classes.length
      ? `${classes[best(shares)]}, ${percent(Math.max(...shares))}`
      : decimal(cosine(shares, answers.untouched.logits), 3);
  const stage = (after) => (after ? `after block ${after - 1}` : "before block 0");

  function showLens(veiled) {
    find(".lens tbody").replaceChildren(
      ...answers.untouched.lens.map((shares, i) =>
        element(
          "tr",
          i === state.after ? { "aria-current": "step" } : {},
          element("th", { scope: "row" }, i ? `block ${i - 1}` : "the embedding"),
          element("td", {}, answerOf(shares)),
          element("td", {}, veiled ? "" : answerOf(answers.changed.lens[i])),
        ),
      ),
    );
  }

  /** q·k, divided, and the softmax, for the largest weights. */
  function showSteps(column, weights) {
    const width = config.dim / num_heads;
    const places = placesOf(column);
    const qkv = answers[column].qkv[state.block];
    const vector = (token, part) => {
      const first = places.indexOf(token) * 3 * config.dim + part * config.dim + state.head * width;
      return qkv.subarray(first, first + width);
    };
    const q = vector(state.query, 0);
    const dot = (token) => vector(token, 1).reduce((sum, k, i) => sum + k * q[i], 0);
    const ranked = weights.map((_, token) => token).sort((a, b) => weights[b] - weights[a]);
    const lines = ranked.slice(0, TOP).map((token) => {
      const product = dot(token);
      return [nameOf(token), product.toFixed(2), (product / Math.sqrt(width)).toFixed(2), percent(weights[token])];
    });
    const rest = ranked.slice(TOP).reduce((sum, token) => sum + weights[token], 0);
    lines.push([`the other ${tokens - TOP}`, "", "", percent(rest)]);
    find(".steps tbody").replaceChildren(
      ...lines.map(([name, ...numbers]) =>
        element("tr", {}, element("th", { scope: "row" }, name), ...numbers.map((number) => element("td", {}, number))),
      ),
    );
  }

  /* What a reader does */

  function interfere(update) {
    guessed = null;
    return change({ ...update, column: "changed" });
  }

  function toggleHead(block, head) {
    const removed = new Set(state.removed);
    const name = `${block}.${head}`;
    removed.delete(name) || removed.add(name);
    return interfere({ removed });
  }

  function press(patch) {
    if (find("[name=mode]:checked").value !== "cover") {
      return change({ query: prefix + patch }, false);
    }
    const covered = new Set(state.covered);
    covered.delete(patch) || covered.add(patch);
    return interfere({ covered });
  }

  function listen() {
    const on = (name, type, act) => control(name).addEventListener(type, act);
    on("positions", "change", () => interfere({ withoutPositions: control("positions").checked }));
    on("shuffle", "change", () => interfere({ shuffle: control("shuffle").value }));
    on("again", "click", () => interfere({ seed: state.seed + 1 }));
    on("block", "change", () => {
      const block = control("block").value;
      interfere({ removed: new Set(block === "" ? [] : Array.from({ length: num_heads }, (_, head) => `${block}.${head}`)) });
    });
    on("reset", "click", () =>
      interfere({ withoutPositions: false, shuffle: "", removed: new Set(), covered: new Set() }),
    );
    on("rollout", "click", () => change({ view: "rollout" }, false));
    on("remove", "click", () => toggleHead(state.block, state.head));
    on("each", "click", eachHead);
    on("predict", "change", () => show());
    on("after", "input", () => {
      const after = Number(control("after").value);
      change({ after, block: Math.max(0, after - 1), view: state.view === "alike" ? "alike" : "attention" }, false, false);
    });
    find(".modes").addEventListener("change", ({ target: { value } }) => {
      if (value !== "cover") {
        change({ view: value === "alike" ? "alike" : "attention" }, false);
      }
    });
    for (const guess of ["stays", "changes", "show"]) {
      on(guess, "click", () => {
        guessed = guess;
        show();
        find(".sentence").tabIndex = -1;
        find(".sentence").focus({ preventScroll: true }); // its button has gone
      });
    }
    on("file", "change", () => control("file").files[0] && takeFile(control("file").files[0]));
    on("draw", "click", () => {
      const open = find(".drawing").hidden;
      find(".drawing").hidden = !open;
      control("draw").setAttribute("aria-expanded", open);
      open && pad.focus();
    });
    on("paper", "input", () => {
      drawing.show();
      takeDrawing();
    });
    on("clear", "click", () => {
      drawing.clear();
      takeDrawing();
    });
    const figure = find(".figure");
    figure.addEventListener("dragover", (event) => event.preventDefault());
    figure.addEventListener("drop", (event) => {
      event.preventDefault();
      const file = event.dataTransfer.files[0];
      file ? takeFile(file) : (find(".notice").textContent = "Drop an image file.");
    });
    document.addEventListener("paste", (event) => {
      const file = event.clipboardData.files[0];
      if (file && (root.activeElement || document.activeElement === document.body)) {
        takeFile(file);
      }
    });
    const board = find(".board");
    board.addEventListener("click", (event) => {
      const cell = event.target.closest("[data-patch]");
      if (cell) {
        focusPatch(cells.indexOf(cell));
        press(cells.indexOf(cell));
      }
    });
    board.addEventListener("keydown", (event) => {
      const patch = cells.indexOf(root.activeElement);
      const begin = patch - (patch % columns);
      const goal = {
        ArrowLeft: Math.max(begin, patch - 1),
        ArrowRight: Math.min(begin + columns - 1, patch + 1),
        ArrowUp: patch >= columns ? patch - columns : patch,
        ArrowDown: patch + columns < cells.length ? patch + columns : patch,
        Home: event.ctrlKey ? 0 : begin,
        End: event.ctrlKey ? cells.length - 1 : begin + columns - 1,
      }[event.key];
      if (patch < 0 || event.altKey || event.metaKey) {
        return;
      }
      if (goal !== undefined) {
        focusPatch(goal);
      } else if (event.key === "Enter" || event.key === " ") {
        press(patch);
      } else {
        return;
      }
      event.preventDefault();
      event.stopPropagation(); // notebooks have shortcuts of their own
    });
  }

  function focusPatch(patch) {
    cells.forEach((cell, i) => (cell.tabIndex = i === patch ? 0 : -1));
    cells[patch].focus({ preventScroll: true });
  }

  /** What each head's removal costs: the answer's probability without it, on its thumbnail. */
  async function eachHead() {
    const seconds = Math.ceil((thumbnails.untouched.length * answers.untouched.milliseconds) / 1000);
    say(find(".caption"), `Asking ${thumbnails.changed.length} times, about ${seconds} s.`);
    const all = await thread("withoutEach", { name: state.photo, change: changeOf() });
    const class_ = best(answers.changed.shares);
    all.forEach((logits, i) => {
      const moved = () => 100 * (softmaxOf(logits)[class_] - answers.changed.shares[class_]);
      const said = classes.length ? decimal(moved(), 1) : decimal(cosine(logits, answers.changed.logits), 2);
      const button = thumbnails[isChanged() ? "changed" : "untouched"][i];
      button.querySelector(".drop")?.remove();
      button.append(element("span", { class: "drop" }, classes.length && moved() >= 0 ? `+${said}` : said));
    });
    say(
      find(".caption"),
      classes.length
        ? `On each head: by how many points its removal moves the probability of ${classes[class_]}.`
        : "On each head: the cosine of the features without it with those with it.",
    );
  }

  /* State in the address: #ask:photo=bird_duck&open=changed.3.2&removed=0.0,0.1 */

  function readAddress() {
    const given = new URLSearchParams(location.hash.startsWith("#ask:") ? location.hash.slice(5) : "");
    const [column, openBlock, head] = (given.get("open") ?? "").split(".");
    const within = (text, count, otherwise) => (Number(text) >= 0 && Number(text) < count && text ? Math.floor(text) : otherwise);
    const list = (name) => (given.get(name) ?? "").split(",").filter(Boolean);
    const shuffle = given.get("shuffle") ?? "";
    const block = within(openBlock, depth, depth - 1);
    if (location.hash.startsWith("#ask:")) {
      guessed = "show"; // whoever follows a link is to see what it shows
    }
    return {
      photo: album.some(({ name }) => name === given.get("photo")) ? given.get("photo") : album[0].name,
      column: column === "changed" ? "changed" : "untouched",
      block,
      head: within(head, num_heads, 0),
      query: within(given.get("query"), tokens, config.class_token ? 0 : prefix),
      view: ["alike", "rollout"].find((view) => view === given.get("view")) ?? (given.has("open") ? "attention" : "rollout"),
      after: within(given.get("after"), depth + 1, block + 1),
      withoutPositions: given.get("positions") === "off",
      shuffle: ["after", "before", "pixels"].includes(shuffle) ? shuffle : "",
      seed: within(given.get("seed"), 1e6, 1),
      removed: new Set(list("removed").filter((name) => {
        const [b, h] = name.split(".").map(Number);
        return b >= 0 && b < depth && h >= 0 && h < num_heads;
      })),
      covered: new Set(list("covered").map(Number).filter((patch) => patch >= 0 && patch < rows * columns)),
    };
  }

  function writeAddress() {
    const { photo, column, block, head, query, view, after, withoutPositions, shuffle, seed, removed, covered } = state;
    const said = { photo, open: `${column}.${block}.${head}`, query };
    if (view !== "attention") said.view = view;
    if (after !== block + 1) said.after = after;
    if (withoutPositions) said.positions = "off";
    if (shuffle) Object.assign(said, { shuffle, seed });
    if (removed.size) said.removed = [...removed].join();
    if (covered.size) said.covered = [...covered].join();
    const text = Object.entries(said).map(([name, value]) => `${name}=${value}`).join("&");
    history.replaceState(null, "", `#ask:${text}`);
  }

  await addFromAlbum(state.photo);
  build();
  const pad = Object.assign(find(".pad"), { height: Math.round((find(".pad").width * rows) / columns) });
  const drawing = drawingPad(pad, takeDrawing, { ink: () => control("ink").value, paper: () => control("paper").value });
  const closeCamera = cameraOf(find(".camera"), control("camera"), takeFrame, (text) => (find(".notice").textContent = text));
  listen();
  await change({});
}

/** The cosine of the angle between two vectors. */
function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}
