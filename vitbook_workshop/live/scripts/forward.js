"use strict";

/* The Vision Transformer, as in vit.py: Equations 1 to 4 of Dosovitskiy et al. 2021, in the same order and under the same
   names. B images, T tokens in each, width D, h heads of width D/h; all tokens of a batch are the rows of one matrix.

   A `change` interferes with the model; without one, every number is torch's to rounding. A model's `parts` are the
   functions in which models differ: those of a plain model stand here, all others in modern.js. */

/**
 * @typedef {object} Change
 * @property {boolean} [withoutPositions] nothing is added to the tokens
 * @property {number[]} [before] the order of the patches' tokens before their positions are added: place i gets token before[i]
 * @property {number[]} [after] their order after that
 * @property {string[]} [removed] heads that say nothing, as "block.head": their output is zero
 * @property {{block: number, head: number, output: Matrix}} [carried] what one head gave for another image, (T, D/h)
 */

/**
 * What a change is in one block: the heads that it removes there, by number, and the one that it carries there.
 * @typedef {Omit<Change, "removed"> & {removed: Set<number>}} Here
 *
 * A linear map or a LayerNorm, and what each computation leaves behind.
 * @typedef {{weight: Matrix, bias?: Matrix}} Layer
 * @typedef {{blocks: Record<string, Matrix>[], features?: Matrix, z?: Matrix, patches?: Matrix}} Trace
 * @typedef {any} Model as `buildModel` made it: what it consists of has the names that it has in Python
 */

const LAYER_NORM_EPS = 1e-6;
const BATCH_NORM_EPS = 1e-5;
const PLAIN = { embed, norm: layerNorm, project, activation: gelu, features, read };

/**
 * Logits of the K classes. Images (B, C·H·W) → (B, K). `trace`, if given, is filled with all that was computed.
 * @type {(model: Model, images: Matrix, change?: Change, trace?: Trace) => Matrix}
 */
function forward(model, images, change = {}, trace = { blocks: [] }) {
  const z = tokens(model, images, change, trace);
  return model.parts.read(model, z, images.rows, trace);
}

/**
 * Every token after the last LayerNorm, class token first. (B, C·H·W) → (B·T, D).
 * @type {(model: Model, images: Matrix, change: Change, trace: Trace) => Matrix}
 */
function tokens(model, images, change, trace) {
  let z = model.parts.embed(model, images, change, trace); // Eq. 1
  Object.values(model.encoder.blocks).forEach((block, index) => {
    trace.blocks.push({ x: z });
    const carried = change.carried?.block === index ? change.carried : undefined;
    const here = { ...change, removed: headsOut(change, index), carried };
    z = encoderBlock(block, z, model, here, trace.blocks[index]); // Eqs. 2 and 3
  });
  trace.z = z;
  return model.parts.norm(z, model.norm); // Eq. 4
}

/**
 * z₀ = [x_class; x_p¹E; …; x_pᴺE] + E_pos. (B, C·H·W) → (B·T, D). Eq. 1.
 * @type {(model: Model, images: Matrix, change: Change, trace: Trace) => Matrix}
 */
function embed({ config, embedding }, images, change, trace) {
  const { prefix, tokens: T } = config;
  const x = patchEmbed(embedding.patch_embed, images, config, trace); // (B·N, D)
  const N = T - prefix;
  const z = x.space.matrix(images.rows * T, x.columns);
  for (let b = 0; b < images.rows; b++) {
    const own = z.part(b * T, T);
    prefixTokens(embedding).forEach((token, i) => own.part(i, 1).set(token));
    own.part(prefix, N).set(inOrder(x.part(b * N, N), change.before));
    if (!change.withoutPositions) {
      add(own, embedding.positions.pos_embed);
    }
    own.part(prefix, N).set(inOrder(own.part(prefix, N), change.after));
  }
  return z;
}

/** The learned tokens before the patches, each (1, D). */
function prefixTokens({ cls_token, dist_token, register_tokens }) {
  const registers = Array.from({ length: register_tokens?.rows ?? 0 }, (_, i) => register_tokens.part(i, 1));
  return [cls_token, dist_token, ...registers].filter(Boolean);
}

/** Patches of the image, or of the map that a stem makes of it, as tokens. (B, C·H·W) → (B·N, D). */
function patchEmbed(layer, images, config, trace) {
  const { channels, patch_size, stem } = config;
  let map = { x: images, channels, height: config.image_size[0], width: config.image_size[1] };
  let size = patch_size;
  if (stem.length) {
    map = convStem(layer.stem, map, stem);
    size = (patch_size * map.height) / config.image_size[0];
    layer = layer.patch_embed;
  }
  trace.patches = patchify(map, size);
  return linear(trace.patches, layer.proj);
}

/** (B, C·H·W) → (B·N, C·P²), the numbers of a patch in the order channel, row, column. */
function patchify({ x, channels, height, width }, size) {
  const [rows, columns] = [height / size, width / size];
  const patches = x.space.matrix(x.rows * rows * columns, channels * size * size);
  const { numbers } = x.space;
  let to = patches.first();
  for (let b = 0; b < x.rows; b++) {
    for (let n = 0; n < rows * columns; n++) {
      for (let c = 0; c < channels; c++) {
        for (let p = 0; p < size; p++) {
          const row = Math.floor(n / columns) * size + p;
          const first = x.first() + ((b * channels + c) * height + row) * width + (n % columns) * size;
          numbers.copyWithin(to, first, first + size);
          to += size;
        }
      }
    }
  }
  return patches;
}

/** 3×3 convolutions, each with its BatchNorm, as it is after training, and a ReLU. */
function convStem(layers, map, widths) {
  widths.forEach((width, index) => {
    const stride = index && width === widths[index - 1] ? 1 : 2;
    map = convolution(map, layers[3 * index].weight, stride);
    batchNormAndRelu(map, layers[3 * index + 1]);
  });
  return map;
}

/** A 3×3 convolution: the numbers under the kernel at each place are one column, and the kernels one matrix. */
function convolution({ x, channels, height, width }, kernels, stride) {
  const [rows, columns] = [Math.ceil(height / stride), Math.ceil(width / stride)];
  const out = x.space.matrix(x.rows, kernels.rows * rows * columns);
  for (let b = 0; b < x.rows; b++) {
    const image = { x: x.part(b, 1), channels, height, width };
    const made = new Matrix(x.space, out.part(b, 1).at, kernels.rows, rows * columns, rows * columns);
    x.space.forNow(() => times(kernels, underKernel(image, stride, rows, columns), made));
  }
  return { x: out, channels: kernels.rows, height: rows, width: columns };
}

/** What lies under a 3×3 kernel, zeros beyond the border. (1, C·H·W) → (C·9, places). */
function underKernel({ x, channels, height, width }, stride, rows, columns) {
  const under = x.space.matrix(channels * 9, rows * columns);
  const [from, to] = [x.data, under.data];
  for (let c = 0; c < channels; c++) {
    for (let k = 0; k < 9; k++) {
      const [down, right] = [Math.floor(k / 3) - 1, (k % 3) - 1];
      for (let i = 0; i < rows; i++) {
        const row = i * stride + down;
        if (row < 0 || row >= height) {
          continue;
        }
        for (let j = right < 0 ? 1 : 0; j < columns && j * stride + right < width; j++) {
          to[((c * 9 + k) * rows + i) * columns + j] = from[(c * height + row) * width + j * stride + right];
        }
      }
    }
  }
  return under;
}

/** max(0, γ·(x − μ)/σ + β) of each channel, in place. */
function batchNormAndRelu({ x, channels, height, width }, { weight, bias, running_mean, running_var }) {
  const { numbers } = x.space;
  const of = (vector, c) => numbers[vector.first() + c];
  for (let b = 0; b < x.rows; b++) {
    for (let c = 0; c < channels; c++) {
      const scale = of(weight, c) / Math.sqrt(of(running_var, c) + BATCH_NORM_EPS);
      const shift = of(bias, c) - of(running_mean, c) * scale;
      const first = x.first(b) + c * height * width;
      for (let i = first; i < first + height * width; i++) {
        numbers[i] = Math.max(0, numbers[i] * scale + shift);
      }
    }
  }
}

/**
 * Look around, then think, each added to what was there. (B·T, D) → (B·T, D).
 * @type {(block: Model, x: Matrix, model: Model, here: Here, trace: Record<string, Matrix>) => Matrix}
 */
function encoderBlock(block, x, model, here, trace) {
  trace.norm1 = model.parts.norm(x, block.norm1);
  x = add(attend(block.attn, trace.norm1, model, here, trace), x); // Eq. 2
  trace.middle = x;
  trace.norm2 = model.parts.norm(x, block.norm2);
  return add(mlp(block.mlp, trace.norm2, model, trace), x); // Eq. 3
}

/**
 * Multi-head self-attention. (B·T, D) → (B·T, D). Eqs. 5–8.
 * @type {(attn: Model, x: Matrix, model: Model, here: Here, trace: Record<string, Matrix>) => Matrix}
 */
function attend(attn, x, { config, parts }, here, trace) {
  const { num_heads, dim, tokens: T } = config;
  const [B, width] = [x.rows / T, dim / num_heads];
  const qkv = (trace.qkv = parts.project(attn, x, here)); // (B·T, 3D): queries, keys and values of every head
  const weights = (trace.weights = x.space.matrix(B * num_heads * T, T));
  const heads = (trace.heads = x.space.matrix(B * T, dim));
  for (let b = 0; b < B; b++) {
    for (let head = 0; head < num_heads; head++) {
      const [q, k, v] = [0, 1, 2].map((i) => qkv.part(b * T, T, i * dim + head * width, width));
      const p = weights.part((b * num_heads + head) * T, T);
      softmax(timesTransposed(q, k, p), 1 / Math.sqrt(width)); // softmax(QKᵀ/√d)
      if (!here.removed.has(head)) {
        times(p, v, heads.part(b * T, T, head * width, width)); // · V
      }
    }
    if (here.carried) {
      heads.part(b * T, T, here.carried.head * width, width).set(here.carried.output);
    }
  }
  return linear(heads, attn.proj);
}

/** Queries, keys and values. (B·T, D) → (B·T, 3D). */
function project(attn, x) {
  return linear(x, attn.qkv);
}

/**
 * Two linear maps with a GELU between, on each token separately. (B·T, D) → (B·T, D).
 * @type {(layers: {fc1: Layer, fc2: Layer}, x: Matrix, model: Model, trace: Record<string, Matrix>) => Matrix}
 */
function mlp({ fc1, fc2 }, x, { parts }, trace) {
  trace.hidden = linear(x, fc1);
  trace.active = parts.activation(trace.hidden);
  return linear(trace.active, fc2);
}

/** One vector for each image: the class token, or the mean of the patches without it. (B·T, D) → (B, D). */
function features({ config }, z, B) {
  const { prefix, tokens: T } = config;
  const out = z.space.matrix(B, z.columns);
  for (let b = 0; b < B; b++) {
    if (config.pool === "class") {
      out.part(b, 1).set(z.part(b * T, 1));
    } else {
      const ones = z.space.matrix(1, T - prefix);
      ones.data.fill(1 / (T - prefix));
      times(ones, z.part(b * T + prefix, T - prefix), out.part(b, 1));
    }
  }
  return out;
}

/** What the head makes of the features: logits; without a head, the features. (B·T, D) → (B, K) or (B, D). */
function read(model, z, B, trace = {}) {
  trace.features = model.parts.features(model, z, B);
  return model.head ? linear(trace.features, model.head) : trace.features;
}

/**
 * x·Wᵀ + b. (m, in) → (m, out).
 * @type {(x: Matrix, layer: Layer) => Matrix}
 */
function linear(x, { weight, bias }) {
  const y = bias ? x.space.room(x.rows, weight.rows) : x.space.matrix(x.rows, weight.rows);
  if (bias) {
    x.space.kernels.repeat(y.at, bias.at, y.rows, y.columns);
  }
  return timesTransposed(x, weight, y);
}

function layerNorm(x, { weight, bias }, eps = LAYER_NORM_EPS) {
  const y = x.space.room(x.rows, x.columns);
  x.space.kernels.layerNorm(y.at, x.at, weight.at, bias.at, x.rows, x.columns, eps);
  return y;
}

function gelu(x) {
  const y = x.space.room(x.rows, x.columns);
  x.space.kernels.gelu(y.at, x.at, x.rows * x.columns);
  return y;
}

/** All tokens before the first block and after each. L + 1 of (B·T, D). */
const residualStream = (trace) => [...trace.blocks.map(({ x }) => x), trace.z];

/** Cosine similarity of every two rows. (n, D) → (n, n). */
function cosines(x) {
  const unit = x.copy();
  for (let i = 0; i < x.rows; i++) {
    const row = unit.part(i, 1).data;
    const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
    row.forEach((value, j) => (row[j] = value / length));
  }
  return timesTransposed(unit, unit);
}

/** The logits that the model would give if its tokens were the last ones already, without and with each block. (L + 1, K). */
function logitLens(model, trace, B = 1) {
  return residualStream(trace).map((z) => model.parts.read(model, model.parts.norm(z, model.norm), B));
}

/** Row i becomes row order[i]; as it is without an order. */
function inOrder(x, order) {
  if (!order) {
    return x;
  }
  const y = x.space.matrix(x.rows, x.columns);
  order.forEach((from, to) => y.part(to, 1).set(x.part(from, 1)));
  return y;
}

/** The heads of one block that a change removes. */
function headsOut({ removed = [] }, block) {
  return new Set(removed.map((name) => name.split(".").map(Number)).filter(([b]) => b === block).map(([, head]) => head));
}
