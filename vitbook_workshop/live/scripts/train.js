"use strict";

/* The figure "Train it": a small ViT learns the digits in the page, then reads one that the reader draws. */

const CELLS = 8; // of an image's side
const FINE = 32; // places of the grid in which ink is counted
const PEN = 5; // width of a stroke, in places

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {(kind: string, question?: object, listen?: (news: any) => void) => Promise<any>} thread the worker
 * @param {any} digits from `packed_digits`
 */
async function train(root, thread, digits) {
  const { config } = digits;
  const { depth, num_heads } = config;
  const grid = config.image_size[0] / config.patch_size;
  const patches = grid * grid;
  const tokens = patches + 1;
  const find = (selector) => root.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  await thread("begin", digits);
  const testImages = Uint8Array.from(atob(digits.test.images), (letter) => letter.charCodeAt(0));
  const testLabels = Uint8Array.from(atob(digits.test.labels), (letter) => letter.charCodeAt(0));
  const imageOf = (n) => testImages.subarray(n * CELLS ** 2, (n + 1) * CELLS ** 2);

  const runs = []; // {name, epochs, losses, accuracies}: the last one with positions and the last one without

  /** What is there once a model has been trained. */
  const showAfter = (shown) => {
    for (const part of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(".after"))) {
      part.hidden = !shown;
    }
  };
  const ink = () => getComputedStyle(find(".figure")).color;

  /* Training */

  async function begin() {
    const withoutPositions = control("positions").checked;
    const epochs = Number(control("epochs").value);
    const seed = Number(control("seed").value) || 0;
    const run = { name: withoutPositions ? "without positions" : "with positions", epochs, losses: [], accuracies: [] };
    const same = runs.findIndex(({ name }) => name === run.name);
    same < 0 ? runs.push(run) : runs.splice(same, 1, run);
    control("train").disabled = true;
    control("stop").disabled = false;
    find(".changed tbody").replaceChildren();
    showAfter(false);
    find(".figure").setAttribute("aria-busy", true);
    try {
      const { stopped } = await thread("train", { seed, epochs, withoutPositions }, (news) => {
        run.losses.push(news.loss);
        run.accuracies.push(news.accuracy);
        const { epoch, seconds } = news;
        const left = epoch ? `, about ${Math.ceil((seconds / epoch) * (epochs - epoch))} s left` : "";
        const said =
          `Epoch ${epoch} of ${epochs}: loss ${news.loss.toFixed(2)}, ${percent(news.accuracy)} of the test digits right` +
          `${epoch < epochs ? left : ""}.`;
        say(find(".progress"), said, false);
        find(".speed").textContent = epoch ? `An epoch takes ${(seconds / epoch).toFixed(1)} s in this browser.` : "";
        drawCurves(find(".curves"), runs, "training loss");
        drawHeads(news.attention, imageOf(0));
        drawAlike(news.alike);
      });
      if (stopped) {
        say(find(".progress"), `${find(".progress").textContent} Now draw one below.`);
        showAfter(true);
      }
    } catch (error) {
      say(find(".progress"), `It could not be trained: ${error.message}.`);
    }
    control("train").disabled = false;
    control("stop").disabled = true;
    find(".figure").setAttribute("aria-busy", false);
  }

  /** What the class token attends to, head by head: the digit, clear where the weight is large. */
  function drawHeads(attention, levels) {
    const canvases = /** @type {NodeListOf<HTMLCanvasElement>} */ (root.querySelectorAll(".heads canvas"));
    canvases.forEach((canvas, i) => {
      const row = (i % num_heads) * tokens * tokens; // of the class token
      drawAttended(canvas, levels, attention[Math.floor(i / num_heads)].subarray(row + 1, row + tokens));
    });
  }

  function drawAlike(alike) {
    drawMaps(find(".alike"), alike, patches);
    const label = `Positions of the first two patches: cosine similarity ${decimal(alike[1], 2)}`;
    find(".alike").setAttribute("aria-label", label);
  }

  /* Drawing */

  /** The drawing as the data set's digits were made: its box fitted into 32×32 places, and the ink counted in 4×4 each. */
  function levelsOf(strokes) {
    const points = strokes.flatMap((stroke) => stroke.points);
    const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const room = FINE - PEN;
    const scale = room / Math.max(right - left, bottom - top, 1e-3);
    const fine = Object.assign(document.createElement("canvas"), { width: FINE, height: FINE });
    const context = fine.getContext("2d", { willReadFrequently: true });
    context.translate(FINE / 2, FINE / 2);
    drawStrokes(context, strokes, PEN, ([x, y]) => [scale * (x - (left + right) / 2), scale * (y - (top + bottom) / 2)]);
    const { data } = context.getImageData(0, 0, FINE, FINE);
    const step = FINE / CELLS;
    return Uint8Array.from({ length: CELLS ** 2 }, (_, cell) => {
      let count = 0;
      for (let i = 0; i < step * step; i++) {
        const row = Math.floor(cell / CELLS) * step + Math.floor(i / step);
        const column = (cell % CELLS) * step + (i % step);
        count += data[4 * (row * FINE + column) + 3] > 127 ? 1 : 0;
      }
      return Math.round((255 * count) / (step * step));
    });
  }

  const pad = drawingPad(find(".pad"), () => pad.strokes.length && read(levelsOf(pad.strokes)), {
    ink: () => "#000",
    paper: () => "#fff",
  });

  let asked = 0;

  /** Show 8×8 levels, and what the model reads in them. */
  async function read(levels, label) {
    const own = ++asked;
    find(".figure").setAttribute("aria-busy", true);
    const context = find(".seen").getContext("2d");
    levels.forEach((level, cell) => {
      context.fillStyle = `rgb(${level} ${level} ${level})`;
      context.fillRect(cell % CELLS, Math.floor(cell / CELLS), 1, 1);
    });
    const { logits, attention } = await thread("read", { levels });
    if (own !== asked) {
      return;
    }
    const shares = softmaxOf(Array.from(logits));
    const best = shares.indexOf(Math.max(...shares));
    const truth = label === undefined ? "" : label === best ? ", which is right" : `, but it is a ${label}`;
    find(".sentence").textContent = `The model reads a ${best} (${percent(shares[best])})${truth}.`;
    find(".bars").replaceChildren(
      ...shares.map((share, digit) =>
        element("li", { class: digit === best ? "first" : "" }, element("span", {}, String(digit)), element("i", { style: `--share: ${share}` }), element("b", {}, percent(share))),
      ),
    );
    drawHeads(attention, levels);
    find(".figure").setAttribute("aria-busy", false);
  }

  function listen() {
    control("train").addEventListener("click", begin);
    control("stop").addEventListener("click", () => thread("stop"));
    control("clear").addEventListener("click", () => {
      pad.clear();
      find(".sentence").textContent = "";
      find(".bars").replaceChildren();
    });
    let next = 0;
    control("sample").addEventListener("click", () => {
      next = (next + 1) % testLabels.length;
      pad.clear();
      read(imageOf(next), testLabels[next]);
    });
    control("interfere").addEventListener("click", interfere);
  }

  /** Test accuracy of the model just trained, changed in each way. */
  async function interfere() {
    control("interfere").disabled = true;
    const order = Array.from({ length: patches }, (_, i) => (i * 5 + 3) % patches); // 5 and 16 share no factor
    const heads = (block) => Array.from({ length: num_heads }, (_, head) => `${block}.${head}`);
    const changes = {
      "none": {},
      "positions off": { withoutPositions: true },
      "tokens shuffled after their positions": { after: order },
      "tokens shuffled before their positions": { before: order },
      "all heads of block 0 removed": { removed: heads(0) },
      "all heads of the last block removed": { removed: heads(depth - 1) },
    };
    const lines = [];
    find("[role=status]").textContent = "";
    for (const [name, change] of Object.entries(changes)) {
      const share = await thread("accuracy", { change });
      lines.push(element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, percent(share))));
      find(".changed tbody").replaceChildren(...lines);
    }
    find("[role=status]").textContent = `All test digits have been read ${lines.length} times.`;
    control("interfere").disabled = false;
  }

  find(".figure").style.cssText = `--columns: ${grid}; --ratio: 1; --heads: ${num_heads}`;
  find(".heads").append(
    ...Array.from({ length: depth * num_heads }, () => element("canvas", { width: CELLS, height: CELLS, "aria-hidden": "true" })),
  );
  drawCurves(find(".curves"), [], "training loss");
  drawHeads(Array.from({ length: depth }, () => new Float32Array(num_heads * tokens * tokens).fill(1)), imageOf(0));
  listen();
}
