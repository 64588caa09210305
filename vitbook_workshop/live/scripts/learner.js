"use strict";

/* The thread in which a model learns the digits. What it needs stands before it in the same script. */

const RECIPE = { size: 64, peak: 3e-3, decay: 0.3, smoothing: 0.1, affine: 1 }; // chapter 10's
const BATCH = RECIPE.size; // in which test images are asked

/**
 * @typedef {{images: Float32Array, labels: Uint8Array}} Split
 * @type {{space: Workspace, config: any, mean: number[], std: number[], train: Split, test: Split, empty: number,
 *   running: number, model?: Model, optimizer?: AdamW}}
 */
let school;

const answers = {
  /** The data set: images as bytes in base64, (N, 8·8), labels, mean and standard deviation. */
  begin({ config, train, test, mean, std }) {
    const unpack = ({ images, labels }) => ({
      images: Float32Array.from(fromBase64(images), (level) => (level / 255 - mean[0]) / std[0]),
      labels: fromBase64(labels),
    });
    const space = new Workspace();
    school = { space, config, mean, std, train: unpack(train), test: unpack(test), empty: space.top, running: 0 };
  },

  /**
   * Train from random weights, which `seed` fixes; after each epoch, news of how far it is. A share of the digits is
   * repeated until there are as many as in the whole set, so that an epoch has as many steps.
   * @param {{seed: number, epochs: number, withoutPositions?: boolean, share?: number, recipe?: Partial<typeof RECIPE>}} question
   * @param {(news: object) => void} news
   */
  async train({ seed, epochs, withoutPositions = false, share = 1, recipe = {} }, news) {
    const { size, peak, decay, smoothing, affine } = { ...RECIPE, ...recipe };
    const own = ++school.running; // an earlier training stops
    const random = randomFrom(seed);
    start(withoutPositions, freshTensors(school.config, random), decay);
    const { train } = school;
    const some = shareOf(train.labels, share);
    const perEpoch = Math.ceil(train.labels.length / size);
    const steps = epochs * perEpoch;
    const began = performance.now();
    news({ ...progress(0), loss: Math.log(school.config.num_classes), steps, seconds: 0, step: 0 });
    for (let epoch = 1; epoch <= epochs; epoch++) {
      const order = shuffled(train.labels.length, random).map((n) => some[n % some.length]);
      let total = 0;
      for (let i = 0; i < perEpoch; i++) {
        const chosen = order.slice(i * size, (i + 1) * size);
        const images = new Float32Array((chosen.length * train.images.length) / train.labels.length);
        chosen.forEach((n, b) => images.set(moved(picture(train, n), random, affine), (b * images.length) / chosen.length));
        const rate = peak * warmupCosine((epoch - 1) * perEpoch + i, steps, Math.floor(steps / 10));
        total += chosen.length * learn(images, chosen.map((n) => train.labels[n]), smoothing, rate);
        if (i % 4 === 3) {
          await new Promise((resolve) => setTimeout(resolve)); // messages may have come, such as to stop
          if (own !== school.running) {
            return { stopped: epoch - 1 };
          }
        }
      }
      const seconds = (performance.now() - began) / 1000;
      news({ ...progress(epoch), loss: total / train.labels.length, steps, step: epoch * perEpoch, seconds });
    }
    return { stopped: epochs };
  },

  stop() {
    school.running++;
  },

  /** How many digits a share is, and the test accuracy of taking the label of the nearest one, pixel by pixel. */
  nearest({ share }) {
    const { train, test } = school;
    const some = shareOf(train.labels, share);
    const right = test.labels.filter((label, n) => label === train.labels[nearest(picture(test, n), some)]);
    return { count: some.length, accuracy: right.length / test.labels.length };
  },

  /** Test accuracy, 0 to 1, of the model as it is, with a change. */
  accuracy({ change }) {
    return accuracy(change);
  },

  /** What the model says of one image, as bytes: logits, and attention weights of every block. */
  read({ levels, change }) {
    const { mean, std } = school;
    return look(Float32Array.from(levels, (level) => (level / 255 - mean[0]) / std[0]), change);
  },

  /** For the tests: given weights, the gradients of one batch, then all weights after steps with the same rate. */
  follow({ tensors, images, labels, smoothing, rates, decay }) {
    start(false, readSafetensors(fromBase64(tensors)), decay);
    const losses = rates.length ? [] : [slopes(images[0], labels[0], smoothing)];
    const gradients = named(school.optimizer.grads).map(([name, g]) => [name, g.data.slice()]);
    rates.forEach((rate, i) => losses.push(learn(images[i], labels[i], smoothing, rate)));
    return { losses, gradients, weights: named(school.model).map(([name, w]) => [name, w.data.slice()]) };
  },
};

function start(withoutPositions, tensors, decay) {
  school.space.top = school.empty; // an earlier model is given up
  school.model = buildModel(school.space, { ...school.config, withoutPositions }, tensors);
  school.optimizer = new AdamW(school.model, decay);
}

/** One step: forward, loss, backward, and every number moves. Returns the loss. */
function learn(images, labels, smoothing, rate) {
  const loss = slopes(images, labels, smoothing);
  school.optimizer.step(rate);
  return loss;
}

/** The loss of a batch; its gradients are added up. Images (B, 64) as numbers. */
function slopes(images, labels, smoothing) {
  const { space, model, optimizer } = school;
  return space.forNow(() => {
    const trace = { blocks: [] };
    const logits = forward(model, batch(images, labels.length), standing(), trace);
    const { loss, dLogits } = crossEntropy(logits, labels, smoothing);
    backward(model, optimizer.grads, trace, dLogits);
    return loss;
  });
}

/** A model trained without positions is asked without them, too. */
function standing(change = {}) {
  return school.model.config.withoutPositions ? { ...change, withoutPositions: true } : change;
}

function batch(images, count) {
  const x = school.space.matrix(count, images.length / count);
  x.data.set(images);
  return x;
}

function picture({ images, labels }, n) {
  const size = images.length / labels.length;
  return images.subarray(n * size, (n + 1) * size);
}

function accuracy(change) {
  const { space, model, test, config } = school;
  const size = test.images.length / test.labels.length;
  let right = 0;
  for (let from = 0; from < test.labels.length; from += BATCH) {
    const labels = test.labels.subarray(from, from + BATCH);
    space.forNow(() => {
      const images = test.images.subarray(from * size, (from + labels.length) * size);
      const logits = forward(model, batch(images, labels.length), standing(change)).data.slice();
      labels.forEach((label, b) => {
        const row = logits.subarray(b * config.num_classes, (b + 1) * config.num_classes);
        right += indexOfMost(row) === label ? 1 : 0;
      });
    });
  }
  return right / test.labels.length;
}

/** Where the largest number is. Never by `row.indexOf`: after it, Firefox runs WebAssembly's SIMD hundreds of times
 *  slower on some processors, as it leaves the upper halves of their vector registers in use. */
function indexOfMost(row) {
  return row.reduce((most, value, k) => (value > row[most] ? k : most), 0);
}

function look(image, change) {
  const { space, model } = school;
  return space.forNow(() => {
    const trace = { blocks: [] };
    const logits = forward(model, batch(image, 1), standing(change), trace).data.slice();
    return { logits, attention: trace.blocks.map(({ weights }) => weights.data.slice()) };
  });
}

/** How far the model is: test accuracy, attention on the first test image, and how alike the positions are. */
function progress(epoch) {
  const { space, model, test } = school;
  const table = model.embedding.positions.pos_embed;
  const first = model.config.prefix;
  const alike = space.forNow(() => cosines(table.part(first, table.rows - first)).data.slice());
  return { epoch, accuracy: accuracy(), ...look(picture(test, 0)), alike };
}

/** The first images of each class, `share` of them and one at least, by number. */
function shareOf(labels, share) {
  const [counts, taken] = [new Uint16Array(school.config.num_classes), new Uint16Array(school.config.num_classes)];
  labels.forEach((label) => counts[label]++);
  return [...labels.keys()].filter((n) => taken[labels[n]]++ < Math.max(1, Math.round(share * counts[labels[n]])));
}

/** The number of the training image that is nearest to this one, of some. */
function nearest(image, some) {
  let [found, least] = [-1, Infinity];
  for (const n of some) {
    const distance = picture(school.train, n).reduce((sum, level, i) => sum + (level - image[i]) ** 2, 0);
    if (distance < least) {
      [found, least] = [n, distance];
    }
  }
  return found;
}

/** `random_affine`: turned by up to 10°, moved by up to 8 %, zoomed by up to 10 %, times strength; the border is repeated. */
function moved(image, random, strength) {
  const [height, width] = school.config.image_size;
  const within = (limit) => (2 * random() - 1) * limit * strength;
  const [angle, zoom, right, down] = [within(Math.PI / 18), 1 + within(0.1), within(0.08) * width, within(0.08) * height];
  const [cos, sin] = [zoom * Math.cos(angle), zoom * Math.sin(angle)];
  const inside = (place, size) => Math.min(Math.max(place, 0), size - 1);
  return image.map((_, i) => {
    const [x, y] = [(i % width) - (width - 1) / 2, Math.floor(i / width) - (height - 1) / 2];
    const column = cos * x - sin * y + right + (width - 1) / 2;
    const row = sin * x + cos * y + down + (height - 1) / 2;
    const [c, r] = [Math.floor(column), Math.floor(row)];
    const [u, v] = [column - c, row - r];
    const [above, below] = [inside(r, height) * width, inside(r + 1, height) * width];
    const [before, after] = [inside(c, width), inside(c + 1, width)];
    const along = (line) => (1 - u) * image[line + before] + u * image[line + after];
    return (1 - v) * along(above) + v * along(below);
  });
}
