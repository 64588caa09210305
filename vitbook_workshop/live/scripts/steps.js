"use strict";

/* The small figure of chapter 10: a recorded training run, and the model after some of its epochs. */

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {unknown} _ it needs no thread
 * @param {any} run from `packed_steps`
 */
async function steps(root, _, run) {
  const find = (selector) => root.querySelector(selector);
  const [slider, curves, heads, alike, weights] = ["[name=moment]", ".curves", ".heads", ".alike", ".weights"].map(find);
  const { epochs, losses, accuracies, image, label } = run;
  const last = epochs.at(-1);
  const marker = element("line", { y1: 0, y2: 182, class: "marker" });
  const canvases = Array.from({ length: run.heads ** 2 }, () => element("canvas", { width: 8, height: 8 }));

  /** Of numbers for every epoch shown, those of one. */
  const numbersOf = (letters, moment) => {
    const size = letters.length / epochs.length;
    return Array.from(letters.slice(moment * size, (moment + 1) * size), (letter) => (letter.charCodeAt(0) - 93) / 31);
  };

  function show() {
    const moment = Number(slider.value);
    const epoch = epochs[moment];
    const [probability, largest, near, far, spread] = run.facts[moment];
    find("output").textContent = `${epoch} of ${last}`;
    slider.setAttribute("aria-valuetext", `epoch ${epoch} of ${last}: ${percent(accuracies[epoch])} of the test digits right`);
    find(".sentence").textContent =
      `Step ${(epoch * run.steps).toLocaleString("en")}: test loss ${losses[epoch].toFixed(2)}, ` +
      `${percent(accuracies[epoch])} of the test digits right. ` +
      `The one shown, a ${label}, is a ${label} with probability ${percent(probability)}.`;
    marker.setAttribute("transform", `translate(${LEFT + (WIDE * epoch) / last})`);
    const attention = numbersOf(run.attention, moment);
    const patches = attention.length / canvases.length;
    canvases.forEach((canvas, i) => {
      drawAttended(canvas, image, attention.slice(i * patches, (i + 1) * patches));
    });
    find(".largest").textContent = `The largest weight on one patch: ${largest.toFixed(2)}.`;
    drawMaps(alike, numbersOf(run.alike, moment), patches);
    find(".cosines").textContent =
      `Mean cosine: ${decimal(near, 2)} with the next patches across and down, ${decimal(far, 2)} with the others.`;
    const matrix = numbersOf(run.head, moment);
    drawMaps(weights, matrix, matrix.length, matrix.length / 10);
    find(".spread").textContent = `Their standard deviation: ${decimal(spread, 3)}.`;
  }

  heads.append(...canvases);
  find(".figure").style.cssText = `--heads: ${run.heads}; --ratio: 1`;
  drawCurves(curves, [{ epochs: last, losses, accuracies }], "test loss");
  curves.append(marker);
  slider.max = epochs.length - 1;
  slider.addEventListener("input", show);
  show();
}
