"""Figures of matrices: how alike every pair of layers, steps or models is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.drawing import new_figure, save_figure
from analysis.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_COLUMNS: Final = 3
_MOST_TICKS: Final = 14
_MOST_PANELS: Final = 12
_COLOURS: Final = "cividis"


@dataclass(frozen=True)
class Panel:
    """One matrix of a figure.

    Attributes:
        title: What is above it.
        values: The matrix (row, column), with the coordinates of its two dimensions.
        row: What the rows are, on their axis.
        column: What the columns are.
    """

    title: str
    values: xr.DataArray
    row: str
    column: str


def plot_matrices(panels: Sequence[Panel], output: Path, *, title: str = "") -> None:
    """Draw matrices with one scale of colours, from 0 to 1 where they allow it.

    Args:
        panels: The matrices; of more than twelve, twelve are drawn, evenly chosen.
        output: The file, whose ending says its format.
        title: What is above them all.

    Raises:
        InputError: If there is nothing to draw.
        AnalysisError: If matplotlib is not installed.
    """
    drawn = [panel for panel in panels if bool(panel.values.notnull().any())]
    if not drawn:
        raise InputError("there is nothing to draw: every value is missing")
    if len(drawn) > _MOST_PANELS:
        chosen = np.linspace(0, len(drawn) - 1, _MOST_PANELS).round().astype(int)
        drawn = [drawn[number] for number in chosen]
    columns = min(_COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure = new_figure(columns, rows)
    low = min(0.0, *(float(panel.values.min()) for panel in drawn))
    high = max(1.0, *(float(panel.values.max()) for panel in drawn))
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    images = [_draw(one, panel, low, high) for one, panel in zip(axes, drawn, strict=False)]
    for unused in axes[len(drawn) :]:
        unused.remove()
    about = str(drawn[0].values.attrs.get("long_name", drawn[0].values.name))
    figure.colorbar(images[0], ax=axes[: len(drawn)], label=about, shrink=0.9)
    if title:
        figure.suptitle(title, fontsize="medium")
    save_figure(figure, output)


def _draw(axes: Axes, panel: Panel, low: float, high: float) -> AxesImage:
    image = axes.imshow(
        panel.values.values, vmin=low, vmax=high, origin="lower", cmap=_COLOURS, aspect="auto"
    )
    rows, columns = (panel.values[str(dim)].values.tolist() for dim in panel.values.dims)
    axes.set_xticks(*_ticks(columns), fontsize="small")
    axes.set_yticks(*_ticks(rows), fontsize="small")
    axes.set_xlabel(panel.column)
    axes.set_ylabel(panel.row)
    axes.set_title(panel.title, fontsize="small", loc="left")
    return image


def _ticks(labels: Sequence[object]) -> tuple[list[int], list[str]]:
    """Return places and labels of the ticks of an axis, few enough to be read."""
    every = math.ceil(len(labels) / _MOST_TICKS)
    places = list(range(0, len(labels), every))
    return places, [str(labels[place]) for place in places]
