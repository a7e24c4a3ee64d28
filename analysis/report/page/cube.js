// A small labelled array with standard errors: values along named dimensions, NaN where absent.

export class Cube {
  constructor(dims, labels, values, errors) {
    this.dims = dims;
    this.labels = labels;
    this.values = values;
    this.errors = errors;
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
    return this.without(dim, over);
  }

  // The mean along a dimension over what is there. Standard errors are averaged, too: layers and
  // heads read the same tokens, so that their errors do not average out.
  mean(dim, from = 0) {
    const stride = this.strides[dim];
    const size = this.labels[dim].length;
    const over = (array) => {
      const out = new Float32Array(array.length / size);
      for (let at = 0; at < out.length; at += 1) {
        const start = Math.floor(at / stride) * stride * size + (at % stride);
        let sum = 0;
        let count = 0;
        for (let i = start + from * stride; i < start + stride * size; i += stride) {
          if (!Number.isNaN(array[i])) {
            sum += array[i];
            count += 1;
          }
        }
        out[at] = count ? sum / count : NaN;
      }
      return out;
    };
    return this.without(dim, over);
  }

  without(dim, over) {
    const dims = this.dims.filter((name) => name !== dim);
    return new Cube(dims, this.labels, over(this.values), this.errors === null ? null : over(this.errors));
  }

  // Every value and error divided by the first value along a dimension.
  dividedByFirst(dim) {
    const stride = this.strides[dim];
    const size = this.labels[dim].length;
    const over = (array) => array.map((value, i) => {
      const place = Math.floor(i / stride) % size;
      return value / this.values[i - place * stride];
    });
    return new Cube(this.dims, this.labels, over(this.values), this.errors === null ? null : over(this.errors));
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
