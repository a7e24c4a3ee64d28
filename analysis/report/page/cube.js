// A small labelled array with standard errors: values along named dimensions, NaN where absent.

import { commonSample } from "./samples.js";

const SEVERAL = -1;

export class Cube {
  // samples: { known, marks }, the samples that values are of and the number of that of each, null
  // marks where it is one; null where they are of none.
  constructor(dims, labels, values, errors, samples = null) {
    this.dims = dims;
    this.labels = labels;
    this.values = values;
    this.errors = errors;
    this.samples = samples;
    this.strides = {};
    let stride = 1;
    for (const dim of [...dims].reverse()) {
      this.strides[dim] = stride;
      stride *= labels[dim].length;
    }
  }

  has(dim) {
    return dim !== null && this.dims.includes(dim);
  }

  at(position) {
    return this.values[this.offset(position)];
  }

  error(position) {
    return this.errors === null ? NaN : this.errors[this.offset(position)];
  }

  // The sample that a value is of, null where it is of none.
  sample(position) {
    if (this.samples === null) return null;
    const { known, marks } = this.samples;
    if (marks === null) return known[0];
    const mark = marks[this.offset(position)];
    return mark === SEVERAL ? commonSample(known) : known[mark] ?? null;
  }

  offset(position) {
    let offset = 0;
    for (const dim of this.dims) offset += position[dim] * this.strides[dim];
    return offset;
  }

  // The part at one place along a dimension.
  select(dim, index) {
    const stride = this.strides[dim];
    const jump = stride * this.labels[dim].length;
    const over = (array) => {
      const out = new Float32Array(array.length / this.labels[dim].length);
      let at = 0;
      for (let start = index * stride; start < array.length; start += jump) {
        for (let i = start; i < start + stride; i += 1) {
          out[at] = array[i];
          at += 1;
        }
      }
      return out;
    };
    return this.without(dim, over, over);
  }

  // The mean along a dimension over what is there. Standard errors are averaged, too: layers and
  // heads read the same tokens, so that their errors do not average out.
  mean(dim, from = 0) {
    const mean = (there) => there.reduce((sum, value) => sum + value, 0) / there.length;
    const common = (marks) => (marks.every((mark) => mark === marks[0]) ? marks[0] : SEVERAL);
    const over = (reduce) => (array) => this.lanes(dim, from, array, reduce);
    return this.without(dim, over(mean), over(common));
  }

  // One number of what is there along a dimension, NaN where nothing is.
  lanes(dim, from, array, reduce) {
    const stride = this.strides[dim];
    const size = this.labels[dim].length;
    const out = new Float32Array(array.length / size);
    for (let at = 0; at < out.length; at += 1) {
      const start = Math.floor(at / stride) * stride * size + (at % stride);
      const there = [];
      for (let i = start + from * stride; i < start + stride * size; i += stride) {
        if (!Number.isNaN(array[i])) there.push(array[i]);
      }
      out[at] = there.length ? reduce(there) : NaN;
    }
    return out;
  }

  without(dim, over, overMarks) {
    const dims = this.dims.filter((name) => name !== dim);
    const errors = this.errors === null ? null : over(this.errors);
    const samples = this.samples?.marks ? { ...this.samples, marks: overMarks(this.samples.marks) } : this.samples;
    return new Cube(dims, this.labels, over(this.values), errors, samples);
  }

  // Every value and error divided by the first value along a dimension.
  dividedByFirst(dim) {
    const stride = this.strides[dim];
    const size = this.labels[dim].length;
    const over = (array) => array.map((value, i) => {
      const place = Math.floor(i / stride) % size;
      return value / this.values[i - place * stride];
    });
    return new Cube(this.dims, this.labels, over(this.values), this.errors === null ? null : over(this.errors), this.samples);
  }

  isEmpty() {
    return !this.values.some((value) => !Number.isNaN(value));
  }

  // Places along a dimension at which anything is there.
  filled(dim) {
    const places = [];
    const stride = this.strides[dim];
    const size = this.labels[dim].length;
    const there = new Set();
    for (let i = 0; i < this.values.length && there.size < size; i += 1) {
      if (!Number.isNaN(this.values[i])) there.add(Math.floor(i / stride) % size);
    }
    for (let i = 0; i < size; i += 1) if (there.has(i)) places.push(i);
    return places;
  }
}
