"use strict";

/* The figure "Look inside": a part of the drawing is pressed, and what it holds for a photograph appears below. */

const FRAME = [3, 4]; // rows and columns of numbers that are shown
const TOP = 3;

const TOKENS = ["tokens", "width"];
const OF_HEAD = ["tokens", "width of a head"];
const PAIRS = ["queries", "keys"];

/* Of each part of the drawing: the names of its axes, its tensor, what it depends on, and a sentence. */
const PARTS = {
  patches: [["patches", "numbers"], ({ patches }) => patches, "", "Each patch, 4·4 pixels in three colors, is one row of normalized numbers."],
  tokens: [TOKENS, ({ blocks }) => blocks[0].x, "", "Each patch times a matrix, the class token above them all, and to each its position added."],
  block: [TOKENS, leaving, "block", "What the next block takes in; after the last block, what the head reads."],
  logits: [["classes"], ({ logits }) => vector(logits), "", "The class token, after all blocks and a LayerNorm, times a matrix: one number for each class."],
  answer: [["classes"], ({ logits }) => vector(softmaxOf(logits)), "", "The softmax of the logits: ten shares, whose sum is 1."],
  norm1: [TOKENS, ({ blocks }, b) => blocks[b].norm1, "block", "Each token with mean 0 and standard deviation 1, then scaled and shifted."],
  attention: [TOKENS, ({ blocks }, b) => difference(blocks[b].middle, blocks[b].x), "block", "What each token takes from the others: the heads, merged and multiplied by W<sub>O</sub>."],
  sum: [TOKENS, ({ blocks }, b) => blocks[b].middle, "block", "Each token as it came in, plus what attention adds."],
  norm2: [TOKENS, ({ blocks }, b) => blocks[b].norm2, "block", "Each token again with mean 0 and standard deviation 1, then scaled and shifted."],
  mlp: [TOKENS, (trace, b) => difference(leaving(trace, b), trace.blocks[b].middle), "block", "What each token makes of itself: two linear maps with a GELU between."],
  end: [TOKENS, leaving, "block", "The first sum, plus what the MLP adds: what leaves the block."],
  entering: [TOKENS, ({ blocks }, b) => blocks[b].norm1, "block", "The tokens, as the LayerNorm hands them over."],
  queries: [OF_HEAD, third(0), "head", "What each token asks: the entering tokens times W<sub>Q</sub>."],
  keys: [OF_HEAD, third(1), "head", "What each token can be found by: the entering tokens times W<sub>K</sub>."],
  values: [OF_HEAD, third(2), "head", "What each token hands over: the entering tokens times W<sub>V</sub>."],
  scores: [PAIRS, scores, "head", "Each query times each key, divided by √d."],
  weights: [PAIRS, ({ blocks, heads }, b, h) => rowsOf(blocks[b].weights, h, heads), "head", "The softmax of each row of scores: shares, whose sum is 1."],
  blend: [OF_HEAD, ({ blocks, heads }, b, h) => columnsOf(blocks[b].heads, h, heads), "head", "The answer of this head: for each query the values, blended in its shares."],
  heads: [["tokens", "heads · width"], ({ blocks }, b) => blocks[b].heads, "block", "The answers of all heads side by side."],
};

/**
 * A matrix outside the thread's memory.
 * @typedef {{rows: number, columns: number, data: ArrayLike<number>}} Numbers
 */

/** @returns {Numbers} */
function made(rows, columns, number) {
  return { rows, columns, data: Float32Array.from({ length: rows * columns }, (_, i) => number(Math.floor(i / columns), i % columns)) };
}

const vector = (data) => ({ rows: data.length, columns: 1, data });
const difference = (a, b) => made(a.rows, a.columns, (i, j) => a.data[i * a.columns + j] - b.data[i * a.columns + j]);

/** Part `n` of `count` equal parts: of the columns, or of the rows. */
function columnsOf({ rows, columns, data }, n, count) {
  return made(rows, columns / count, (i, j) => data[i * columns + (n * columns) / count + j]);
}
function rowsOf({ rows, columns, data }, n, count) {
  return made(rows / count, columns, (i, j) => data[((n * rows) / count + i) * columns + j]);
}

function leaving({ blocks, z }, b) {
  return blocks[b + 1]?.x ?? z;
}

/** Queries (0), keys (1) or values (2) of a head. */
function third(n) {
  return ({ blocks, heads }, b, h) => columnsOf(blocks[b].qkv, n * heads + h, 3 * heads);
}

function scores(trace, b, h) {
  const [q, k] = [third(0)(trace, b, h), third(1)(trace, b, h)];
  const dot = (i, j) => Array.from({ length: q.columns }, (_, n) => q.data[i * q.columns + n] * k.data[j * q.columns + n]);
  return made(q.rows, q.rows, (i, j) => dot(i, j).reduce((sum, x) => sum + x, 0) / Math.sqrt(q.columns));
}

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {(kind: string, question?: object) => Promise<any>} thread the worker
 * @param {any} model from `packed_model`
 * @param {{src: string, credit: string}} photograph
 */
async function inside(root, thread, model, photograph) {
  const { config, classes } = model;
  const host = /** @type {HTMLElement} */ (/** @type {ShadowRoot} */ (root.host.getRootNode()).host);
  const buttons = /** @type {HTMLElement[]} */ ([...host.querySelectorAll("[data-part]")]);
  const find = (selector) => root.querySelector(selector);
  const at = [0, 0]; // the first row and column of the frame
  root.host.append(element("slot")); // the drawing stays where it is

  await thread("load", model);
  const image = Object.assign(new Image(), { src: photograph.src });
  await image.decode();
  const { naturalWidth: width, naturalHeight: height } = image;
  const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  context.drawImage(image, 0, 0);
  await thread("see", { name: "it", image: { width, height, data: context.getImageData(0, 0, width, height).data } });
  const { trace, logits } = await thread("ask", { name: "it", inside: true });
  Object.assign(trace, { logits, heads: config.num_heads });

  const first = model.prefix.map((name) => name.replace("the ", ""));
  const numbered = { tokens: first, queries: first, keys: first, patches: [] };
  /** What entry i along an axis is called. */
  const nameOf = (axis, i) =>
    axis === "classes" ? classes[i] : numbered[axis] ? (numbered[axis][i] ?? `patch ${i - numbered[axis].length}`) : `${i}`;

  function show() {
    const part = host.dataset.part;
    const [axes, tensorOf, by, says] = PARTS[part];
    const button = buttons.find((one) => one.dataset.part === part);
    const { rows, columns, data } = tensorOf(trace, ...["block", "head"].map((name) => Number(find(`[name=${name}]`).value)));
    const size = [rows, columns].map((count, i) => Math.min(FRAME[i], count));
    [rows, columns].forEach((count, i) => (at[i] = Math.max(0, Math.min(at[i], count - size[i]))));
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    const name = `${button.ariaLabel[0].toUpperCase()}${button.ariaLabel.slice(1)} `;
    if (find(".part").dataset.part !== part) { // else nothing is announced
      find(".part").dataset.part = part;
      find(".part").replaceChildren(name, element("small", {}, `(${rows},${axes[1] ? ` ${columns}` : ""}): ${axes.join(" × ")}`));
      find(".says").innerHTML = says;
    }
    find("[name=block]").disabled = !by;
    find("[name=head]").disabled = by !== "head";
    const values = Array.from(data);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const shown = [least, most].map((x) => element("b", { class: x < 0 ? "below" : "" }, decimal(x, 2)));
    find(".extent").replaceChildren(shown[0], " to ", shown[1]);
    paintMap({ rows, columns, data }, Math.max(-least, most));
    find(".map i").style.cssText =
      `left:${(100 * at[1]) / columns}%;top:${(100 * at[0]) / rows}%;width:${(100 * size[1]) / columns}%;height:${(100 * size[0]) / rows}%`;
    const [down, across] = size.map((count, i) => Array.from({ length: count }, (_, n) => at[i] + n));
    const named = across.map((j) => element("th", { scope: "col" }, axes[1] ? nameOf(axes[1], j) : ""));
    find("thead").replaceChildren(element("tr", {}, element("td"), ...named));
    find("tbody").replaceChildren(
      ...down.map((i) => {
        const numbers = across.map((j) => element("td", {}, decimal(data[i * columns + j], 3)));
        return element("tr", {}, element("th", { scope: "row" }, nameOf(axes[0], i)), ...numbers);
      }),
    );
    const corner = [0, 1].map((i) => (axes[i] ? nameOf(axes[i], at[i]) : "")).join(" ");
    find(".map").setAttribute("aria-label", `All numbers as colors. Arrow keys move the frame, which begins at ${corner}`);
    paintPhotograph(at[0] - (numbered[axes[0]]?.length ?? Infinity));
    find(".inside").setAttribute("aria-busy", "false");
  }

  /** The larger a number, the fuller its color. */
  function paintMap({ rows, columns, data }, largest) {
    const canvas = Object.assign(find(".map canvas"), { width: columns, height: rows });
    const color = (role) => getComputedStyle(canvas).getPropertyValue(`--vit-${role}`).match(/\w\w/g).map((two) => parseInt(two, 16));
    const [below, above] = [color("key"), color("query")];
    const pixels = new ImageData(columns, rows);
    Array.from(data).forEach((x, i) => pixels.data.set([...(x < 0 ? below : above), 255 * Math.sqrt(Math.abs(x) / largest)], 4 * i));
    canvas.getContext("2d").putImageData(pixels, 0, 0);
  }

  /** The photograph, and a frame around the patch whose row of numbers is the first in the table. */
  function paintPhotograph(patch) {
    const canvas = find(".ends canvas");
    const brush = canvas.getContext("2d");
    const side = (canvas.width * config.patch_size) / config.image_size[1];
    const columns = canvas.width / side;
    brush.drawImage(image, 0, 0, canvas.width, canvas.height);
    if (patch >= 0) {
      for (const [style, wide] of [["#000", 5], ["#fff", 2]]) {
        Object.assign(brush, { strokeStyle: style, lineWidth: wide });
        brush.strokeRect((patch % columns) * side, Math.floor(patch / columns) * side, side, side);
      }
    }
  }

  for (const [name, count] of [["block", config.depth], ["head", config.num_heads]]) {
    find(`[name=${name}]`).append(...Array.from({ length: count }, (_, i) => element("option", {}, i)));
    find(`[name=${name}]`).addEventListener("change", show);
  }
  const shares = softmaxOf(logits);
  const ranked = classes.map((_, k) => k).sort((a, b) => shares[b] - shares[a]);
  find(".bars").append(
    ...ranked.slice(0, TOP).map((k, i) => {
      const bar = element("i", { style: `--share: ${shares[k]}` });
      return element("li", { class: i ? "" : "first" }, element("span", {}, classes[k]), bar, element("b", {}, percent(shares[k])));
    }),
  );
  find(".ends canvas").title = photograph.credit;
  const moveTo = (row, column) => {
    [at[0], at[1]] = [row, column];
    show();
  };
  const map = find(".map");
  onArrows(map, (right, down) => moveTo(at[0] + down, at[1] + right));
  onDrag(map, (event) => {
    const { left, top } = map.getBoundingClientRect();
    const { width, height } = map.firstElementChild;
    moveTo(Math.floor(((event.clientY - top) / map.offsetHeight) * height), Math.floor(((event.clientX - left) / map.offsetWidth) * width));
  });
  const bringIntoView = () => find(".inside").scrollIntoView({ block: "nearest" });
  for (const button of buttons) {
    button.addEventListener("click", show);
    button.addEventListener("click", bringIntoView);
  }
  new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  show();
  const invitation = host.querySelector(".invitation");
  if (invitation.contains(document.activeElement)) {
    buttons.find((one) => one.ariaPressed === "true").focus({ preventScroll: true });
  }
  invitation.remove();
  setTimeout(bringIntoView); // when it is shown
}
