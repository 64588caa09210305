"use strict";

/* Matrices of float32 in one piece of memory, and what can be computed with them: by kernels.ts, which reads and writes
   this memory by address. */

/** Memory for matrices, handed out from one end, and taken back from there to a mark. */
class Workspace {
  constructor() {
    /** The first address that is free. */
    this.top = 1024;
    this.memory = new WebAssembly.Memory({ initial: 256 });
    const stop = () => {
      throw new Error("the kernels stopped");
    };
    const imports = { env: { memory: this.memory, abort: stop } };
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fromBase64(KERNELS)), imports);
    this.kernels = /** @type {Record<string, (...numbers: number[]) => any>} */ (/** @type {unknown} */ (exports));
    /** One view of all of the memory serves every matrix, where each could have made thousands. */
    this.numbers = new Float32Array(this.memory.buffer);
  }

  /**
   * A matrix of zeros.
   * @param {number} rows
   * @param {number} columns
   */
  matrix(rows, columns) {
    const made = this.room(rows, columns);
    made.data.fill(0);
    return made;
  }

  /**
   * A matrix that holds whatever was there, for one that is about to be written as a whole.
   * @param {number} rows
   * @param {number} columns
   */
  room(rows, columns) {
    const at = this.top;
    this.top += Math.ceil((rows * columns) / 4) * 16; // the kernels take four numbers at a time
    const missing = this.top - this.numbers.byteLength;
    if (missing > 0) {
      this.memory.grow(Math.ceil(Math.max(missing, this.numbers.byteLength) / 65536));
      this.numbers = new Float32Array(this.memory.buffer);
    }
    return new Matrix(this, at, rows, columns, columns);
  }

  /**
   * What `work` returns; the matrices that it made are given up. Whatever is to be kept has to be copied out of them.
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  forNow(work) {
    const mark = this.top;
    try {
      return work();
    } finally {
      this.top = mark;
    }
  }
}

/** Rows and columns in a workspace, or a part of another matrix, whose rows lie `stride` numbers apart. */
class Matrix {
  /**
   * @param {Workspace} space
   * @param {number} at its address
   * @param {number} rows
   * @param {number} columns
   * @param {number} stride
   */
  constructor(space, at, rows, columns, stride) {
    this.space = space;
    this.at = at;
    this.rows = rows;
    this.columns = columns;
    this.stride = stride;
  }

  /** Some rows and columns of it: the same numbers, not a copy. */
  part(row, rows, column = 0, columns = this.columns) {
    return new Matrix(this.space, this.at + 4 * (row * this.stride + column), rows, columns, this.stride);
  }

  /** Where row i begins in `space.numbers`. */
  first(i = 0) {
    return this.at / 4 + i * this.stride;
  }

  /** A view of its numbers, row by row; for a matrix that is not a part of others' columns. */
  get data() {
    return new Float32Array(this.space.numbers.buffer, this.at, this.rows * this.columns);
  }

  /**
   * Take the numbers of a matrix of the same shape.
   * @param {Matrix} from
   */
  set(from) {
    for (let i = 0; i < this.rows; i++) {
      this.space.numbers.copyWithin(this.first(i), from.first(i), from.first(i) + this.columns);
    }
  }

  copy() {
    const copied = this.space.room(this.rows, this.columns);
    copied.set(this);
    return copied;
  }
}

/**
 * A·B, added to what is in `into` where that is given. (m, k), (k, n) → (m, n).
 * @type {(a: Matrix, b: Matrix, into?: Matrix) => Matrix}
 */
function times(a, b, into) {
  return product(a.rows, a.columns, a.stride, 1, a, b, into);
}

/**
 * Aᵀ·B, likewise. (k, m), (k, n) → (m, n).
 * @type {(a: Matrix, b: Matrix, into?: Matrix) => Matrix}
 */
function transposedTimes(a, b, into) {
  return product(a.columns, a.rows, 1, a.stride, a, b, into);
}

/**
 * A·Bᵀ, likewise. (m, k), (n, k) → (m, n).
 * @type {(a: Matrix, b: Matrix, into?: Matrix) => Matrix}
 */
function timesTransposed(a, b, into) {
  const made = into ?? a.space.room(a.rows, b.rows);
  a.space.forNow(() => product(a.rows, a.columns, a.stride, 1, a, transposed(b), made, into !== undefined));
  return made;
}

function product(m, k, rowA, stepA, a, b, into, added = into !== undefined) {
  const c = into ?? a.space.room(m, b.columns);
  a.space.kernels.product(c.at, c.stride, a.at, rowA, stepA, b.at, b.stride, m, b.columns, k, Number(added));
  return c;
}

/**
 * (m, n) → (n, m)
 * @type {(x: Matrix) => Matrix}
 */
function transposed(x) {
  const y = x.space.room(x.columns, x.rows);
  x.space.kernels.transpose(y.at, y.stride, x.at, x.stride, x.rows, x.columns);
  return y;
}

/**
 * y += x; returns y. (m, n), (m, n) → (m, n).
 * @type {(y: Matrix, x: Matrix) => Matrix}
 */
function add(y, x) {
  y.space.kernels.add(y.at, x.at, y.rows * y.columns);
  return y;
}

/**
 * Each row of x becomes softmax(scale·x), in place.
 * @type {(x: Matrix, scale: number) => Matrix}
 */
function softmax(x, scale) {
  x.space.kernels.softmax(x.at, x.rows, x.columns, scale);
  return x;
}
