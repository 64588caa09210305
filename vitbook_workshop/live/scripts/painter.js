"use strict";

/* The painter, as in painting.py: a plain model without a class token, with time and class in front of its patches and a
   linear map back to pixels; its gradients; and the steps from noise to an image. Images are rows, (B, C·H·W). */

const LEAST = 0.05; // 1 − t counts as at least this much where something is divided by it

/**
 * What the model is told of each image: its time, and its class, the last of which is "none in particular".
 * @typedef {{times: number[], labels: number[]}} Told
 */

/** From tensors named as in Python, with or without "backbone." before those of the plain model. */
function buildPainter(space, config, tensors) {
  const plain = /** @type {[string, any][]} */ (
    [...tensors].map(([name, tensor]) => [name.replace(/^backbone\./, ""), tensor])
  );
  const model = buildModel(space, config, plain);
  Object.assign(model.config, { prefix: 2, tokens: model.config.tokens + 2 });
  model.parts = { ...PLAIN, embed: embedNoisy };
  return model;
}

/**
 * The guess of the clean images. (B, C·H·W) → (B, C·H·W).
 * @type {(model: Model, z: Matrix, told: Told, trace?: Trace & Record<string, any>) => Matrix}
 */
function guess(model, z, told, trace = { blocks: [] }) {
  const all = tokens(model, z, /** @type {any} */ (told), trace);
  trace.read = patchesOf(model.config, all);
  return unpatchify(linear(trace.read, model.to_pixels), model.config);
}

/** Time, class, and patches with their positions. (B, C·H·W) → (B·T, D). */
function embedNoisy({ config, embedding, time, classes }, images, { times, labels }, trace) {
  const T = config.tokens;
  const x = patchEmbed(embedding.patch_embed, images, config, trace); // (B·N, D)
  trace.told = { labels, codes: timeCodes(x.space, times, config.dim) };
  const timed = linear(trace.told.codes, time); // (B, D)
  const z = x.space.room(images.rows * T, x.columns);
  labels.forEach((label, b) => {
    z.part(b * T, 1).set(timed.part(b, 1));
    z.part(b * T + 1, 1).set(classes.weight.part(label, 1));
    const own = z.part(b * T + 2, T - 2);
    own.set(x.part(b * (T - 2), T - 2));
    add(own, embedding.positions.pos_embed);
  });
  return z;
}

/** Sines, then cosines, of 100·t at falling frequencies. (B) → (B, D). */
function timeCodes(space, times, dim) {
  const codes = space.matrix(times.length, dim);
  const { data } = codes;
  times.forEach((t, b) => {
    for (let i = 0; i < dim / 2; i++) {
      const angle = t * 100 * 10000 ** ((-2 * i) / dim);
      data[b * dim + i] = Math.sin(angle);
      data[b * dim + dim / 2 + i] = Math.cos(angle);
    }
  });
  return codes;
}

/** Without the two tokens in front. (B·T, D) → (B·N, D). */
function patchesOf({ tokens: T }, all) {
  const B = all.rows / T;
  const patches = all.space.room(B * (T - 2), all.columns);
  for (let b = 0; b < B; b++) {
    patches.part(b * (T - 2), T - 2).set(all.part(b * T + 2, T - 2));
  }
  return patches;
}

/** (B·N, C·P²) → (B, C·H·W), the inverse of `patchify`. */
function unpatchify(patches, { channels, patch_size: P, image_size: [height, width] }) {
  const columns = width / P;
  const N = (height / P) * columns;
  const images = patches.space.room(patches.rows / N, channels * height * width);
  const { numbers } = patches.space;
  for (let i = 0; i < patches.rows; i++) {
    const [b, n] = [Math.floor(i / N), i % N];
    for (let line = 0; line < channels * P; line++) {
      const row = Math.floor(line / P) * height + Math.floor(n / columns) * P + (line % P);
      const from = patches.first(i) + line * P;
      numbers.copyWithin(images.first(b) + row * width + (n % columns) * P, from, from + P);
    }
  }
  return images;
}

/**
 * Gradients of the loss with respect to every number of a painter, from that with respect to its guess (B, C·H·W).
 * @type {(model: Model, grads: Model, trace: any, dGuess: Matrix) => void}
 */
function paintBack(model, grads, trace, dGuess) {
  const { config } = model;
  const [height, width] = config.image_size;
  const [T, B] = [config.tokens, dGuess.rows];
  const dOut = patchify({ x: dGuess, channels: config.channels, height, width }, config.patch_size);
  const dRead = linearBack(model.to_pixels, grads.to_pixels, trace.read, dOut);
  const dTokens = dGuess.space.matrix(B * T, config.dim); // time and class are not read
  for (let b = 0; b < B; b++) {
    dTokens.part(b * T + 2, T - 2).set(dRead.part(b * (T - 2), T - 2));
  }
  const dz = tokensBack(model, grads, trace, dTokens);
  const dTimed = dGuess.space.room(B, config.dim);
  trace.told.labels.forEach((label, b) => {
    dTimed.part(b, 1).set(dz.part(b * T, 1));
    add(grads.classes.weight.part(label, 1), dz.part(b * T + 1, 1));
    add(grads.embedding.positions.pos_embed, dz.part(b * T + 2, T - 2));
  });
  linearBack(model.time, grads.time, trace.told.codes, dTimed);
  const { proj } = model.embedding.patch_embed;
  linearBack(proj, grads.embedding.patch_embed.proj, trace.patches, patchesOf(config, dz));
}

/** The mean squared error of the velocity, and its gradient with respect to the guess.
 * @type {(guessed: Matrix, images: ArrayLike<number>, times: number[]) => {loss: number, dGuess: Matrix}}
 */
function velocityLoss(guessed, images, times) {
  const dGuess = guessed.space.room(guessed.rows, guessed.columns);
  const [given, out] = [guessed.data, dGuess.data];
  let loss = 0;
  for (let i = 0; i < given.length; i++) {
    const left = Math.max(1 - times[Math.floor(i / guessed.columns)], LEAST);
    const error = (given[i] - images[i]) / left;
    loss += error ** 2 / given.length;
    out[i] = (2 * error) / left / given.length;
  }
  return { loss, dGuess };
}

/**
 * Euler's steps from noise to one image, with guidance: z and the guess at each. The last guess is the image.
 * @type {(model: Model, noise: Float32Array, label: number, steps: number, guidance: number) => {z: Float32Array, guess: Float32Array}[]}
 */
function walk(model, noise, label, steps, guidance) {
  const { space } = model.to_pixels.weight;
  const walked = [];
  let z = noise;
  for (let step = 0; step < steps; step++) {
    const t = step / steps;
    const guessed = space.forNow(() => {
      const both = space.room(2, z.length); // without the class, and with it
      both.part(0, 1).data.set(z);
      both.part(1, 1).data.set(z);
      const { data } = guess(model, both, { times: [t, t], labels: [model.config.num_classes, label] });
      return z.map((_, i) => data[i] + guidance * (data[z.length + i] - data[i]));
    });
    walked.push({ z, guess: guessed });
    z = z.map((value, i) => value + (guessed[i] - value) / (steps - step));
  }
  return walked;
}

/** Random weights as painting.py draws them: the first guess is 0 everywhere. */
function freshPainter(config, random) {
  const { dim: D, num_classes: K, patch_size, channels } = config;
  const tensors = freshTensors({ ...config, class_token: false }, random);
  tensors.delete("head.weight");
  tensors.delete("head.bias");
  const set = (name, shape, draw) =>
    tensors.set(name, { shape, numbers: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, draw) });
  const even = () => (2 * random() - 1) / Math.sqrt(D);
  set("time.weight", [D, D], even);
  set("time.bias", [D], even);
  set("classes.weight", [K + 1, D], () => 0.02 * normalFrom(random));
  set("to_pixels.weight", [channels * patch_size ** 2, D], () => 0);
  set("to_pixels.bias", [channels * patch_size ** 2], () => 0);
  return tensors;
}

/** One normally distributed number. */
function normalFrom(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
