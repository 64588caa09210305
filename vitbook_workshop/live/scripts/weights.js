"use strict";

/* A safetensors file, as the package has it, to a model whose parts have the names that they have in Python. */

/**
 * Eight bytes with the header's length, the header in JSON, then the numbers, little-endian.
 * @param {Uint8Array} file
 * @returns {Generator<[string, {shape: number[], numbers: Float32Array}]>} all tensors of floating-point numbers
 */
function* readSafetensors(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (dtype === "F16" || dtype === "F32") {
      const [from, to] = data_offsets.map((offset) => 8 + length + offset);
      const bytes = file.slice(from, to).buffer;
      yield [name, { shape, numbers: dtype === "F16" ? fromHalf(new Uint16Array(bytes)) : new Float32Array(bytes) }];
    }
  }
}

/** Float16 to float32: 1 sign bit, 5 of the exponent, 10 of the fraction. All 65,536 of them, as there may be millions. */
const HALVES = Float32Array.from({ length: 65536 }, (_, half) => {
  const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
  const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : (fraction / 1024) * 2 ** -14;
  return half >> 15 ? -size : size;
});

function fromHalf(halves) {
  const numbers = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) {
    numbers[i] = HALVES[halves[i]];
  }
  return numbers;
}

/**
 * A model in a workspace: "encoder.blocks.0.norm1.weight" becomes model.encoder.blocks[0].norm1.weight, a Matrix.
 * @param {Record<string, any>} config the fields of ViTConfig
 * @param {Iterable<[string, {shape: number[], numbers: Float32Array}]>} tensors
 * @returns {any}
 */
function buildModel(space, config, tensors) {
  /** @type {any} */
  const model = { parts: PLAIN };
  for (const [name, { shape, numbers }] of tensors) {
    const [columns, rows] = shape.length === 4 ? [numbers.length / shape[0], shape[0]] : [shape.at(-1), numbers.length / shape.at(-1)];
    const matrix = space.matrix(rows, columns);
    matrix.data.set(numbers);
    const path = name.split(".");
    const last = path.pop();
    path.reduce((part, step) => (part[step] ??= {}), model)[last] = matrix;
  }
  const patches = (config.image_size[0] / config.patch_size) * (config.image_size[1] / config.patch_size);
  const prefix = prefixTokens(model.embedding).length;
  model.config = { ...config, prefix, tokens: prefix + patches };
  return model;
}

/** Base64, to which browsers give no bytes otherwise. */
function fromBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) {
    bytes[i] = letters.charCodeAt(i);
  }
  return bytes;
}
