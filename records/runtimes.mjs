// What ONNX Runtime Web makes of a file, in Node: node runtimes.mjs FOLDER MODEL DATA. For runtimes.py.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, model, data] = process.argv.slice(2);
const ort = createRequire(`${folder}/`)("onnxruntime-web");
ort.env.wasm.numThreads = 1;
const numbers = (name) => new Float32Array(new Uint8Array(readFileSync(data.replace(/npz$/, name))).buffer);
const images = numbers("images"), logits = numbers("logits");
const perImage = images.length / 8;
const of = (batch) => new ort.Tensor("float32", images.slice(0, batch * perImage), [batch, 3, Math.sqrt(perImage / 3), Math.sqrt(perImage / 3)]);

let found;
try {
  const session = await ort.InferenceSession.create(readFileSync(model), { executionProviders: ["wasm"] });
  const run = async (batch) => (await session.run({ images: of(batch) })).logits.data;
  const got = await run(8);
  found = { largest_difference: got.reduce((most, value, i) => Math.max(most, Math.abs(value - logits[i])), 0) };
  images[3 * Math.sqrt(perImage / 3) + 4] = NaN;
  found.answers_nan = (await run(1)).every(Number.isFinite);
  images[3 * Math.sqrt(perImage / 3) + 4] = 0;
  for (const batch of [1, 8]) {
    const times = [];
    for (let i = 0; i < 18; i++) {
      const began = process.cpuUsage();
      await run(batch);
      const spent = process.cpuUsage(began);
      if (i >= 3) times.push((spent.user + spent.system) / 1000);
    }
    found[`milliseconds_of_${batch}`] = times.sort((a, b) => a - b)[7];
  }
} catch (error) {
  found = { refused: String(error).split(/\s+/).join(" ").slice(0, 300) };
}
console.log("\n" + JSON.stringify(found));
