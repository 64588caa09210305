"use strict";

/* A pad on which a reader draws by mouse, finger or keys: what `ask` and `train` share. */

const BROAD = 12.8; // strokes of a pad have this part of its width

/**
 * @typedef {{color: string, points: number[][]}} Stroke its points are [x, y], each 0 … 1
 */

/** Strokes, each point where `place` has it. @param {Stroke[]} strokes */
function drawStrokes(context, strokes, width, place) {
  Object.assign(context, { lineWidth: width, lineCap: "round", lineJoin: "round" });
  for (const { color, points: [first, ...others] } of strokes) {
    context.strokeStyle = color;
    context.beginPath();
    context.moveTo(...place(first));
    for (const point of others.length ? others : [first]) {
      context.lineTo(...place(point));
    }
    context.stroke();
  }
}

/**
 * Make a canvas a pad. `lifted` is called whenever the pen leaves the paper.
 * @param {HTMLCanvasElement} canvas
 * @param {() => void} lifted
 * @param {{ink: () => string, paper: () => string}} colors of the next stroke, and of the paper
 */
function drawingPad(canvas, lifted, { ink, paper }) {
  /** @type {Stroke[]} */
  const strokes = [];
  const pen = { x: 0.5, y: 0.3, down: false, seen: false };
  const begin = (point) => strokes.push({ color: ink(), points: [point] });

  /** The drawing alone, on any canvas. */
  function paint(context, width, height) {
    context.fillStyle = paper();
    context.fillRect(0, 0, width, height);
    drawStrokes(context, strokes, width / BROAD, ([x, y]) => [x * width, y * height]);
  }

  /** The drawing on the pad, with the pen where keys move it. */
  function show() {
    const context = canvas.getContext("2d");
    paint(context, canvas.width, canvas.height);
    if (pen.seen) {
      context.fillStyle = getComputedStyle(canvas).getPropertyValue("--query");
      context.beginPath();
      context.arc(pen.x * canvas.width, pen.y * canvas.height, pen.down ? 10 : 5, 0, 7);
      context.fill();
    }
  }

  function clear() {
    strokes.length = 0;
    pen.down = false;
    show();
  }

  onDrag(canvas, (event) => {
    const box = canvas.getBoundingClientRect();
    const point = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    event.type === "pointerdown" ? begin(point) : strokes.at(-1).points.push(point);
    show();
  });
  canvas.addEventListener("lostpointercapture", lifted);
  canvas.addEventListener("keydown", (event) => {
    if (event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      Object.assign(pen, { down: !pen.down, seen: true });
      pen.down ? begin([pen.x, pen.y]) : lifted();
      show();
    }
  });
  onArrows(canvas, (right, down) => {
    const within = (number) => Math.min(1, Math.max(0, number));
    Object.assign(pen, { x: within(pen.x + right / 16), y: within(pen.y + down / 16), seen: true });
    if (pen.down) {
      strokes.at(-1).points.push([pen.x, pen.y]);
    }
    show();
  });
  show();
  return { strokes, paint, show, clear };
}
