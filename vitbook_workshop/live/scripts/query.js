"use strict";

/* The small figure of chapter 1: a query is dragged among four keys; weights and answer follow. */

const KEYS = [[1, 0], [0, 1], [-1, 0], [0, -1]];
const VALUES = [0, 10, 20, 30];
const UNIT = 36; // pixels of the drawing
const FAR = 4; // how far the query goes along each axis

/** softmax(qKᵀ/√d)·V for one query. @returns {{scores: number[], weights: number[], answer: number}} */
function attend(query) {
  const scores = KEYS.map((key) => (key[0] * query[0] + key[1] * query[1]) / Math.sqrt(key.length));
  const weights = softmaxOf(scores);
  return { scores, weights, answer: weights.reduce((sum, weight, i) => sum + weight * VALUES[i], 0) };
}

/** @param {ShadowRoot} root the figure's HTML */
async function query(root) {
  const find = (selector) => root.querySelector(selector);
  const plane = find(".plane");
  let q = [2, 1];

  function show(aloud = true) {
    const { scores, weights, answer } = attend(q);
    const [x, y] = [q[0] * UNIT, -q[1] * UNIT];
    find(".keys").replaceChildren(
      ...KEYS.flatMap(([right, up], i) => [
        element("line", { x1: 0, y1: 0, x2: right * UNIT, y2: -up * UNIT }),
        element("circle", { cx: right * UNIT, cy: -up * UNIT, r: 4 + 26 * Math.sqrt(weights[i]) }),
        element("text", { x: right * UNIT * 2.2, y: -up * UNIT * 2.2 + 5 }, `k${"₁₂₃₄"[i]}`),
      ]),
    );
    Object.entries({ x2: x, y2: y }).forEach(([name, value]) => find(".arrow").setAttribute(name, value));
    Object.entries({ cx: x, cy: y }).forEach(([name, value]) => find(".tip").setAttribute(name, value));
    Object.entries({ x, y: y + 5 }).forEach(([name, value]) => find(".name").setAttribute(name, value));
    find("tbody").replaceChildren(
      ...KEYS.map((_, i) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, `k${"₁₂₃₄"[i]}`),
          ...[decimal(scores[i], 2), weights[i].toFixed(3), String(VALUES[i])].map((text) => element("td", {}, text)),
        ),
      ),
    );
    say(find(".sentence"), `q = (${decimal(q[0], 1)}, ${decimal(q[1], 1)}): the answer is ${answer.toFixed(2)}.`, aloud);
  }

  function move(x, y, aloud = true) {
    q = [x, y].map((number) => Math.round(10 * Math.min(FAR, Math.max(-FAR, number))) / 10);
    show(aloud);
  }

  onDrag(plane, (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plane.getScreenCTM().inverse());
    move(point.x / UNIT, -point.y / UNIT, false);
  });
  onArrows(plane, (right, down) => move(q[0] + right / 5, q[1] - down / 5));
  const places = { none: [0, 0], between: [1, 1], sure: [-FAR, 0] };
  for (const [name, place] of Object.entries(places)) {
    find(`[name=${name}]`).addEventListener("click", () => move(...place));
  }
  show();
}
