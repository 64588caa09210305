"use strict";

/* The figure "Train a painter": a small ViT learns to paint digits in the page, then paints what the reader asks for. */

const SHOWN = 10; // steps of a walk that are drawn at most

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {(kind: string, question?: object, listen?: (news: any) => void) => Promise<any>} thread the worker
 * @param {any} digits from `packed_digits`
 */
async function paint(root, thread, digits) {
  const find = (selector) => root.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  const number = (name) => Number(control(name).value) || 0;
  const side = digits.config.image_size[0];
  let noise = 0; // which one, beyond the seed
  await thread("begin", digits);

  /** A gray image, −1 to 1, as a canvas; what lies beyond is cut off. */
  function drawn(image, label) {
    const canvas = element("canvas", { width: side, height: side, role: "img", "aria-label": label });
    const context = canvas.getContext("2d");
    image.forEach((value, cell) => {
      const level = Math.round(127.5 * (1 + Math.min(1, Math.max(-1, value))));
      context.fillStyle = `rgb(${level} ${level} ${level})`;
      context.fillRect(cell % side, Math.floor(cell / side), 1, 1);
    });
    return canvas;
  }

  /** Room for an image after each epoch, so that nothing below moves. */
  function unpainted() {
    const blank = Array(side ** 2).fill(-1);
    const places = Array.from({ length: number("epochs") + 1 }, (_, epoch) => drawn(blank, `Epoch ${epoch}, not yet painted`));
    find(".epochs").replaceChildren(...places);
    return places;
  }

  async function begin() {
    const [epochs, label] = [number("epochs"), number("class")];
    control("train").disabled = true;
    control("stop").disabled = false;
    find(".after").disabled = true;
    const places = unpainted();
    find(".figure").setAttribute("aria-busy", true);
    noise = 0;
    try {
      const { stopped } = await thread("train", { seed: number("seed"), epochs, label }, (news) => {
        const { epoch, seconds, loss, image } = news;
        places[epoch].replaceWith(drawn(image, `After epoch ${epoch}`));
        const left = epoch && epoch < epochs ? `, about ${Math.ceil((seconds / epoch) * (epochs - epoch))} s left` : "";
        say(find(".progress"), `Epoch ${epoch} of ${epochs}${epoch ? `: loss ${loss.toFixed(2)}` : ""}${left}.`, false);
        find(".speed").textContent = epoch ? `An epoch takes ${(seconds / epoch).toFixed(1)} s in this browser.` : "";
      });
      if (stopped) {
        find(".after").disabled = false;
        await ask();
      }
    } catch (error) {
      say(find(".progress"), `It could not be trained: ${error.message}.`);
    }
    control("train").disabled = false;
    control("stop").disabled = true;
    find(".figure").setAttribute("aria-busy", false);
  }

  /** Paint what the controls say, and show z above and the guesses below. */
  async function ask() {
    if (find(".after").disabled) {
      return;
    }
    const [label, steps, guidance] = ["class", "steps", "guidance"].map(number);
    const walked = await thread("paint", { seed: number("seed") + 10000 * noise, label, steps, guidance });
    const every = Math.max(1, walked.length / SHOWN);
    const some = walked.filter((_, step) => Math.floor(step / every) !== Math.floor((step - 1) / every) || step === steps - 1);
    const at = (step) => `at time ${(walked.indexOf(step) / steps).toFixed(2)}`;
    find(".walked").style.setProperty("--heads", some.length);
    find(".walked").replaceChildren(
      ...some.map((step) => drawn(step.z, `Where it stands ${at(step)}`)),
      ...some.map((step) => drawn(step.guess, `The guess ${at(step)}`)),
    );
    const asked = guidance ? `A ${label}` : "Any digit";
    find(".sentence").textContent =
      `${asked}, in ${steps} ${steps === 1 ? "step" : "steps"} with guidance ${guidance}. What it paints is the last guess.`;
  }

  control("class").append(...Array.from({ length: 10 }, (_, digit) => element("option", {}, String(digit))));
  control("class").value = "7";
  find(".epochs").style.setProperty("--heads", 9);
  unpainted();
  control("epochs").addEventListener("change", unpainted);
  control("train").addEventListener("click", begin);
  control("stop").addEventListener("click", () => thread("stop"));
  control("again").addEventListener("click", () => {
    noise++;
    ask();
  });
  for (const name of ["class", "steps", "guidance"]) {
    control(name).addEventListener("change", ask);
  }
}
