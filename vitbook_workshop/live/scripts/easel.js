"use strict";

/* The thread in which a painter learns the digits. What it needs stands before it in the same script. */

const RECIPE = { size: 32, peak: 4e-3, decay: 0.01, dropped: 0.1, beta2: 0.95, clip: Infinity }; // chapter 29's
const MEMORY = 0.99; // of the running mean

/**
 * @typedef {{images: Float32Array, labels: Uint8Array}} Split
 * @type {{space: Workspace, config: any, train: Split, empty: number, running: number, model?: Model, mean?: Model,
 *   optimizer?: AdamW}}
 */
let easel;

const answers = {
  /** The data set: images as bytes in base64, (N, 8·8), and labels. Black becomes −1, white 1. */
  begin({ config, train }) {
    const images = Float32Array.from(fromBase64(train.images), (level) => level / 127.5 - 1);
    const space = new Workspace();
    easel = { space, config, train: { images, labels: fromBase64(train.labels) }, empty: space.top, running: 0 };
  },

  /**
   * Train from random weights, which `seed` fixes; after each epoch, news of how far it is: the loss, and what the same
   * noise becomes.
   * @param {{seed: number, epochs: number, label: number}} question
   * @param {(news: object) => void} news
   */
  async train({ seed, epochs, label }, news) {
    const own = ++easel.running; // an earlier training stops
    const random = randomFrom(seed);
    start(freshPainter(easel.config, random));
    const { images, labels } = easel.train;
    const [count, pixels] = [labels.length, images.length / labels.length];
    const perEpoch = Math.ceil(count / RECIPE.size);
    const steps = epochs * perEpoch;
    const shown = { seed, label, steps: 10, guidance: 2 };
    const began = performance.now();
    news({ epoch: 0, seconds: 0, loss: NaN, image: answers.paint(shown).at(-1).guess });
    for (let epoch = 1; epoch <= epochs; epoch++) {
      const order = shuffled(count, random);
      let total = 0;
      for (let i = 0; i < perEpoch; i++) {
        const chosen = order.slice(i * RECIPE.size, (i + 1) * RECIPE.size);
        const batch = new Float32Array(chosen.length * pixels);
        chosen.forEach((n, b) => batch.set(images.subarray(n * pixels, (n + 1) * pixels), b * pixels));
        const times = chosen.map(() => 1 / (1 + Math.exp(0.8 - 0.8 * normalFrom(random))));
        const noise = batch.map(() => normalFrom(random));
        const none = easel.config.num_classes;
        const told = chosen.map((n) => (random() < RECIPE.dropped ? none : labels[n]));
        const step = (epoch - 1) * perEpoch + i;
        const rate = RECIPE.peak * warmupCosine(step, steps, Math.floor(steps / 20));
        total += chosen.length * learn({ images: batch, noise, times, labels: told }, rate);
        if (i % 8 === 7) {
          await new Promise((resolve) => setTimeout(resolve)); // messages may have come, such as to stop
          if (own !== easel.running) {
            return { stopped: epoch - 1 };
          }
        }
      }
      const seconds = (performance.now() - began) / 1000;
      news({ epoch, seconds, loss: total / count, image: answers.paint(shown).at(-1).guess });
    }
    return { stopped: epochs };
  },

  stop() {
    easel.running++;
  },

  /** From the noise that `seed` fixes to an image: z and the guess at each step. */
  paint({ seed, label, steps, guidance }) {
    const random = randomFrom(seed + 1);
    const [height, width] = easel.config.image_size;
    const noise = Float32Array.from({ length: height * width }, () => normalFrom(random));
    return walk(easel.mean, noise, label, steps, guidance);
  },

  /** For the tests: given weights, the gradients of one batch, then all weights after steps with the same rates. */
  follow({ tensors, batches, rates }) {
    start(readSafetensors(fromBase64(tensors)));
    const losses = rates.length ? [] : [slopes(batches[0])];
    const gradients = named(easel.optimizer.grads).map(([name, g]) => [name, g.data.slice()]);
    rates.forEach((rate, i) => losses.push(learn(batches[i], rate)));
    const walked = walk(easel.mean, Float32Array.from(batches[0].noise.slice(0, 64)), 3, 4, 2);
    const numbers = (model) => named(model).map(([name, w]) => [name, w.data.slice()]);
    return { losses, gradients, weights: numbers(easel.model), mean: numbers(easel.mean), walked };
  },
};

function start(tensors) {
  const { space, empty, config } = easel;
  space.top = empty; // an earlier model is given up
  const kept = [...tensors];
  easel.model = buildPainter(space, config, kept);
  easel.mean = buildPainter(space, config, kept);
  easel.optimizer = new AdamW(easel.model, RECIPE.decay, RECIPE);
}

/** One step: guess, loss, backward, every number moves, and the mean follows. Returns the loss. */
function learn(batch, rate) {
  const { model, mean, optimizer } = easel;
  const loss = slopes(batch);
  optimizer.step(rate);
  const share = 1 - Math.min(MEMORY, (1 + optimizer.steps) / (10 + optimizer.steps));
  const weights = named(model);
  named(mean).forEach(([, kept], i) => {
    const [to, from] = [kept.data, weights[i][1].data];
    for (let j = 0; j < to.length; j++) {
      to[j] += share * (from[j] - to[j]);
    }
  });
  return loss;
}

/** The loss of a batch; its gradients are added up. */
function slopes({ images, noise, times, labels }) {
  const { space, model, optimizer } = easel;
  return space.forNow(() => {
    const z = space.room(labels.length, images.length / labels.length);
    z.data.set(images.map((x, i) => times[Math.floor(i / z.columns)] * (x - noise[i]) + noise[i]));
    const trace = { blocks: [] };
    const { loss, dGuess } = velocityLoss(guess(model, z, { times, labels }, trace), images, times);
    paintBack(model, optimizer.grads, trace, dGuess);
    return loss;
  });
}
