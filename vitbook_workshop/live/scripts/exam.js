"use strict";

/* The figure of chapter 28: which patches decide is known. The reader points, then maps do; patches are blanked, and heads
   are carried from a twin of the image. */

const SHOWN = 10; // pixels of the board for one of the image
const METHODS = { last: "the last block’s attention", rollout: "rollout", occlusion: "occlusion" };

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {(kind: string, question?: object) => Promise<any>} thread the worker
 * @param {{model: any, scenes: any[]}} given from `packed_exam`
 */
async function exam(root, thread, { model, scenes }) {
  const { config, classes } = model;
  const { depth, num_heads, patch_size, num_classes } = config;
  const side = config.image_size[0];
  const grid = side / patch_size;
  const tokens = model.prefix.length + grid ** 2;
  const find = (selector) => root.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  const marks = scenes.map(() => /** @type {Record<string, number>} */ ({})); // of each scene: who → how many of two were right
  const seen = {}; // "image", "cue", "color" → {canvas, answer}
  let state = null; // of the scene that is shown
  let focused = 0;
  let latest = 0;

  const nameOf = (patch) => `row ${Math.floor(patch / grid)}, column ${patch % grid}`;
  const scene = () => scenes[state.scene];
  const rightOf = (patches) => patches.filter((patch) => scene().key.includes(patch)).length;
  const firstOf = (logits) => logits.indexOf(Math.max(...logits));

  /* Images */

  /** Levels of the image, or of a twin, in which one patch is another. */
  function levelsOf(name) {
    const bytes = (text) => Uint8Array.from(wholeNumbers(text));
    const levels = bytes(scene().pixels);
    if (name !== "image") {
      const [patch, own] = [scene().key[name === "cue" ? 0 : 1], bytes(scene()[name])];
      for (let row = 0; row < patch_size; row++) {
        const to = (Math.floor(patch / grid) * patch_size + row) * side + (patch % grid) * patch_size;
        levels.set(own.subarray(3 * row * patch_size, 3 * (row + 1) * patch_size), 3 * to);
      }
    }
    return levels;
  }

  /** An image and what the model says of it. */
  async function see(name) {
    const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
    const image = canvas.getContext("2d").createImageData(side, side);
    levelsOf(name).forEach((level, i) => (image.data[4 * Math.floor(i / 3) + (i % 3)] = level));
    image.data.forEach((_, i) => i % 4 === 3 && (image.data[i] = 255));
    canvas.getContext("2d").putImageData(image, 0, 0);
    await thread("see", { name, image: { width: side, height: side, data: image.data } });
    seen[name] = { canvas, answer: await thread("ask", { name, change: {} }) };
  }

  async function open(number) {
    const own = ++latest;
    state = { scene: number, marked: [], blank: [], shown: false, view: null, maps: {}, now: null };
    Object.assign(control("head"), { value: "" });
    find("[name=mode][value=mark]").disabled = false;
    find("[name=mode][value=mark]").checked = true;
    find(".figure").setAttribute("aria-busy", true);
    for (const name of ["image", "cue", "color"]) {
      await see(name);
      if (own !== latest) {
        return; // another image has been chosen
      }
    }
    await ask();
  }

  /* Answers */

  /** Ask the model with what is changed, and show all. */
  async function ask() {
    const own = ++latest;
    find(".figure").setAttribute("aria-busy", true);
    const [block, head] = control("head").value.split(".").map(Number);
    const carried = control("head").value && { from: control("twin").value, block, head };
    const change = { covered: state.blank, ...(carried && { carried }) };
    const answer = await thread("ask", { name: "image", change });
    if (own !== latest) {
      return; // the reader has changed something else meanwhile
    }
    state.now = answer.logits;
    find(".speed").textContent = `An answer takes ${answer.milliseconds.toFixed(1)} ms in this browser.`;
    show();
    find(".figure").setAttribute("aria-busy", false);
  }

  /** A map of the answer, a number for each patch. */
  async function mapOf(method) {
    const { logits, attention } = seen.image.answer;
    if (method === "occlusion") {
      const all = await thread("coverEach", { name: "image" });
      const scores = Array.from({ length: grid ** 2 + 1 }, (_, i) => all[i * num_classes + firstOf(logits)]);
      return scores.slice(1).map((score) => scores[0] - score);
    }
    const row = new Array(tokens).fill(0);
    for (let head = 0; head < num_heads; head++) {
      const first = head * tokens * tokens; // the class token's row
      row.forEach((_, j) => (row[j] += attention[depth - 1][first + j] / num_heads));
    }
    return (method === "last" ? row : rolledOut(attention, num_heads, tokens, 0)).slice(model.prefix.length);
  }

  async function choose(method) {
    const { maps, scene: number, now } = state;
    if (!now) {
      return;
    }
    maps[method] ??= await mapOf(method);
    if (state.maps === maps) {
      state.view = state.view === method ? null : method;
      marks[number][method] ??= rightOf(highest(maps[method]));
      show();
    }
  }

  const highest = (map) => map.map((_, patch) => patch).sort((a, b) => map[b] - map[a]).slice(0, 2);

  /** How far the answer has gone to the twin's: 0 not at all, 1 all the way, on the difference of two logits. */
  function way(twin) {
    const [here, there] = [seen.image.answer.logits, twin];
    const lead = (logits) => logits[firstOf(there)] - logits[firstOf(here)];
    return (lead(state.now) - lead(here)) / (lead(there) - lead(here));
  }

  const isChanged = () => state.blank.length > 0 || control("head").value !== "";

  /* What is seen */

  function show() {
    const { marked, blank, shown, view, maps, now } = state;
    if (!now) {
      return; // the image is not there yet
    }
    const pointed = view ? highest(maps[view]) : [];
    draw(view && maps[view]);
    cells.forEach((cell, patch) => {
      const is = { marked: marked.includes(patch), blank: blank.includes(patch), pointed: pointed.includes(patch) };
      const key = shown && scene().key.includes(patch);
      cell.setAttribute("aria-selected", String(is.marked));
      cell.classList.toggle("covered", is.blank);
      cell.classList.toggle("pointed", is.pointed);
      cell.classList.toggle("key", key);
      const said = { marked: is.marked, blank: is.blank, "in the key": key, "among the two highest": is.pointed };
      const labels = Object.keys(said).filter((name) => said[name]);
      cell.setAttribute("aria-label", [nameOf(patch), scene().patches[patch] ?? "plain", ...labels].join(", "));
      cell.tabIndex = patch === focused ? 0 : -1;
    });
    find(".figure").classList.toggle("altered", isChanged());
    find("[data-column=untouched] h3").textContent = isChanged() ? "Original" : "The model says";
    for (const [column, logits] of Object.entries({ untouched: seen.image.answer.logits, changed: now })) {
      softmaxOf(logits).forEach((share, k) => {
        const bar = bars[column][k];
        bar.classList.toggle("first", k === firstOf(logits));
        bar.children[1].style.setProperty("--share", String(share));
        bar.children[2].textContent = percent(share);
      });
    }
    root.querySelectorAll("fieldset").forEach((one) => (one.disabled = !shown));
    for (const name of Object.keys(METHODS)) {
      control(name).setAttribute("aria-pressed", String(name === view));
    }
    find(".one").getContext("2d").drawImage(seen[control("twin").value].canvas, 0, 0);
    say(find(".caption"), caption(pointed));
    say(find(".sentence"), sentence());
    table();
  }

  /** The image; over it a map: the lower, the darker. */
  function draw(map) {
    const context = find(".photograph").getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(seen.image.canvas, 0, 0, side * SHOWN, side * SHOWN);
    const most = map && Math.max(...map);
    map?.forEach((value, patch) => {
      const [row, column] = [Math.floor(patch / grid), patch % grid].map((n) => n * patch_size * SHOWN);
      context.fillStyle = `rgb(0 0 0 / ${0.85 * (1 - Math.max(0, value) / most)})`;
      context.fillRect(column, row, patch_size * SHOWN, patch_size * SHOWN);
    });
  }

  function caption(pointed) {
    const { marked, shown, view } = state;
    if (view) {
      const right = marks[state.scene][view];
      const name = METHODS[view][0].toUpperCase() + METHODS[view].slice(1);
      return `${name} points at ${pointed.map(nameOf).join(" and ")}: ${right} of 2 right, precision ${50 * right}\u00a0%.`;
    }
    if (shown) {
      return `You had ${marks[state.scene].you} of the two. The key: ${scene().key.map(nameOf).join(" and ")}.`;
    }
    return marked.length ? `You have marked ${marked.map(nameOf).join(" and ")}.` : "Mark two patches, then show the key.";
  }

  function sentence() {
    const says = (logits) => `${classes[firstOf(logits)]} (${percent(Math.max(...softmaxOf(logits)))})`;
    if (!isChanged()) {
      return ""; // the bars say it
    }
    const { value } = control("head");
    const parts = [`The model says ${says(seen.image.answer.logits)}. Changed, it says ${says(state.now)}.`];
    if (value && state.shown) {
      const twin = seen[control("twin").value].answer.logits;
      const [block, head] = value.split(".");
      const far = decimal(way(twin), 2);
      parts.push(`With block ${block}, head ${head} from the twin, whose answer is ${classes[firstOf(twin)]}, it goes ${far} of the way there.`);
    }
    return parts.join(" ");
  }

  function table() {
    const lines = Object.entries({ you: "you", ...METHODS }).map(([who, name]) => {
      const all = marks.map((one) => one[who]).filter((right) => right !== undefined);
      const total = all.reduce((sum, right) => sum + right, 0);
      const here = marks[state.scene][who] ?? "–";
      const texts = [here, all.length ? `${total} of ${2 * all.length}` : "–"].map(String);
      return element("tr", {}, element("th", { scope: "row" }, name), ...texts.map((text) => element("td", {}, text)));
    });
    find("tbody").replaceChildren(...lines);
  }

  /* What a reader does */

  function press(patch) {
    focused = patch;
    const list = find("[name=mode]:checked").value === "mark" ? "marked" : "blank";
    const kept = state[list].filter((other) => other !== patch);
    state[list] = kept.length < state[list].length ? kept : [...kept.slice(list === "marked" ? -1 : 0), patch];
    list === "blank" ? ask() : show();
  }

  function key() {
    if (!state.now) {
      return;
    }
    state.shown = true;
    marks[state.scene].you ??= rightOf(state.marked);
    find("[name=mode][value=blank]").checked = true;
    find("[name=mode][value=mark]").disabled = true;
    show();
  }

  const cells = Array.from({ length: grid ** 2 }, (_, patch) => {
    const cell = element("div", { role: "gridcell", "data-patch": patch });
    cell.addEventListener("click", () => press(patch));
    return cell;
  });
  for (let i = 0; i < grid; i++) {
    find(".board").append(element("div", { role: "row" }, ...cells.slice(i * grid, (i + 1) * grid)));
  }
  const bars = Object.fromEntries(
    ["untouched", "changed"].map((column) => {
      const lines = classes.map((name) => element("li", {}, element("span", {}, name), element("i"), element("b")));
      find(`[data-column=${column}] .bars`).append(...lines);
      return [column, lines];
    }),
  );
  find(".figure").style.cssText = `--columns: ${grid}; --ratio: 1`;
  control("scene").append(...scenes.map((_, i) => element("option", { value: i }, String(i + 1))));
  for (let i = 0; i < depth * num_heads; i++) {
    const [block, head] = [Math.floor(i / num_heads), i % num_heads];
    control("head").append(element("option", { value: `${block}.${head}` }, `block ${block}, head ${head}`));
  }
  onArrows(find(".board"), (right, down) => {
    const [row, column] = [Math.floor(focused / grid) + down, (focused % grid) + right];
    if (Math.min(row, column) >= 0 && Math.max(row, column) < grid) {
      cells[focused].tabIndex = -1;
      focused = row * grid + column;
      cells[focused].tabIndex = 0;
      cells[focused].focus({ preventScroll: true });
    }
  });
  find(".board").addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      press(focused);
    }
  });
  control("key").addEventListener("click", key);
  control("reset").addEventListener("click", () => {
    Object.assign(state, { blank: [], view: null });
    control("head").value = "";
    ask();
  });
  Object.keys(METHODS).forEach((name) => control(name).addEventListener("click", () => choose(name)));
  control("scene").addEventListener("change", () => open(Number(control("scene").value)));
  ["twin", "head"].forEach((name) => control(name).addEventListener("change", ask));
  await thread("load", model);
  await open(0);
}
