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
    return this.reduced(dim, (get) => get(index));
  }

  // The mean along a dimension over what is there. Standard errors are averaged, too: layers and
  // heads read the same tokens, so that their errors do not average out.
  mean(dim) {
    const size = this.labels[dim].length;
    return this.reduced(dim, (get) => {
      let sum = 0;
      let count = 0;
      for (let i = 0; i < size; i += 1) {
        const value = get(i);
        if (!Number.isNaN(value)) {
          sum += value;
          count += 1;
        }
      }
      return count ? sum / count : NaN;
    });
  }

  reduced(dim, reduce) {
    const dims = this.dims.filter((name) => name !== dim);
    const labels = Object.fromEntries(dims.map((name) => [name, this.labels[name]]));
    const stride = this.strides[dim];
    const size = this.labels[dim].length;
    const over = (array) => {
      const out = new Float32Array(array.length / size);
      for (let i = 0; i < out.length; i += 1) {
        const start = Math.floor(i / stride) * stride * size + (i % stride);
        out[i] = reduce((index) => array[start + index * stride]);
      }
      return out;
    };
    return new Cube(dims, labels, over(this.values), this.errors === null ? null : over(this.errors));
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
    for (let i = 0; i < this.labels[dim].length; i += 1) {
      if (!this.select(dim, i).isEmpty()) places.push(i);
    }
    return places;
  }
}
