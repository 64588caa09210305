"use strict";

/* The small figure of chapter 7: how similar the positions of all places are to that of one. */

/**
 * @param {ShadowRoot} root the figure's HTML
 * @param {unknown} _ it needs no thread
 * @param {{grid: number, tables: Record<string, string>}} positions from `packed_places`: cosine similarities in hundredths
 */
async function places(root, _, { grid, tables }) {
  const find = (selector) => root.querySelector(selector);
  const kinds = Object.fromEntries(Object.entries(tables).map(([name, text]) => [name, wholeNumbers(text)]));
  const board = find(".board");
  let chosen = 3 * grid + 2;

  const nameOf = (place) => `row ${Math.floor(place / grid)}, column ${place % grid}`;
  const cells = Array.from({ length: grid ** 2 }, (_, place) => {
    const cell = element("div", { role: "gridcell" });
    cell.addEventListener("click", () => choose(place));
    return cell;
  });

  function choose(place) {
    chosen = place;
    show();
    cells[chosen].focus({ preventScroll: true });
  }

  function show() {
    const kind = find("[name=kind]:checked").value;
    const row = Array.from(kinds[kind].subarray(chosen * grid ** 2, (chosen + 1) * grid ** 2), (n) => n / 100);
    cells.forEach((cell, place) => {
      cell.textContent = decimal(row[place], 2);
      cell.style.setProperty("--share", `${Math.abs(100 * row[place])}%`);
      cell.classList.toggle("less", row[place] < 0);
      cell.setAttribute("aria-selected", String(place === chosen));
      cell.setAttribute("aria-label", `${nameOf(place)}: ${decimal(row[place], 2)}`);
      cell.tabIndex = place === chosen ? 0 : -1;
    });
    const others = row.map((_, place) => place).filter((place) => place !== chosen);
    const [most, least] = [Math.max, Math.min].map((end) => {
      const value = end(...others.map((place) => row[place]));
      return `${nameOf(others.find((place) => row[place] === value))} (${decimal(value, 2)})`;
    });
    find(".sentence").textContent = `From ${nameOf(chosen)}: most similar is ${most}, least similar ${least}.`;
  }

  for (let i = 0; i < grid; i++) {
    board.append(element("div", { role: "row" }, ...cells.slice(i * grid, (i + 1) * grid)));
  }
  find(".figure").style.cssText = `--columns: ${grid}; --ratio: 1`;
  find(".kinds").addEventListener("change", show);
  onArrows(board, (right, down) => {
    const [row, column] = [Math.floor(chosen / grid) + down, (chosen % grid) + right];
    if (Math.min(row, column) >= 0 && Math.max(row, column) < grid) {
      choose(row * grid + column);
    }
  });
  show();
}
