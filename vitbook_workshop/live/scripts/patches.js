"use strict";

/* The small figure of chapter 6: a photograph cut into patches of a size that the reader chooses. */

const SIZES = [4, 8, 16, 32, 64]; // the sides of a patch, in pixels
const ENLARGED = 4; // pixels of the board for one of the photograph

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {unknown} _ it needs no thread
 * @param {{src: string, title: string, credit: string}} photograph
 */
async function patches(root, _, photograph) {
  const find = (selector) => root.querySelector(selector);
  const board = find(".cut");
  const image = Object.assign(new Image(), { src: photograph.src });
  await image.decode();
  const side = image.naturalWidth;
  const whole = Object.assign(document.createElement("canvas"), { width: side, height: side }).getContext("2d", {
    willReadFrequently: true,
  });
  whole.drawImage(image, 0, 0);
  board.width = board.height = side * ENLARGED;
  let [x, y] = [0.55, 0.4]; // what is pointed at, as shares of the side

  function show(aloud = false) {
    const P = SIZES[find("[name=size]").value];
    const grid = side / P;
    const [column, row] = [x, y].map((share) => Math.min(grid - 1, Math.floor(share * grid)));
    const { data } = whole.getImageData(column * P, row * P, P, P);
    const mean = [0, 1, 2].map((channel) => {
      let sum = 0;
      for (let i = channel; i < data.length; i += 4) {
        sum += data[i];
      }
      return sum / P ** 2;
    });
    draw(P, grid, row, column);
    const one = find(".one");
    one.width = one.height = P;
    one.getContext("2d").drawImage(whole.canvas, column * P, row * P, P, P, 0, 0, P, P);
    find("output").textContent = String(P);
    find("[name=size]").setAttribute("aria-valuetext", `${P} pixels, ${grid ** 2} tokens`);
    const lines = {
      "Tokens, N = HW/P²": grid ** 2,
      "Numbers in a token, 3P²": 3 * P ** 2,
      "Scores in one head, N²": grid ** 4,
    };
    find("tbody").replaceChildren(
      ...Object.entries(lines).map(([name, count]) =>
        element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, count.toLocaleString("en"))),
      ),
    );
    const said =
      `Token ${row * grid + column}, in row ${row} and column ${column}: the mean of its red, green and blue is ` +
      `${mean.map((level) => level.toFixed(1)).join(", ")}.`;
    say(find(".sentence"), said, aloud);
  }

  /** The photograph, cut, and the patch that is pointed at. */
  function draw(P, grid, row, column) {
    const context = board.getContext("2d");
    const style = getComputedStyle(find(".figure"));
    context.imageSmoothingEnabled = false;
    context.drawImage(whole.canvas, 0, 0, board.width, board.height);
    context.strokeStyle = style.getPropertyValue("--surface");
    context.lineWidth = P > 4 ? 3 : 1.5;
    context.beginPath();
    for (let i = 0; i <= grid; i++) {
      const at = i * P * ENLARGED;
      context.moveTo(at, 0);
      context.lineTo(at, board.height);
      context.moveTo(0, at);
      context.lineTo(board.width, at);
    }
    context.stroke();
    for (const { color, width } of [
      { color: "--surface", width: 14 },
      { color: "--query", width: 8 },
    ]) {
      context.strokeStyle = style.getPropertyValue(color);
      context.lineWidth = width;
      context.strokeRect(column * P * ENLARGED, row * P * ENLARGED, P * ENLARGED, P * ENLARGED);
    }
  }

  find("[name=size]").addEventListener("input", () => show());
  onDrag(board, (event) => {
    const box = board.getBoundingClientRect();
    [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((share) =>
      Math.min(0.999, Math.max(0, share)),
    );
    show();
  });
  onArrows(board, (right, down) => {
    const grid = side / SIZES[find("[name=size]").value];
    const moved = (share, step) => (Math.min(grid - 1, Math.max(0, Math.floor(share * grid) + step)) + 0.5) / grid;
    [x, y] = [moved(x, right), moved(y, down)];
    show(true);
  });
  find(".speed").textContent = photograph.credit;
  show();
}
