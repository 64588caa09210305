"use strict";

/* An image as the model wants to see it: `Preprocessing` of vitbook.pretrained, to the bit. A canvas resizes otherwise
   than Pillow, and a model whose image differs gives other logits, so this is Pillow's own resampling. */

/**
 * @typedef {object} Pixels
 * @property {number} width
 * @property {number} height
 * @property {Uint8ClampedArray} data red, green and blue of each pixel, row by row
 */

const BITS = 22; // of a weight's fraction: 32 bits hold it, a level of 8 bits, and the sum of all

const FILTERS = {
  bilinear: { support: 1, at: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: {
    support: 2,
    at(x) {
      x = Math.abs(x);
      const a = -0.5;
      return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    },
  },
};

/**
 * Pillow's Image.resize: an antialiased kernel along the rows, then along the columns, rounded to 8 bits after each.
 * Where the height shrinks by more than twice as much as the width, Pillow 13 takes the columns first.
 * @param {Pixels} image
 * @param {string} kernel "bicubic" or "bilinear"
 * @param {number[]} box left, top, right and bottom of the part that is resized; it may end between pixels
 * @returns {Pixels}
 */
function resize(image, width, height, kernel, box = [0, 0, image.width, image.height]) {
  const [left, top, right, bottom] = box.map(Math.fround); // as in Pillow
  const lost = image.height - height;
  const across = (one) => resizeRows(one, width, left, right, FILTERS[kernel]);
  const down = (one) => resizeColumns(one, height, top, bottom, FILTERS[kernel]);
  return lost > 0 && lost > 2 * (image.width - width) ? across(down(image)) : down(across(image));
}

function resizeRows({ width, height, data }, to, left, right, filter) {
  if (to === width && left === 0 && right === width) {
    return { width, height, data };
  }
  const taps = weigh(width, left, right, to, filter);
  return { width: to, height, data: blend(data, height, taps, { place: 3, line: 3 * width, to: 3, toLine: 3 * to }) };
}

function resizeColumns({ width, height, data }, to, top, bottom, filter) {
  if (to === height && top === 0 && bottom === height) {
    return { width, height, data };
  }
  const taps = weigh(height, top, bottom, to, filter);
  return { width, height: to, data: blend(data, width, taps, { place: 3 * width, line: 3, to: 3 * width, toLine: 3 }) };
}

/** For each place of the output, where its input begins, and whole numbers that weigh it: 2²² is 1. */
function weigh(size, from, to, places, { support, at }) {
  const scale = Math.fround(to - from) / places;
  const stretch = Math.max(scale, 1);
  return Array.from({ length: places }, (_, place) => {
    const center = from + (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - support * stretch + 0.5));
    const end = Math.min(size, Math.trunc(center + support * stretch + 0.5));
    const weights = Array.from({ length: end - first }, (_, i) => at((i + first - center + 0.5) * (1 / stretch)));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const whole = weights.map((weight) => {
      const share = (total === 0 ? weight : weight / total) * (1 << BITS);
      return Math.trunc(share + (share < 0 ? -0.5 : 0.5));
    });
    return { first, whole };
  });
}

/** Every line weighed: `place`, `line` and so on are how far apart places and lines lie in the input and the output. */
function blend(data, lines, taps, { place, line, to, toLine }) {
  const out = new Uint8ClampedArray(3 * lines * taps.length);
  taps.forEach(({ first, whole }, index) => {
    for (let l = 0; l < lines; l++) {
      for (let channel = 0; channel < 3; channel++) {
        let sum = 1 << (BITS - 1);
        let from = first * place + l * line + channel;
        for (const weight of whole) {
          sum += data[from] * weight;
          from += place;
        }
        out[index * to + l * toLine + channel] = sum >> BITS; // clamped to 0 … 255
      }
    }
  });
  return out;
}

/**
 * `Preprocessing.view`: the image in the model's size. crop: null for all of it, squeezed; 1 for the middle in the model's
 * proportions; below 1, or with scale_first, for the middle of what is scaled, or squeezed, to a larger size first.
 * @param {Pixels} image
 * @returns {Pixels}
 */
function view(image, { image_size: [height, width], crop, interpolation, scale_first, squeeze, channels }) {
  let seen;
  if (crop === null) {
    seen = resize(image, width, height, interpolation);
  } else if (crop === 1 && !scale_first) {
    seen = fit(image, width, height, interpolation);
  } else {
    let [rows, columns] = [height, width].map((side) => Math.trunc(side / crop + 1e-6));
    if (squeeze) {
      // both sides are as the model's
    } else if (rows * image.width >= columns * image.height) {
      columns = Math.floor((image.width * rows) / image.height);
    } else {
      rows = Math.floor((image.height * columns) / image.width);
    }
    seen = cut(resize(image, columns, rows, interpolation), even((columns - width) / 2), even((rows - height) / 2), width, height);
  }
  return channels === 1 ? gray(seen) : seen;
}

/** ImageOps.fit: the middle, as much as fits in these proportions, resized. */
function fit(image, width, height, interpolation) {
  const ratio = width / height;
  let [across, down] = [image.width, image.height];
  if (across / down > ratio) {
    across = ratio * down;
  } else if (across / down < ratio) {
    down = across / ratio;
  }
  const [left, top] = [(image.width - across) * 0.5, (image.height - down) * 0.5];
  return resize(image, width, height, interpolation, [left, top, left + across, top + down]);
}

function cut(image, left, top, width, height) {
  const data = new Uint8ClampedArray(3 * width * height);
  for (let row = 0; row < height; row++) {
    const from = 3 * ((top + row) * image.width + left);
    data.set(image.data.subarray(from, from + 3 * width), 3 * row * width);
  }
  return { width, height, data };
}

/** Python's round: halves to the even neighbor. */
function even(x) {
  return Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);
}

/** Pillow's convert("L"), in all three channels. */
function gray({ width, height, data }) {
  const level = (i) => (data[i] * 19595 + data[i + 1] * 38470 + data[i + 2] * 7471 + 0x8000) >> 16;
  return { width, height, data: data.map((_, i) => level(i - (i % 3))) };
}

/** The red, green and blue of a canvas's pixels, which have an opacity too. */
function fromCanvas({ width, height, data }) {
  const pixels = new Uint8ClampedArray(3 * width * height);
  for (let i = 0; i < width * height; i++) {
    pixels.set(data.subarray(4 * i, 4 * i + 3), 3 * i);
  }
  return { width, height, data: pixels };
}

/** `normalize`: (x/255 − mean)/std of each channel, in float32 as torch computes it. Pixels → (1, C·H·W) numbers. */
function normalize({ width, height, data }, { mean, std }) {
  const numbers = new Float32Array(mean.length * width * height);
  const { fround } = Math;
  for (let c = 0; c < mean.length; c++) {
    for (let i = 0; i < width * height; i++) {
      const share = fround(data[3 * i + c] / 255);
      numbers[c * width * height + i] = fround(share - fround(mean[c])) / fround(std[c]);
    }
  }
  return numbers;
}

/** Place n of the grid shows the pixels of patch order[n]. Pixels → pixels. */
function shufflePatches(image, size, order) {
  const columns = image.width / size;
  const data = new Uint8ClampedArray(image.data.length);
  order.forEach((from, to) => {
    for (let row = 0; row < size; row++) {
      const line = (n) => 3 * ((Math.floor(n / columns) * size + row) * image.width + (n % columns) * size);
      data.set(image.data.subarray(line(from), line(from) + 3 * size), line(to));
    }
  });
  return { ...image, data };
}

/** Patches painted over with the mean of the training images: zeros for the model. Numbers of (1, C·H·W), in place. */
function coverPatches(numbers, { image_size: [height, width], patch_size, channels }, patches) {
  const columns = width / patch_size;
  for (const patch of patches) {
    for (let c = 0; c < channels; c++) {
      for (let row = 0; row < patch_size; row++) {
        const first = (c * height + Math.floor(patch / columns) * patch_size + row) * width + (patch % columns) * patch_size;
        numbers.fill(0, first, first + patch_size);
      }
    }
  }
  return numbers;
}
