"""A study from the store to its files: figures, numbers and a short account."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.drawing import save_figure
from analysis.figures import SUFFIXES
from flows.studies.controls import CONTROL_METRICS, draw_controls, tell_controls
from flows.studies.errors import StudyChoiceError, StudyError
from flows.studies.preparation import Request, prepare
from flows.studies.reading import read_measured
from flows.studies.sample_size import by_sample_size, draw_sample_size, tell_sample_size
from flows.studies.study import Study
from flows.studies.writing import account, write_csv, write_netcdf
from store.whole_file import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run_study(
    study: Study, request: Request, *, controls: bool, tell: Callable[[str], None]
) -> list[Path]:
    """Carry out a study: bring what it needs into the store, then write its files.

    Args:
        study: The study.
        request: What is asked of it.
        controls: Whether to draw the grid of populations as well.
        tell: Called with what happens.

    Returns:
        The files written: each figure as PNG, PDF and SVG; ``numbers.csv`` and ``numbers.nc``;
        ``account.md``.

    Raises:
        StudyError: If the store lacks something and nothing may be run.
        CaptureError: If a model cannot be read or run.
        AnalysisError: If a metric cannot be computed or a figure not drawn.
        StoreError: If the store cannot be read or written.
    """
    if importlib.util.find_spec("netCDF4") is None:
        raise StudyError("a study writes NetCDF, which needs netCDF4: pip install 'actlas[export]'")
    if controls and study.needs == {"block"}:
        raise StudyChoiceError(f"the rows of {study.name} are all alike: leave out --controls")
    if controls:
        study = replace(study, control_metrics=CONTROL_METRICS)
    measured = read_measured(study, request, prepare(study, request, tell))
    figures = dict(study.draw(study, measured))
    told: list[str] = []
    if controls:
        figures["controls"] = draw_controls(study, measured)
        sizes = by_sample_size(study, measured, request.sample)
        if sizes:
            figures["controls-n"] = draw_sample_size(study, measured, sizes)
        told = tell_controls(study, measured) + tell_sample_size(sizes)
    request.output.mkdir(parents=True, exist_ok=True)
    written = save_figures(figures, request.output)
    numbers = [request.output / name for name in ("numbers.csv", "numbers.nc", "account.md")]
    write_csv(measured, numbers[0])
    write_netcdf(study, measured, numbers[1])
    with written_whole(numbers[2]) as whole:
        whole.write_text(account(study, measured, list(figures), told), encoding="utf-8")
    return written + numbers


def save_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure in every format, and return the files."""
    written = []
    for name, figure in figures.items():
        # Laid out once, not once for each format: that is most of the work.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for suffix in SUFFIXES:
            written.append(folder / f"{name}{suffix}")
            save_figure(figure, written[-1])
    return written
