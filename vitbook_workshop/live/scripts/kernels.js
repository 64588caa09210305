"use strict";

/* What costs time, in plain JavaScript, for browsers without WebAssembly's SIMD: kernels.ts, line by line.

   Addresses are in bytes, everything else counts numbers (float32). A matrix has its rows `stride` numbers apart. */

/**
 * @param {ArrayBuffer} buffer where all matrices lie
 * @returns {Kernels} functions of the same names and arguments as the WebAssembly module's
 */
function plainKernels(buffer) {
  const all = new Float32Array(buffer);

  /** C = A·B, or C += A·B. A (m, k), B (k, n), C (m, n). Two rows and four columns at a time, as far as they go. */
  function product(c, strideC, a, rowA, stepA, b, strideB, m, n, k, add) {
    [c, a, b] = [c >> 2, a >> 2, b >> 2];
    const [rows, columns] = [m - (m % 2), n - (n % 4)];
    for (let j = 0; j < columns; j += 4) {
      for (let i = 0; i < rows; i += 2) {
        let s00 = 0, s01 = 0, s02 = 0, s03 = 0;
        let s10 = 0, s11 = 0, s12 = 0, s13 = 0;
        for (let l = 0, from = b + j, x = a + i * rowA; l < k; l++, from += strideB, x += stepA) {
          const x0 = all[x], x1 = all[x + rowA];
          const y0 = all[from], y1 = all[from + 1], y2 = all[from + 2], y3 = all[from + 3];
          s00 += x0 * y0; s01 += x0 * y1; s02 += x0 * y2; s03 += x0 * y3;
          s10 += x1 * y0; s11 += x1 * y1; s12 += x1 * y2; s13 += x1 * y3;
        }
        put(c + i * strideC + j, add, s00, s01, s02, s03);
        put(c + (i + 1) * strideC + j, add, s10, s11, s12, s13);
      }
    }
    for (let i = 0; i < m; i++) {
      for (let j = i < rows ? columns : 0; j < n; j++) {
        let sum = add ? all[c + i * strideC + j] : 0;
        for (let l = 0; l < k; l++) {
          sum += all[a + i * rowA + l * stepA] * all[b + l * strideB + j];
        }
        all[c + i * strideC + j] = sum;
      }
    }
  }

  function put(place, add, s0, s1, s2, s3) {
    all[place] = (add && all[place]) + s0;
    all[place + 1] = (add && all[place + 1]) + s1;
    all[place + 2] = (add && all[place + 2]) + s2;
    all[place + 3] = (add && all[place + 3]) + s3;
  }

  function transpose(y, strideY, x, strideX, rows, columns) {
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        all[(y >> 2) + j * strideY + i] = all[(x >> 2) + i * strideX + j];
      }
    }
  }

  function repeat(y, x, rows, columns) {
    for (let i = 0; i < rows; i++) {
      all.copyWithin((y >> 2) + i * columns, x >> 2, (x >> 2) + columns);
    }
  }

  function add(y, x, count) {
    for (let i = 0; i < count; i++) {
      all[(y >> 2) + i] += all[(x >> 2) + i];
    }
  }

  function sumRows(sum, x, stride, rows, columns) {
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        all[(sum >> 2) + j] += all[(x >> 2) + i * stride + j];
      }
    }
  }

  /** Mean and 1/σ of the numbers from x on. */
  function moments(x, columns, eps) {
    let [mean, variance] = [0, 0];
    for (let j = 0; j < columns; j++) {
      mean += all[x + j] / columns;
    }
    for (let j = 0; j < columns; j++) {
      variance += (all[x + j] - mean) ** 2 / columns;
    }
    return [mean, 1 / Math.sqrt(variance + eps)];
  }

  function layerNorm(y, x, gain, bias, rows, columns, eps) {
    [y, x, gain, bias] = [y >> 2, x >> 2, gain >> 2, bias >> 2];
    for (let i = 0; i < rows; i++, x += columns, y += columns) {
      const [mean, rate] = moments(x, columns, eps);
      for (let j = 0; j < columns; j++) {
        all[y + j] = (all[x + j] - mean) * rate * all[gain + j] + all[bias + j];
      }
    }
  }

  function layerNormBack(dx, dGain, dBias, dy, x, gain, rows, columns, eps) {
    [dx, dGain, dBias, dy, x, gain] = [dx >> 2, dGain >> 2, dBias >> 2, dy >> 2, x >> 2, gain >> 2];
    for (let i = 0; i < rows; i++, x += columns, dx += columns, dy += columns) {
      const [mean, rate] = moments(x, columns, eps);
      let [meanG, meanGU] = [0, 0];
      for (let j = 0; j < columns; j++) {
        const u = (all[x + j] - mean) * rate;
        const g = all[dy + j] * all[gain + j];
        meanG += g / columns;
        meanGU += (g * u) / columns;
        all[dGain + j] += all[dy + j] * u;
        all[dBias + j] += all[dy + j];
      }
      for (let j = 0; j < columns; j++) {
        const u = (all[x + j] - mean) * rate;
        all[dx + j] = (all[dy + j] * all[gain + j] - meanG - u * meanGU) * rate;
      }
    }
  }

  function gelu(y, x, count) {
    for (let i = 0; i < count; i++) {
      const z = all[(x >> 2) + i];
      all[(y >> 2) + i] = z * below(z, Math.exp(-0.5 * z * z));
    }
  }

  function geluBack(dx, dy, x, count) {
    for (let i = 0; i < count; i++) {
      const z = all[(x >> 2) + i];
      const e = Math.exp(-0.5 * z * z);
      all[(dx >> 2) + i] = all[(dy >> 2) + i] * (below(z, e) + z * e * 0.3989422804);
    }
  }

  /** Φ(x), given e = e^(−x²/2). Abramowitz and Stegun 1964, 7.1.26: off by at most 1e-7. */
  function below(x, e) {
    const t = 1 / (1 + 0.231641888 * Math.abs(x));
    const p = (((0.5307027145 * t - 0.7265760135) * t + 0.7107068705) * t - 0.142248368) * t + 0.127414796;
    return x > 0 ? 1 - p * t * e : p * t * e;
  }

  function softmax(x, rows, columns, scale) {
    x >>= 2;
    for (let i = 0; i < rows; i++, x += columns) {
      let [most, total] = [all[x], 0];
      for (let j = 1; j < columns; j++) {
        most = Math.max(most, all[x + j]);
      }
      for (let j = 0; j < columns; j++) {
        total += all[x + j] = Math.exp((all[x + j] - most) * scale);
      }
      for (let j = 0; j < columns; j++) {
        all[x + j] /= total;
      }
    }
  }

  function softmaxBack(dp, p, rows, columns, scale) {
    [dp, p] = [dp >> 2, p >> 2];
    for (let i = 0; i < rows; i++, dp += columns, p += columns) {
      let total = 0;
      for (let j = 0; j < columns; j++) {
        total += all[dp + j] * all[p + j];
      }
      for (let j = 0; j < columns; j++) {
        all[dp + j] = (all[dp + j] - total) * all[p + j] * scale;
      }
    }
  }

  function squares(x, mean, count) {
    let total = 0;
    for (let i = 0; i < count; i++) {
      total += (all[(x >> 2) + i] - mean) ** 2;
    }
    return total;
  }

  function adamw(w, g, m, v, count, shorten, keep, beta1, beta2, rate, growth, eps) {
    [w, g, m, v] = [w >> 2, g >> 2, m >> 2, v >> 2];
    for (let i = 0; i < count; i++) {
      const slope = all[g + i] * shorten;
      all[m + i] += (1 - beta1) * (slope - all[m + i]);
      all[v + i] = beta2 * all[v + i] + (1 - beta2) * slope * slope;
      all[w + i] = keep * all[w + i] - (rate * all[m + i]) / (Math.sqrt(all[v + i]) * growth + eps);
    }
  }

  return {
    product, transpose, repeat, add, sumRows, layerNorm, layerNormBack, gelu, geluBack, softmax, softmaxBack, squares, adamw,
  };
}
