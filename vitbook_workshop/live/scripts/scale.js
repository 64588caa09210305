"use strict";

/* The small figure of chapter 2: the width of a query and its keys, and what the softmax makes of their dot products. */

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {unknown} _ it needs no thread
 * @param {{unit: number, query: string, keys: string[]}} vectors from `packed_vectors`: whole numbers of units
 */
async function scale(root, _, vectors) {
  const find = (selector) => root.querySelector(selector);
  const [query, ...keys] = [vectors.query, ...vectors.keys].map((text) => Array.from(wholeNumbers(text), (n) => n * vectors.unit));

  function show() {
    const d = 2 ** Number(find("[name=width]").value);
    const scores = keys.map((key) => key.slice(0, d).reduce((sum, number, i) => sum + number * query[i], 0));
    const columns = { raw: scores, scaled: scores.map((score) => score / Math.sqrt(d)) };
    const said = Object.entries(columns).map(([name, shown]) => {
      const weights = softmaxOf(shown);
      const most = Math.max(...weights);
      find(`[data-column=${name}] .bars`).replaceChildren(
        ...weights.map((weight, i) =>
          element(
            "li",
            { class: weight === most ? "first" : "" },
            element("span", {}, `k${"₁₂₃₄₅₆₇₈"[i]}\u2002${decimal(shown[i], 2)}`),
            element("i", { style: `--share: ${weight}` }),
            element("b", {}, percent(weight)),
          ),
        ),
      );
      return { most, spread: spreadOf(shown) };
    });
    find("output").textContent = String(d);
    const shares = said.map(({ most }) => percent(most));
    find("[name=width]").setAttribute("aria-valuetext", `${d}: the largest weight is ${shares.join(", divided by √d ")}`);
    find(".sentence").textContent =
      `d = ${d}: the scores have a standard deviation of ${said[0].spread.toFixed(2)}, divided by √d of ` +
      `${said[1].spread.toFixed(2)}. The largest weight is ${shares[0]} without the division, and ${shares[1]} with it.`;
  }

  /** The standard deviation, with n − 1. */
  function spreadOf(numbers) {
    const mean = numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
    return Math.sqrt(numbers.reduce((sum, number) => sum + (number - mean) ** 2, 0) / (numbers.length - 1));
  }

  find("[name=width]").addEventListener("input", show);
  show();
}
