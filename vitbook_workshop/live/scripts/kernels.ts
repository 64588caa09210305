// What costs time, for WebAssembly: four numbers at a time. The language is AssemblyScript; it is compiled by
// asc kernels.ts -o kernels.wasm --optimizeLevel 3 --noAssert --runtime stub --memoryBase 16 --importMemory --enable simd
//
// Addresses are in bytes, everything else counts numbers (float32). A matrix has its rows `stride` numbers apart.

/** C = A·B, or C += A·B where `add` is not 0. A (m, k), B (k, n), C (m, n).
 *  A's entry (i, l) lies rowA·i + stepA·l numbers from its address, so that A may be a transposed matrix. */
export function product(
  c: usize, strideC: i32, a: usize, rowA: i32, stepA: i32, b: usize, strideB: i32, m: i32, n: i32, k: i32, add: i32,
): void {
  let j = 0;
  for (; j + 8 <= n; j += 8) {
    let i = 0;
    for (; i + 4 <= m; i += 4) {
      block4x8(at(c, i * strideC + j), strideC, at(a, i * rowA), rowA, stepA, at(b, j), strideB, k, add);
    }
    for (; i < m; i++) {
      block1x8(at(c, i * strideC + j), at(a, i * rowA), stepA, at(b, j), strideB, k, add);
    }
  }
  for (; j < n; j++) { // the last columns, one by one
    for (let i = 0; i < m; i++) {
      let sum: f32 = add ? load<f32>(at(c, i * strideC + j)) : 0;
      for (let l = 0; l < k; l++) {
        sum += load<f32>(at(a, i * rowA + l * stepA)) * load<f32>(at(b, l * strideB + j));
      }
      store<f32>(at(c, i * strideC + j), sum);
    }
  }
}

/** Four rows and eight columns of C stay in registers while a column of A meets a row of B, k times. */
function block4x8(
  c: usize, strideC: i32, a: usize, rowA: i32, stepA: i32, b: usize, strideB: i32, k: i32, add: i32,
): void {
  const c1 = at(c, strideC), c2 = at(c1, strideC), c3 = at(c2, strideC);
  let s00 = f32x4.splat(0), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  if (add) {
    s00 = v128.load(c); s01 = v128.load(c, 16);
    s10 = v128.load(c1); s11 = v128.load(c1, 16);
    s20 = v128.load(c2); s21 = v128.load(c2, 16);
    s30 = v128.load(c3); s31 = v128.load(c3, 16);
  }
  const da = at(0, stepA), db = at(0, strideB), end = b + <usize>k * db;
  let a1 = at(a, rowA), a2 = at(a1, rowA), a3 = at(a2, rowA);
  while (b != end) {
    const b0 = v128.load(b), b1 = v128.load(b, 16);
    let x = v128.load32_splat(a);
    s00 = f32x4.add(s00, f32x4.mul(x, b0)); s01 = f32x4.add(s01, f32x4.mul(x, b1));
    x = v128.load32_splat(a1);
    s10 = f32x4.add(s10, f32x4.mul(x, b0)); s11 = f32x4.add(s11, f32x4.mul(x, b1));
    x = v128.load32_splat(a2);
    s20 = f32x4.add(s20, f32x4.mul(x, b0)); s21 = f32x4.add(s21, f32x4.mul(x, b1));
    x = v128.load32_splat(a3);
    s30 = f32x4.add(s30, f32x4.mul(x, b0)); s31 = f32x4.add(s31, f32x4.mul(x, b1));
    a += da; a1 += da; a2 += da; a3 += da; b += db;
  }
  v128.store(c, s00); v128.store(c, s01, 16);
  v128.store(c1, s10); v128.store(c1, s11, 16);
  v128.store(c2, s20); v128.store(c2, s21, 16);
  v128.store(c3, s30); v128.store(c3, s31, 16);
}

function block1x8(c: usize, a: usize, stepA: i32, b: usize, strideB: i32, k: i32, add: i32): void {
  let s0 = f32x4.splat(0), s1 = s0;
  if (add) { s0 = v128.load(c); s1 = v128.load(c, 16); }
  for (let l = 0; l < k; l++) {
    const x = v128.load32_splat(a);
    s0 = f32x4.add(s0, f32x4.mul(x, v128.load(b))); s1 = f32x4.add(s1, f32x4.mul(x, v128.load(b, 16)));
    a = at(a, stepA); b = at(b, strideB);
  }
  v128.store(c, s0); v128.store(c, s1, 16);
}

/** y (columns, rows) = x (rows, columns) with its rows laid as columns. */
export function transpose(y: usize, strideY: i32, x: usize, strideX: i32, rows: i32, columns: i32): void {
  for (let i = 0; i < rows; i++) {
    const row = at(x, i * strideX);
    let to = at(y, i);
    for (let j = 0; j < columns; j++) {
      store<f32>(to, load<f32>(at(row, j)));
      to = at(to, strideY);
    }
  }
}

/** Each row of y becomes x. */
export function repeat(y: usize, x: usize, rows: i32, columns: i32): void {
  for (let i = 0; i < rows; i++) memory.copy(at(y, i * columns), x, at(0, columns));
}

/** y += x, entry by entry. */
export function add(y: usize, x: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    v128.store(at(y, i), f32x4.add(v128.load(at(y, i)), v128.load(at(x, i))));
  }
}

/** sum (columns) += each row of x. */
export function sumRows(sum: usize, x: usize, stride: i32, rows: i32, columns: i32): void {
  for (let i = 0; i < rows; i++) {
    let j = 0;
    for (; j + 4 <= columns; j += 4) {
      v128.store(at(sum, j), f32x4.add(v128.load(at(sum, j)), v128.load(at(x, j))));
    }
    for (; j < columns; j++) store<f32>(at(sum, j), load<f32>(at(sum, j)) + load<f32>(at(x, j)));
    x = at(x, stride);
  }
}

/** y = γ·(x − μ)/σ + β for each row, μ and σ² its mean and variance, σ² + ε in place of σ². */
export function layerNorm(y: usize, x: usize, gain: usize, bias: usize, rows: i32, columns: i32, eps: f32): void {
  for (let i = 0; i < rows; i++) {
    const mean = sum(x, columns) / <f32>columns;
    const rate: f32 = 1 / sqrt<f32>(squares(x, mean, columns) / <f32>columns + eps);
    const m = f32x4.splat(mean), r = f32x4.splat(rate);
    let j = 0;
    for (; j + 4 <= columns; j += 4) {
      const unit = f32x4.mul(f32x4.sub(v128.load(at(x, j)), m), r);
      v128.store(at(y, j), f32x4.add(f32x4.mul(unit, v128.load(at(gain, j))), v128.load(at(bias, j))));
    }
    for (; j < columns; j++) {
      const unit = (load<f32>(at(x, j)) - mean) * rate;
      store<f32>(at(y, j), unit * load<f32>(at(gain, j)) + load<f32>(at(bias, j)));
    }
    x = at(x, columns); y = at(y, columns);
  }
}

/** From dy to dx, and what it adds to dγ and dβ: dx = (g − mean(g) − u·mean(g·u))/σ with g = γ·dy, u = (x − μ)/σ. */
export function layerNormBack(
  dx: usize, dGain: usize, dBias: usize, dy: usize, x: usize, gain: usize, rows: i32, columns: i32, eps: f32,
): void {
  for (let i = 0; i < rows; i++) {
    const mean = sum(x, columns) / <f32>columns;
    const rate: f32 = 1 / sqrt<f32>(squares(x, mean, columns) / <f32>columns + eps);
    const m = f32x4.splat(mean), r = f32x4.splat(rate);
    let fourG = f32x4.splat(0), fourGU = fourG, j = 0;
    for (; j + 4 <= columns; j += 4) {
      const u = f32x4.mul(f32x4.sub(v128.load(at(x, j)), m), r), d = v128.load(at(dy, j));
      const g = f32x4.mul(d, v128.load(at(gain, j)));
      fourG = f32x4.add(fourG, g); fourGU = f32x4.add(fourGU, f32x4.mul(g, u));
      v128.store(at(dGain, j), f32x4.add(v128.load(at(dGain, j)), f32x4.mul(d, u)));
      v128.store(at(dBias, j), f32x4.add(v128.load(at(dBias, j)), d));
    }
    let meanG = lanes(fourG), meanGU = lanes(fourGU);
    for (; j < columns; j++) {
      const u = (load<f32>(at(x, j)) - mean) * rate, d = load<f32>(at(dy, j)), g = d * load<f32>(at(gain, j));
      meanG += g; meanGU += g * u;
      store<f32>(at(dGain, j), load<f32>(at(dGain, j)) + d * u);
      store<f32>(at(dBias, j), load<f32>(at(dBias, j)) + d);
    }
    meanG /= <f32>columns; meanGU /= <f32>columns;
    const g = f32x4.splat(meanG), gu = f32x4.splat(meanGU);
    for (j = 0; j + 4 <= columns; j += 4) {
      const u = f32x4.mul(f32x4.sub(v128.load(at(x, j)), m), r);
      const own = f32x4.sub(f32x4.mul(v128.load(at(dy, j)), v128.load(at(gain, j))), g);
      v128.store(at(dx, j), f32x4.mul(f32x4.sub(own, f32x4.mul(u, gu)), r));
    }
    for (; j < columns; j++) {
      const u = (load<f32>(at(x, j)) - mean) * rate, g = load<f32>(at(dy, j)) * load<f32>(at(gain, j));
      store<f32>(at(dx, j), (g - meanG - u * meanGU) * rate);
    }
    x = at(x, columns); dx = at(dx, columns); dy = at(dy, columns);
  }
}

/** y = x·Φ(x), Φ the normal distribution's probability below x. */
export function gelu(y: usize, x: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const z = v128.load(at(x, i));
    v128.store(at(y, i), f32x4.mul(z, below(z, bell(z))));
  }
}

/** dx = dy·(Φ(x) + x·φ(x)), φ the normal density. */
export function geluBack(dx: usize, dy: usize, x: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const z = v128.load(at(x, i)), e = bell(z);
    const slope = f32x4.add(below(z, e), f32x4.mul(f32x4.mul(z, e), f32x4.splat(0.3989422804)));
    v128.store(at(dx, i), f32x4.mul(v128.load(at(dy, i)), slope));
  }
}

/** Each row of x becomes softmax(scale·x), in place. */
export function softmax(x: usize, rows: i32, columns: i32, scale: f32): void {
  for (let i = 0; i < rows; i++) {
    let most = load<f32>(x);
    for (let j = 1; j < columns; j++) most = max<f32>(most, load<f32>(at(x, j)));
    let total: f32 = 0, j = 0;
    for (; j + 4 <= columns; j += 4) {
      const above = f32x4.sub(v128.load(at(x, j)), f32x4.splat(most));
      const e = exp4(f32x4.mul(above, f32x4.splat(scale)));
      v128.store(at(x, j), e);
      total += lanes(e);
    }
    for (; j < columns; j++) {
      const e = f32x4.extract_lane(exp4(f32x4.splat((load<f32>(at(x, j)) - most) * scale)), 0);
      store<f32>(at(x, j), e);
      total += e;
    }
    total = 1 / total;
    for (j = 0; j < columns; j++) store<f32>(at(x, j), load<f32>(at(x, j)) * total);
    x = at(x, columns);
  }
}

/** dp, the gradient of p = softmax(scale·s), becomes that of s: scale·p·(dp − Σ dp·p), in place. */
export function softmaxBack(dp: usize, p: usize, rows: i32, columns: i32, scale: f32): void {
  for (let i = 0; i < rows; i++) {
    let total: f32 = 0;
    for (let j = 0; j < columns; j++) total += load<f32>(at(dp, j)) * load<f32>(at(p, j));
    for (let j = 0; j < columns; j++) {
      store<f32>(at(dp, j), (load<f32>(at(dp, j)) - total) * load<f32>(at(p, j)) * scale);
    }
    dp = at(dp, columns); p = at(p, columns);
  }
}

/** One step of AdamW: m and v move towards the gradient and its square, the weight shrinks by `keep` and moves by
 *  rate·m/(√v·growth + ε). `shorten` is what clipping leaves of the gradient. */
export function adamw(
  w: usize, g: usize, m: usize, v: usize, count: i32,
  shorten: f32, keep: f32, beta1: f32, beta2: f32, rate: f32, growth: f32, eps: f32,
): void {
  const b1 = f32x4.splat(1 - beta1), b2 = f32x4.splat(beta2), c2 = f32x4.splat(1 - beta2);
  for (let i = 0; i < count; i += 4) {
    const slope = f32x4.mul(v128.load(at(g, i)), f32x4.splat(shorten)), before = v128.load(at(m, i));
    const mean = f32x4.add(before, f32x4.mul(b1, f32x4.sub(slope, before)));
    const square = f32x4.add(f32x4.mul(b2, v128.load(at(v, i))), f32x4.mul(f32x4.mul(c2, slope), slope));
    const size = f32x4.add(f32x4.mul(f32x4.sqrt(square), f32x4.splat(growth)), f32x4.splat(eps));
    const step = f32x4.div(f32x4.mul(f32x4.splat(rate), mean), size);
    v128.store(at(m, i), mean);
    v128.store(at(v, i), square);
    v128.store(at(w, i), f32x4.sub(f32x4.mul(f32x4.splat(keep), v128.load(at(w, i))), step));
  }
}

// What the above is made of

@inline
function at(address: usize, numbers: i32): usize {
  return address + (<usize>numbers << 2);
}

@inline
function lanes(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3);
}

function sum(x: usize, count: i32): f32 {
  let four = f32x4.splat(0), i = 0;
  for (; i + 4 <= count; i += 4) four = f32x4.add(four, v128.load(at(x, i)));
  let total = lanes(four);
  for (; i < count; i++) total += load<f32>(at(x, i));
  return total;
}

/** Σ (x − mean)² */
export function squares(x: usize, mean: f32, count: i32): f32 {
  let four = f32x4.splat(0), i = 0;
  for (; i + 4 <= count; i += 4) {
    const away = f32x4.sub(v128.load(at(x, i)), f32x4.splat(mean));
    four = f32x4.add(four, f32x4.mul(away, away));
  }
  let total = lanes(four);
  for (; i < count; i++) {
    const away = load<f32>(at(x, i)) - mean;
    total += away * away;
  }
  return total;
}

// Coefficients lie in memory: to load one costs less than to have it in the code, where there are more than registers.
const EXP = memory.data<f32>([
  1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
  -87, 1.44269504, 0.693359375, 2.12194440e-4, 12582912,
]);
const NORMAL = memory.data<f32>([0.5307027145, -0.7265760135, 0.7107068705, -0.142248368, 0.127414796, 0.231641888]);

/** eˣ: 2ⁿ times a polynomial on |r| ≤ ½ ln 2, the coefficients of Cephes' expf; below e⁻⁸⁷ it stays e⁻⁸⁷. */
@inline
function exp4(x: v128): v128 {
  x = f32x4.max(x, v128.load32_splat(EXP, 24));
  const far = v128.load32_splat(EXP, 40); // 1.5·2²³, whose last bits count ones: added and subtracted, it rounds
  const rounded = f32x4.add(f32x4.mul(x, v128.load32_splat(EXP, 28)), far), n = f32x4.sub(rounded, far);
  let r = f32x4.sub(x, f32x4.mul(n, v128.load32_splat(EXP, 32)));
  r = f32x4.add(r, f32x4.mul(n, v128.load32_splat(EXP, 36)));
  let p = v128.load32_splat(EXP);
  p = f32x4.add(f32x4.mul(p, r), v128.load32_splat(EXP, 4));
  p = f32x4.add(f32x4.mul(p, r), v128.load32_splat(EXP, 8));
  p = f32x4.add(f32x4.mul(p, r), v128.load32_splat(EXP, 12));
  p = f32x4.add(f32x4.mul(p, r), v128.load32_splat(EXP, 16));
  p = f32x4.add(f32x4.mul(p, r), v128.load32_splat(EXP, 20));
  p = f32x4.add(f32x4.add(f32x4.mul(p, f32x4.mul(r, r)), r), f32x4.splat(1));
  const power = i32x4.shl(i32x4.add(rounded, i32x4.splat(127)), 23); // 2ⁿ, by its exponent's bits
  return f32x4.mul(p, power);
}

/** e^(−x²/2) */
@inline
function bell(x: v128): v128 {
  return exp4(f32x4.mul(f32x4.mul(x, x), f32x4.splat(-0.5)));
}

/** Φ(x), given e = e^(−x²/2). Abramowitz and Stegun 1964, 7.1.26: off by at most 1e-7. */
@inline
function below(x: v128, e: v128): v128 {
  const one = f32x4.splat(1);
  const t = f32x4.div(one, f32x4.add(one, f32x4.mul(f32x4.abs(x), v128.load32_splat(NORMAL, 20))));
  let p = v128.load32_splat(NORMAL);
  p = f32x4.add(f32x4.mul(p, t), v128.load32_splat(NORMAL, 4));
  p = f32x4.add(f32x4.mul(p, t), v128.load32_splat(NORMAL, 8));
  p = f32x4.add(f32x4.mul(p, t), v128.load32_splat(NORMAL, 12));
  p = f32x4.add(f32x4.mul(p, t), v128.load32_splat(NORMAL, 16));
  const tail = f32x4.mul(f32x4.mul(p, t), e); // Φ(−|x|)
  return v128.bitselect(f32x4.sub(one, tail), tail, f32x4.gt(x, f32x4.splat(0)));
}
