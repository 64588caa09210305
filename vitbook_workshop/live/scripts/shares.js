"use strict";

/* The small figure of chapter 12: what a model learns from a share of the digits, in as many steps as from all. */

const SHARES = [0.01, 0.05, 0.2, 1];
const [DEPTH, EPOCHS] = [2, 8]; // an epoch has as many images as there are digits
const RECIPE_12 = { size: 32, peak: 6e-3, decay: 0.1, affine: 0.5 };

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {(kind: string, question?: object, listen?: (news: any) => void) => Promise<any>} thread the worker
 * @param {any} digits from `packed_digits`
 */
async function shares(root, thread, digits) {
  const find = (selector) => root.querySelector(selector);
  const whole = (count) => count.toLocaleString("en");
  await thread("begin", { ...digits, config: { ...digits.config, depth: DEPTH } });
  const runs = []; // for each share: {share, count, accuracy: the baseline's, accuracies: of the ViT by epoch, loss}
  for (const share of SHARES) {
    runs.push({ share, accuracies: [], loss: NaN, ...(await thread("nearest", { share })) });
  }

  async function train(run) {
    Object.assign(run, { accuracies: [], loss: NaN });
    busy(true);
    await thread("train", { seed: 0, epochs: EPOCHS, share: run.share, recipe: RECIPE_12 }, ({ epoch, accuracy, loss, seconds }) => {
      run.accuracies.push(accuracy);
      run.loss = loss;
      const said = `${whole(run.count)} digits, epoch ${epoch} of ${EPOCHS}: ${percent(accuracy)} of the test digits right.`;
      say(find(".progress"), said, false);
      find(".speed").textContent = epoch ? `An epoch takes ${(seconds / epoch).toFixed(1)} s in this browser.` : "";
      show();
    });
    say(find(".progress"), `Trained on ${find(".progress").textContent}`);
    busy(false);
  }

  function busy(is) {
    find(".figure").setAttribute("aria-busy", is);
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (root.querySelectorAll("button"))) {
      button.disabled = is !== (button.name === "stop");
    }
  }

  function show() {
    find("tbody").replaceChildren(
      ...runs.map(({ count, accuracy, accuracies, loss }) => {
        const learned = accuracies.length ? [percent(accuracies.at(-1)), loss.toFixed(2)] : ["", ""];
        const numbers = [percent(accuracy), ...learned].map((text) => element("td", {}, text));
        return element("tr", {}, element("th", { scope: "row" }, whole(count)), ...numbers);
      }),
    );
    const [left, width, top, height] = [44, 236, 8, 140];
    const y = (value) => top + height * (1 - value);
    let free = Infinity; // where the next name may stand at the lowest
    const ended = runs.filter(({ accuracies }) => accuracies.length).sort((a, b) => a.accuracies.at(-1) - b.accuracies.at(-1));
    find(".curves").replaceChildren(
      ...[0, 1].flatMap((value) => [
        element("line", { x1: left, x2: left + width, y1: y(value), y2: y(value), class: "tick" }),
        element("text", { x: left - 4, y: y(value) + 4, "text-anchor": "end" }, value ? "100 %" : "0"),
      ]),
      element("text", { x: left, y: top + height + 15 }, "test digits right, by epoch"),
      element("text", { x: left + width, y: top + height + 15, "text-anchor": "end" }, String(EPOCHS)),
      ...ended.flatMap(({ count, accuracies }) => {
        const points = accuracies.map((value, i) => [left + (width * i) / EPOCHS, y(value)]);
        const [x, end] = points.at(-1);
        free = Math.min(end + 4, free - 12);
        return [
          element("polyline", { points: points.join(" "), class: "with" }),
          element("text", { x: x + 4, y: free }, whole(count)),
        ];
      }),
    );
  }

  const stop = element("button", { type: "button", name: "stop", disabled: "" }, "Stop");
  stop.addEventListener("click", () => thread("stop"));
  find(".buttons").append(
    ...runs.map((run, i) => {
      const button = element("button", { type: "button", name: "train" }, `${whole(run.count)} digits`);
      button.toggleAttribute("data-first", i === 0);
      button.addEventListener("click", () => train(run));
      return button;
    }),
    stop,
  );
  busy(false);
  show();
}
