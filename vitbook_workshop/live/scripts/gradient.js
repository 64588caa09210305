"use strict";

/* How every number of the model has to move: forward.js backwards, line by line, and the steps that follow from it.

   `grads` has the model's structure. Each function adds to it, takes the gradient of the loss with respect to what a
   function of forward.js returned, and returns that with respect to what it was given. */

/**
 * Gradients of the loss with respect to every number of a plain model. dLogits (B, K); trace as `forward` filled it.
 * @type {(model: Model, grads: Model, trace: Trace, dLogits: Matrix) => void}
 */
function backward(model, grads, trace, dLogits) {
  const B = dLogits.rows;
  const dFeatures = linearBack(model.head, grads.head, trace.features, dLogits);
  const dz = tokensBack(model, grads, trace, featuresBack(model, dFeatures)); // Eqs. 4 to 2
  embedBack(model, grads.embedding, trace, dz, B); // Eq. 1
}

/** From the last LayerNorm to the tokens before the first block. (B·T, D) → (B·T, D). */
function tokensBack(model, grads, trace, dTokens) {
  let dz = layerNormBack(model.norm, grads.norm, trace.z, dTokens); // Eq. 4
  for (let i = model.config.depth - 1; i >= 0; i--) {
    const block = model.encoder.blocks[i];
    dz = encoderBlockBack(block, grads.encoder.blocks[i], model.config, trace.blocks[i], dz); // Eqs. 3 and 2
  }
  return dz;
}

function encoderBlockBack(block, grads, config, trace, dz) {
  const dActive = linearBack(block.mlp.fc2, grads.mlp.fc2, trace.active, dz);
  const dHidden = geluBack(trace.hidden, dActive);
  const dNorm2 = linearBack(block.mlp.fc1, grads.mlp.fc1, trace.norm2, dHidden);
  const dMiddle = add(layerNormBack(block.norm2, grads.norm2, trace.middle, dNorm2), dz); // Eq. 3
  const dHeads = linearBack(block.attn.proj, grads.attn.proj, trace.heads, dMiddle);
  const dNorm1 = linearBack(block.attn.qkv, grads.attn.qkv, trace.norm1, attendBack(config, trace, dHeads));
  return add(layerNormBack(block.norm1, grads.norm1, trace.x, dNorm1), dMiddle); // Eq. 2
}

/** From the heads to queries, keys and values: O = PV, P = softmax(QKᵀ/√d). (B·T, D) → (B·T, 3D). */
function attendBack({ num_heads, dim, tokens: T }, { qkv, weights }, dHeads) {
  const [B, width] = [qkv.rows / T, dim / num_heads];
  const space = qkv.space;
  const dQkv = space.matrix(qkv.rows, qkv.columns);
  for (let b = 0; b < B; b++) {
    for (let head = 0; head < num_heads; head++) {
      const of = (all) => [0, 1, 2].map((i) => all.part(b * T, T, i * dim + head * width, width));
      const [[q, k, v], [dq, dk, dv]] = [of(qkv), of(dQkv)];
      const p = weights.part((b * num_heads + head) * T, T);
      const dO = dHeads.part(b * T, T, head * width, width);
      space.forNow(() => {
        transposedTimes(p, dO, dv); // PᵀdO
        const ds = timesTransposed(dO, v); // dP = dO·Vᵀ, and through the softmax
        space.kernels.softmaxBack(ds.at, p.at, T, T, 1 / Math.sqrt(width));
        times(ds, k, dq);
        transposedTimes(ds, q, dk);
      });
    }
  }
  return dQkv;
}

/** To the class token's row, or to every patch its share of the mean. (B, D) → (B·T, D). */
function featuresBack({ config }, dFeatures) {
  const { tokens: T, pool, prefix } = config;
  const dz = dFeatures.space.matrix(dFeatures.rows * T, dFeatures.columns);
  for (let b = 0; b < dFeatures.rows; b++) {
    const own = dFeatures.part(b, 1);
    if (pool === "class") {
      dz.part(b * T, 1).set(own);
    } else {
      const share = own.data.map((value) => value / (T - prefix));
      for (let i = prefix; i < T; i++) {
        dz.space.numbers.set(share, dz.first(b * T + i));
      }
    }
  }
  return dz;
}

/** To class token, positions and patch projection: each image adds its own. */
function embedBack({ config, embedding }, grads, trace, dz, B) {
  const { tokens: T, prefix } = config;
  const dPatches = dz.space.matrix(B * (T - prefix), dz.columns);
  for (let b = 0; b < B; b++) {
    const own = dz.part(b * T, T);
    if (!config.withoutPositions) {
      add(grads.positions.pos_embed, own);
    }
    if (prefix) {
      add(grads.cls_token, own.part(0, 1));
    }
    dPatches.part(b * (T - prefix), T - prefix).set(own.part(prefix, T - prefix));
  }
  linearBack(embedding.patch_embed.proj, grads.patch_embed.proj, trace.patches, dPatches);
}

/**
 * y = x·Wᵀ + b: dW = dyᵀ·x, db = Σ dy, dx = dy·W.
 * @type {(layer: Layer, grads: Layer, x: Matrix, dy: Matrix) => Matrix}
 */
function linearBack({ weight }, grads, x, dy) {
  transposedTimes(dy, x, grads.weight);
  if (grads.bias) {
    dy.space.kernels.sumRows(grads.bias.at, dy.at, dy.stride, dy.rows, dy.columns);
  }
  return times(dy, weight);
}

function layerNormBack({ weight }, grads, x, dy) {
  const dx = x.space.room(x.rows, x.columns);
  const { kernels } = x.space;
  kernels.layerNormBack(dx.at, grads.weight.at, grads.bias.at, dy.at, x.at, weight.at, x.rows, x.columns, LAYER_NORM_EPS);
  return dx;
}

function geluBack(x, dy) {
  const dx = x.space.room(x.rows, x.columns);
  x.space.kernels.geluBack(dx.at, dy.at, x.at, x.rows * x.columns);
  return dx;
}

/**
 * Mean cross-entropy, in nats, with a share of the target spread evenly over the classes, and its gradient.
 * @param {Matrix} logits
 * @param {ArrayLike<number>} labels
 * @param {number} smoothing
 * @returns {{loss: number, dLogits: Matrix}}
 */
function crossEntropy(logits, labels, smoothing) {
  const [B, K] = [logits.rows, logits.columns];
  const dLogits = logits.space.matrix(B, K);
  const [given, out] = [logits.data.slice(), dLogits.data];
  let loss = 0;
  for (let b = 0; b < B; b++) {
    const row = given.subarray(b * K, (b + 1) * K);
    const most = Math.max(...row);
    const total = row.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
    for (let k = 0; k < K; k++) {
      const target = smoothing / K + (k === labels[b] ? 1 - smoothing : 0);
      loss -= (target * (row[k] - most - Math.log(total))) / B;
      out[b * K + k] = (Math.exp(row[k] - most) / total - target) / B;
    }
  }
  return { loss, dLogits };
}

/** Every tensor of a model: [name, matrix], named as in Python. */
function named(part, name = "") {
  return part instanceof Matrix
    ? [[name, part]]
    : Object.entries(part).flatMap(([key, value]) =>
        key === "config" ? [] : named(value, name ? `${name}.${key}` : key),
      );
}

/** A model's twin of zeros. */
function zerosLike(part) {
  return part instanceof Matrix
    ? part.space.matrix(part.rows, part.columns)
    : Object.fromEntries(Object.entries(part).filter(([key]) => key !== "config").map(([key, value]) => [key, zerosLike(value)]));
}

/** AdamW, Loshchilov and Hutter 2019, with torch's defaults where no other are given; only matrices of linear maps decay. */
class AdamW {
  /**
   * @param {Model} model
   * @param {number} decay
   * @param {{beta2?: number, clip?: number}} settings clip: the length to which longer gradients are cut
   */
  constructor(model, decay, { beta2 = 0.999, clip = 1 } = {}) {
    this.decay = decay;
    this.beta2 = beta2;
    this.clip = clip;
    this.steps = 0;
    this.grads = zerosLike(model);
    const [means, squares] = [named(zerosLike(model)), named(zerosLike(model))];
    const gradients = named(this.grads);
    this.tensors = named(model).map(([name, w], i) => ({
      name, w, g: gradients[i][1], m: means[i][1], v: squares[i][1],
      decays: name.endsWith(".weight") && !/norm|classes/.test(name),
    }));
  }

  /** Move every number by the gradients that were added up since the last step, and forget them. */
  step(rate) {
    const [beta1, eps, { beta2, clip }] = [0.9, 1e-8, this];
    this.steps++;
    let squares = 0;
    for (const { g } of this.tensors) {
      squares += g.space.kernels.squares(g.at, 0, g.rows * g.columns);
    }
    const shorten = Math.min(1, clip / (Math.sqrt(squares) + 1e-6));
    const step = rate / (1 - beta1 ** this.steps);
    const growth = 1 / Math.sqrt(1 - beta2 ** this.steps);
    for (const { w, g, m, v, decays } of this.tensors) {
      const keep = decays ? 1 - rate * this.decay : 1;
      w.space.kernels.adamw(
        w.at, g.at, m.at, v.at, w.rows * w.columns, shorten, keep, beta1, beta2, step, growth, eps,
      );
      g.data.fill(0);
    }
  }
}

/** The learning rate at a step as a share of its peak: a straight line up, then half a cosine down to 0. */
function warmupCosine(step, steps, warmup) {
  return step < warmup ? (step + 1) / warmup : 0.5 * (1 + Math.cos((Math.PI * (step - warmup)) / (steps - warmup)));
}

/** Random weights, as vit.py draws them: the first loss is ln K. Returns tensors for `buildModel`. */
function freshTensors(config, random) {
  const { dim: D, depth, mlp_dim, patch_size, channels, num_classes: K, class_token } = config;
  const patches = (config.image_size[0] / patch_size) * (config.image_size[1] / patch_size);
  const tensors = new Map();
  const set = (name, shape, draw) =>
    tensors.set(name, { shape, numbers: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, draw) });
  const xavier = (ins, outs) => () => (2 * random() - 1) * Math.sqrt(6 / (ins + outs));
  const normal = (std) => () => std * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const [zero, one] = [() => 0, () => 1];
  const linear = (name, outs, ins, draw) => {
    set(`${name}.weight`, [outs, ins], draw);
    set(`${name}.bias`, [outs], zero);
  };
  const norm = (name) => {
    set(`${name}.weight`, [D], one);
    set(`${name}.bias`, [D], zero);
  };
  if (class_token) {
    set("embedding.cls_token", [1, 1, D], zero);
  }
  const numbers = channels * patch_size ** 2;
  linear("embedding.patch_embed.proj", D, numbers, normal(Math.sqrt(1 / numbers)));
  set("embedding.positions.pos_embed", [1, patches + (class_token ? 1 : 0), D], normal(0.02));
  for (let i = 0; i < depth; i++) {
    const block = `encoder.blocks.${i}`;
    norm(`${block}.norm1`);
    linear(`${block}.attn.qkv`, 3 * D, D, xavier(D, D)); // Q, K and V each separately
    linear(`${block}.attn.proj`, D, D, xavier(D, D));
    norm(`${block}.norm2`);
    linear(`${block}.mlp.fc1`, mlp_dim, D, xavier(D, mlp_dim));
    linear(`${block}.mlp.fc2`, D, mlp_dim, xavier(mlp_dim, D));
  }
  norm("norm");
  linear("head", K, D, zero);
  return tensors;
}

/** Random numbers in 0 … 1 that a seed fixes (mulberry32). */
function randomFrom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** 0 … count − 1 in a random order. */
function shuffled(count, random) {
  const order = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
