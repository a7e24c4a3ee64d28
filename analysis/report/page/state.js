// What the reader has chosen, and who wants to know when it changes.

export class State {
  constructor(values) {
    this.values = values;
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  set(changes) {
    Object.assign(this.values, changes);
    for (const listener of this.listeners) listener();
  }
}

// The models shown, in the order of the report.
export function shownModels(contents, state) {
  const { corpus, chosen } = state.values;
  return contents.models.filter((model) => model.corpus === corpus && chosen.has(model.index));
}

// Every step of the models shown at which something was measured.
export function shownSteps(contents, state) {
  const steps = new Set();
  for (const model of shownModels(contents, state)) {
    for (const cube of model.cubes.values()) {
      for (const step of cube.labels.step ?? []) steps.add(step);
    }
  }
  return [...steps].sort((a, b) => a - b);
}
