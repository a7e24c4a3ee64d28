"""The demo: real models, a training run of its own, one store, two figures. ``make demo``."""
