"use strict";

/* The model's own thread: what a page may ask. What it needs stands before it in the same script,
   with KERNELS, which is kernels.wasm in base64. */

/** @type {{space: Workspace, model: Model, preprocessing: any}} */
let loaded;
const photographs = new Map(); // name → what the model sees of it, Pixels

const answers = {
  /**
   * A model: its class in Python, its config, how it wants to see images, and safetensors files in base64, of which each
   * has some of its tensors.
   */
  load({ type, config, preprocessing, tensors }) {
    const space = new Workspace();
    const model = buildModel(space, config, allTensors(tensors));
    loaded = { space, model: Object.assign(model, { parts: partsOf(type, model) }), preprocessing };
    photographs.clear();
  },

  /** A photograph, by the name that it is to have: pixels of a canvas. Returns what the model will see of it. */
  see({ name, image }) {
    photographs.set(name, view(fromCanvas(image), { ...loaded.model.config, ...loaded.preprocessing }));
    return photographs.get(name);
  },

  /** What the model says of a photograph, with and without a change; `inside`: with all that was computed on the way. */
  ask({ name, change, inside }) {
    const began = performance.now();
    return { ...answer(photographs.get(name), change, inside), milliseconds: performance.now() - began };
  },

  /** The probabilities without each head in turn. */
  withoutEach({ name, change }) {
    const { depth, num_heads } = loaded.model.config;
    return Array.from({ length: depth * num_heads }, (_, i) => {
      const removed = [...(change.removed ?? []), `${Math.floor(i / num_heads)}.${i % num_heads}`];
      return answer(photographs.get(name), { ...change, removed }).logits;
    });
  },

  /** The logits with no patch covered, then with each one alone: (N + 1, K), all images in one batch. */
  coverEach({ name }) {
    const { space, model, preprocessing } = loaded;
    const { tokens: T, prefix } = model.config;
    return space.forNow(() => {
      const numbers = normalize(photographs.get(name), preprocessing);
      const images = space.matrix(1 + T - prefix, numbers.length);
      for (let i = 0; i < images.rows; i++) {
        images.part(i, 1).data.set(coverPatches(numbers.slice(), model.config, i ? [i - 1] : []));
      }
      return forward(model, images).data.slice();
    });
  },
};

/** @typedef {{from: string, block: number, head: number}} Carried the name of a photograph, and a head */

/**
 * What a head gives for a photograph, before W_O: (T, D/h).
 * @param {Carried} carried
 */
function headOutput({ from, block, head }) {
  const { space, model, preprocessing } = loaded;
  const numbers = normalize(photographs.get(from), preprocessing);
  const images = space.matrix(1, numbers.length);
  images.data.set(numbers);
  const trace = { blocks: [] };
  forward(model, images, {}, trace);
  const width = model.config.dim / model.config.num_heads;
  return trace.blocks[block].heads.part(0, model.config.tokens, head * width, width);
}

/** Of one file after the other: together they may be more than a page could hold twice. */
function* allTensors(files) {
  for (const file of files) {
    yield* readSafetensors(fromBase64(file));
  }
}

/**
 * Logits, attention weights (L, h, T, T), queries, keys and values (L, T, 3D), the logit lens (L + 1, K), and cosine
 * similarities of the tokens before the first block and after each (L + 1, T, T), as arrays.
 * @param {Pixels} image
 * @param {Omit<Change, "carried"> & {pixels?: number[], covered?: number[], carried?: Carried}} interference a shuffled
 *   order of patches, covered patches, and a head whose output is that for another photograph
 */
function answer(image, interference = {}, inside = false) {
  const { pixels, covered = [], carried, ...change } = interference;
  const { space, model, preprocessing } = loaded;
  const { config } = model;
  return space.forNow(() => {
    const seen = pixels ? shufflePatches(image, config.patch_size, pixels) : image;
    const numbers = coverPatches(normalize(seen, preprocessing), config, covered);
    const images = space.matrix(1, numbers.length);
    images.data.set(numbers);
    const trace = { blocks: [] };
    const given = carried && { ...carried, output: headOutput(carried) };
    const logits = forward(model, images, { ...change, carried: given }, trace).data.slice();
    return {
      logits,
      attention: trace.blocks.map(({ weights }) => weights.data.slice()),
      qkv: trace.blocks.map(({ qkv }) => qkv.data.slice()),
      lens: logitLens(model, trace).map((one) => one.data.slice()),
      alike: residualStream(trace).map((z) => cosines(z).data.slice()),
      ...(inside && { trace: copied(trace) }),
    };
  });
}

/** What a forward pass has left behind, as rows, columns and numbers. @param {Trace} trace */
function copied({ blocks, ...ends }) {
  const kept = ({ rows, columns, data }) => ({ rows, columns, data: data.slice() });
  const all = (matrices) => Object.fromEntries(Object.entries(matrices).map(([name, matrix]) => [name, kept(matrix)]));
  return { ...all(ends), blocks: blocks.map(all) };
}
