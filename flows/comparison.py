"""Comparing what the store holds: choose the models, compute what is missing, draw matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.compare import CompareReport, Progress, compare
from analysis.heatmaps import Panel, plot_matrices
from analysis.matrices import Over, Subject, matrix_of, variable
from flows.measurement import MeasureOptions, Target
from store.errors import StoreError
from store.metrics import read_metrics
from store.repository import Repository
from store.schema import LAYER, OTHER_LAYER, OTHER_MODEL, OTHER_STEP, STEP


def compare_targets(
    store_uri: str,
    over: Over,
    targets: Sequence[Target],
    *,
    options: MeasureOptions,
    plan: bool = False,
    progress: Progress | None = None,
) -> CompareReport:
    """Compute what is missing or stale of the matrices of some models, and commit them.

    Args:
        store_uri: The store.
        over: What is compared: layers, steps or models.
        targets: Models from ``flows.measurement.find_targets``.
        options: The sample, its seed, where the work is done, and the memory there.
        plan: Only count what would be computed.
        progress: Called with the number of matrices just done, and of all.

    Raises:
        AnalysisError: If there is nothing to compare, or the rows are too few or not finite.
        StoreError: If activations cannot be read or results cannot be stored.
    """
    subjects = [Subject(one.model.path, one.steps, one.layers) for one in targets]
    return compare(
        store_uri,
        over,
        subjects,
        sample=options.sample,
        seed=options.seed,
        scheduler=options.scheduler,
        memory=options.memory,
        plan=plan,
        progress=progress,
    )


def draw_comparison(
    store_uri: str,
    over: Over,
    targets: Sequence[Target],
    measure: str,
    output: Path,
    options: MeasureOptions,
) -> None:
    """Draw stored matrices: of each model, layer or pair of models a panel.

    Layers and models are shown at the last of the chosen steps.

    Args:
        store_uri: The store.
        over: What was compared.
        targets: Models, and the steps and layers of each that are shown.
        measure: Name of a measure of pairs.
        output: The figure.
        options: With which sample it was computed.

    Raises:
        AnalysisError: If there is no such measure, or nothing to draw.
        StoreError: If nothing was computed.
    """
    repository = Repository.open(store_uri, read_only=True)
    panels = [
        panel for target in targets for panel in _panels(repository, over, target, measure, targets)
    ]
    if not panels:
        raise StoreError(
            f"{variable(over, measure)} is not there: run `actlas compare {over}` first"
        )
    sample = f"sample {options.sample:,}, seed {options.seed}"
    title = f"{targets[0].model.corpus} · rows: content · {sample}" if targets else ""
    plot_matrices(panels, output, title=title)


def _panels(
    repository: Repository, over: Over, target: Target, measure: str, targets: Sequence[Target]
) -> Iterator[Panel]:
    path = target.model.path
    results = read_metrics(repository, path)
    if results is None or variable(over, measure) not in results:
        return  # there was nothing to compare it with
    values = matrix_of(results, over, measure).reindex({LAYER: list(target.layers)})
    name = path.partition("/")[2]
    last = target.steps[-1]
    if over == "steps":
        steps = list(target.steps)
        for layer in target.layers:
            chosen = values.reindex({STEP: steps, OTHER_STEP: steps}).sel({LAYER: layer}).load()
            yield Panel(f"{name}, layer {layer}", chosen, "step", "step")
    elif over == "layers":
        chosen = values.reindex({STEP: [last], OTHER_LAYER: list(target.layers)})[0].load()
        yield Panel(f"{name}, step {last}", chosen, "layer", "layer")
    else:
        there = [str(label) for label in values[OTHER_MODEL].values]
        later = [one.model.path.partition("/")[2] for one in targets if one.model.path > path]
        for other in filter(there.__contains__, later):
            found = values.reindex({STEP: [last]}).sel({STEP: last, OTHER_MODEL: other})
            chosen = found.dropna(OTHER_LAYER, how="all").load()
            yield Panel("", chosen, f"layer of {name}", f"layer of {other}")
