"use strict";

/* What came after the Vision Transformer of 2021, as in modern.py and under the same names; and DeiT's second token, as in
   distillation.py. `partsOf` chooses, once for each model, what takes the place of the functions of forward.js. */

const QK_NORM_EPS = 1e-6;
const ACTIVATIONS = { gelu, gelu_tanh: geluTanh, quick_gelu: quickGelu, relu, silu };

/**
 * The functions of a model of some class of Python's. Scales of LayerScale go into the maps that they belong to.
 * @param {string} type "VisionTransformer", "ModernViT" or "DistilledVisionTransformer"
 * @param {Model} model from `buildModel`
 */
function partsOf(type, model) {
  if (type !== "ModernViT") {
    return type === "DistilledVisionTransformer" ? { ...PLAIN, read: readBoth } : PLAIN;
  }
  const { norm, norm_eps: eps, swiglu, activation, attention_pool, embedding_norm } = model.config;
  for (const { attn, mlp } of Object.values(model.encoder.blocks)) {
    [attn.proj, mlp.fc2].filter(({ gamma }) => gamma).forEach(scaleRows);
  }
  const normalize = norm === "rms" ? rmsNorm : layerNorm;
  return {
    ...PLAIN,
    norm: (x, layer) => normalize(x, layer, eps),
    project: (attn, x, change) => turnAndNormalize(attn, project(attn, x), model, change),
    activation: swiglu ? swiGlu : ACTIVATIONS[activation],
    ...(attention_pool && { features: attentionPooling }),
    ...(embedding_norm && { embed: normalizedEmbed }),
  };
}

/** ModernEmbedding.forward: a LayerNorm before the first block. */
function normalizedEmbed(model, images, change, trace) {
  return layerNorm(embed(model, images, change, trace), model.embedding.norm, model.config.norm_eps);
}

/** LayerScale: γ ⊙ (xWᵀ + b) is a linear map, too. */
function scaleRows({ weight, bias, gamma }) {
  gamma.data.forEach((scale, i) => {
    weight.part(i, 1).data.forEach((w, j, row) => (row[j] = scale * w));
    bias.data[i] *= scale;
  });
}

/** x / √(mean x² + ε) · γ of each row. */
function rmsNorm(x, { weight }, eps) {
  const y = x.copy();
  for (let i = 0; i < x.rows; i++) {
    rmsInPlace(y.part(i, 1).data, weight.data, eps);
  }
  return y;
}

function rmsInPlace(row, gain, eps) {
  const mean = row.reduce((sum, value) => sum + value * value, 0) / row.length;
  row.forEach((value, j) => (row[j] = (value / Math.sqrt(mean + eps)) * gain[j]));
}

/**
 * ModernAttention.project: each query and each key normalized, then turned by the angles of its token. (B·T, 3D), in place.
 * Without positions nothing is turned; tokens that were shuffled after their positions keep their angles.
 */
function turnAndNormalize({ q_norm, k_norm }, qkv, { config, angles }, change) {
  const { dim, num_heads, tokens: T, prefix } = config;
  const width = dim / num_heads;
  const token = (place) => (change.after && place >= prefix ? prefix + change.after[place - prefix] : place);
  const turned = angles && !change.withoutPositions;
  for (let i = 0; i < qkv.rows; i++) {
    const theta = turned && angles.part(token(i % T), 1).data;
    for (let head = 0; head < 2 * num_heads; head++) {
      const vector = qkv.part(i, 1, head * width, width).data;
      const norm = head < num_heads ? q_norm : k_norm;
      norm && rmsInPlace(vector, norm.weight.data, QK_NORM_EPS);
      theta && rotate(vector, theta);
    }
  }
  return qkv;
}

/** (a, b) → (a cos θ − b sin θ, a sin θ + b cos θ), where entry i is paired with entry i + d/2, in place. */
function rotate(x, angles) {
  angles.forEach((theta, i) => {
    const [a, b, cos, sin] = [x[i], x[i + angles.length], Math.cos(theta), Math.sin(theta)];
    x[i] = a * cos - b * sin;
    x[i + angles.length] = a * sin + b * cos;
  });
}

/** Each number through a function, as a new matrix. */
function each(x, of) {
  const y = x.copy();
  y.data.forEach((value, i, all) => (all[i] = of(value)));
  return y;
}

const sigmoid = (z) => 1 / (1 + Math.exp(-z));

/** max(x, 0). */
function relu(x) {
  return each(x, (z) => Math.max(z, 0));
}

/** x·σ(x). */
function silu(x) {
  return each(x, (z) => z * sigmoid(z));
}

/** x·σ(1.702x), CLIP's. */
function quickGelu(x) {
  return each(x, (z) => z * sigmoid(1.702 * z));
}

/** The GELU's form with tanh, Google's. */
function geluTanh(x) {
  return each(x, (z) => 0.5 * z * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (z + 0.044715 * z ** 3))));
}

/** SiLU(xW) ⊙ xV, where xW and xV lie side by side. (B·T, 2H) → (B·T, H). */
function swiGlu(x) {
  const H = x.columns / 2;
  const y = x.space.room(x.rows, H);
  for (let i = 0; i < x.rows; i++) {
    const [gate, value] = [x.part(i, 1, 0, H).data, x.part(i, 1, H, H).data];
    y.part(i, 1).data.forEach((_, j, row) => (row[j] = gate[j] * sigmoid(gate[j]) * value[j]));
  }
  return y;
}

/** One learned query looks at all patches; an MLP on what it finds. (B·T, D) → (B, D). */
function attentionPooling(model, z, B) {
  const { probe, attn, norm, mlp: layers } = model.pooling;
  const { dim, num_heads, prefix, tokens: T, norm_eps, activation } = model.config;
  const width = dim / num_heads;
  const y = z.space.matrix(B, dim);
  const q = linear(probe, attn.query);
  for (let b = 0; b < B; b++) {
    const patches = z.part(b * T + prefix, T - prefix);
    const [k, v] = [linear(patches, attn.key), linear(patches, attn.value)];
    for (let head = 0; head < num_heads; head++) {
      const [qh, kh, vh] = [q, k, v].map((all) => all.part(0, all.rows, head * width, width));
      times(softmax(timesTransposed(qh, kh), 1 / Math.sqrt(width)), vh, y.part(b, 1, head * width, width));
    }
  }
  const found = linear(y, attn.proj);
  return add(mlp(layers, layerNorm(found, norm, norm_eps), { parts: { activation: ACTIVATIONS[activation] } }, {}), found);
}

/** The mean of what both heads say, each of its own token; without heads, of both tokens. (B·T, D) → (B, K) or (B, D). */
function readBoth({ config, head, head_dist }, z, B) {
  const of = (token) => new Matrix(z.space, z.part(token, 1).at, B, z.columns, config.tokens * z.columns);
  const [label, teacher] = head ? [linear(of(0), head), linear(of(1), head_dist)] : [of(0).copy(), of(1).copy()];
  return each(add(label, teacher), (sum) => sum / 2);
}
