"use strict";

/* What both figures of chapter 10 draw of a model that learns. */

const [LEFT, WIDE, HIGH] = [44, 270, 72]; // where the curves begin, and the size of each of the two

/** Loss above, accuracy below, epoch by epoch, in a picture that already has its size; dashed without positions. */
function drawCurves(svg, runs, lossName) {
  const longest = Math.max(1, ...runs.map(({ epochs }) => epochs));
  const parts = [
    { key: "losses", top: 8, most: Math.LN10, ticks: { 0: 0, "ln 10": Math.LN10 }, title: lossName, down: 14 },
    { key: "accuracies", top: 104, most: 1, ticks: { 0: 0, "100 %": 1 }, title: "test digits right", down: HIGH - 6 },
  ];
  svg.replaceChildren(
    element("text", { x: LEFT, y: 189 }, "epoch"),
    element("text", { x: LEFT + WIDE, y: 189, "text-anchor": "end" }, runs.length ? String(longest) : ""),
    ...parts.flatMap(({ key, top, most, ticks, title, down }) => {
      const y = (value) => top + HIGH * (1 - Math.min(1.05, value / most));
      return [
        ...Object.entries(ticks).flatMap(([text, value]) => [
          element("line", { x1: LEFT, x2: LEFT + WIDE, y1: y(value), y2: y(value), class: "tick" }),
          element("text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, text),
        ]),
        element("text", { x: LEFT + WIDE, y: top + down, "text-anchor": "end" }, title),
        ...runs.map((run) =>
          element("polyline", {
            points: run[key].map((value, i) => `${LEFT + (WIDE * i) / longest},${y(value)}`).join(" "),
            class: run.name === "without positions" ? "without" : "with",
          }),
        ),
      ];
    }),
  );
}

/** A gray square image, row by row, clear where a head attends to it: in proportion to the largest of its weights. */
function drawAttended(canvas, levels, weights) {
  const context = canvas.getContext("2d");
  const [cells, grid] = [levels, weights].map(({ length }) => Math.sqrt(length));
  const most = Math.max(...weights);
  context.clearRect(0, 0, cells, cells);
  levels.forEach((level, cell) => {
    const [x, y] = [cell % cells, Math.floor(cell / cells)];
    const patch = Math.floor((y * grid) / cells) * grid + Math.floor((x * grid) / cells);
    context.globalAlpha = 0.12 + (0.88 * weights[patch]) / most;
    context.fillStyle = `rgb(${level} ${level} ${level})`;
    context.fillRect(x, y, 1, 1);
  });
}

/** Square maps, beside each other and in rows, of numbers from −1 (faint) to 1 (full). */
function drawMaps(canvas, numbers, maps, across = Math.sqrt(maps)) {
  const context = canvas.getContext("2d");
  const size = Math.sqrt(numbers.length / maps); // of a map, in numbers
  const side = canvas.width / across;
  const small = (0.9 * side) / size;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = getComputedStyle(canvas).color;
  numbers.forEach((number, i) => {
    const [map, place] = [Math.floor(i / size ** 2), i % size ** 2];
    context.globalAlpha = Math.min(1, (1 + number) / 2);
    context.fillRect(
      (map % across) * side + (place % size) * small,
      Math.floor(map / across) * side + Math.floor(place / size) * small,
      small,
      small,
    );
  });
}
