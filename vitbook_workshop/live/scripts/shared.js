"use strict";

/* What the figures share; it stands before their own script. */

/** @param {string} tag @param {Record<string, any>} [attributes] @param {...any} children @returns {any} */
function element(tag, attributes = {}, ...children) {
  const drawn = ["circle", "line", "polyline", "text"].includes(tag);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A number with a fixed count of decimals, and a minus that is one. */
const decimal = (number, digits) => number.toFixed(digits).replace("-", "−");

const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

/** @param {ArrayLike<number>} scores @returns {number[]} positive, their sum is 1 */
function softmaxOf(scores) {
  const most = Math.max(...Array.from(scores));
  const powers = Array.from(scores, (score) => Math.exp(score - most));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

/**
 * Attention rollout: how much of each token has reached one of them, over all blocks.
 * @param {ArrayLike<number>[]} attention of each block, (heads, tokens, tokens)
 * @returns {number[]} their sum is 1
 */
function rolledOut(attention, heads, tokens, token) {
  let reached = Array.from({ length: tokens }, (_, i) => Number(i === token));
  for (const all of [...attention].reverse()) {
    const before = reached.map((share) => share / 2);
    reached.forEach((share, i) => {
      for (let head = 0; head < heads; head++) {
        const first = (head * tokens + i) * tokens;
        before.forEach((_, j) => (before[j] += (share * all[first + j]) / (2 * heads)));
      }
    });
    reached = before;
  }
  return reached;
}

/** The text of a live region; only `aloud` is it announced, and only where it is another one. */
function say(region, text, aloud = true) {
  region.setAttribute("aria-live", aloud ? "polite" : "off");
  if (region.textContent !== text) {
    region.textContent = text;
  }
}

/** Whole numbers of eight bits from base64. */
const wholeNumbers = (text) => Int8Array.from(atob(text), (letter) => (letter.charCodeAt(0) << 24) >> 24);

/** Call `move` with (right, down) for each press of an arrow key on a control; notebooks have shortcuts of their own. */
function onArrows(control, move) {
  control.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) {
      event.preventDefault();
      event.stopPropagation();
      move(...step);
    }
  });
}

/** Call `follow` with the event when a mouse, pen or finger presses a control, and while it is dragged. */
function onDrag(control, follow) {
  control.addEventListener("pointerdown", (event) => {
    control.setPointerCapture(event.pointerId);
    follow(event);
  });
  control.addEventListener("pointermove", (event) => control.hasPointerCapture(event.pointerId) && follow(event));
}
