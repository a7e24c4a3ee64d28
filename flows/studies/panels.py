"""Panels beside and below each other, with one legend and one title for all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Curve
from analysis.drawing import draw_curve, label_axes, line_styles, new_figure, wrapped_title

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS: Final = 3
_CHARACTERS_A_COLUMN: Final = 62
_CHARACTERS_OF_A_LABEL: Final = 40
_MOST_WITH_MEMBERS: Final = 2
_LEGEND_CHARACTERS_A_COLUMN: Final = 60
_LEGEND_COLUMNS: Final = 5


@dataclass(frozen=True)
class Sweep:
    """A setting that runs along a panel.

    Attributes:
        label: What it is.
        values: Its values in ascending order, spaced by their logarithm, 0 first if it is there.
    """

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        label: What runs up.
        x: What runs along.
        curves: What is drawn.
        heading: What stands above it, to the left.
        logarithmic: Whether what runs up is spaced by its logarithm.
        level: Value at which a thin line lies across, None for none.
    """

    label: str
    x: Abscissa | Sweep
    curves: Sequence[Curve]
    heading: str = ""
    logarithmic: bool = False
    level: float | None = None


def draw_panels(title: Sequence[str], panels: Sequence[Panel], columns: int = COLUMNS) -> Figure:
    """Draw panels with one legend; a label looks the same in every panel.

    Args:
        title: Parts of the title; what is drawn thin and as a band is added to them.
        panels: The panels, row by row.
        columns: Panels in a row at most.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(columns, rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = [curve.label for panel in panels for curve in panel.curves]
    styles = line_styles(labels, ordered=False)
    for axes, panel in zip(grid, panels, strict=False):
        few = len(panel.curves) <= _MOST_WITH_MEMBERS
        for curve in panel.curves:
            draw_curve(axes, curve, styles[curve.label], members=few)
        _finish(axes, panel)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    add_legend(figure, list(grid), columns)
    add_title(figure, [*title, *_means_and_bands(panels)], columns)
    return figure


def _finish(axes: Axes, panel: Panel) -> None:
    """Label the axes of a panel, and space its ticks."""
    if isinstance(panel.x, Sweep):
        axes.set_xlabel(panel.x.label)
        _space_sweep(axes, panel.x.values)
        tidy(axes)
    elif panel.curves:
        label_axes(axes, xr.DataArray(name="value"), panel.x, panel.curves)
    axes.set_ylabel(textwrap.fill(panel.label, _CHARACTERS_OF_A_LABEL))
    axes.set_title(panel.heading, fontsize="small", loc="left")
    if panel.logarithmic:
        axes.set_yscale("log")
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    if panel.level is not None:
        axes.axhline(panel.level, color="black", linewidth=0.7, linestyle=(0, (1, 3)), zorder=0)


def _space_sweep(axes: Axes, values: Sequence[float]) -> None:
    positive = [value for value in values if value > 0]
    if len(positive) < len(values):
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5, base=2)
        axes.set_xlim(-0.08 * positive[0], positive[-1] * 1.15)
    else:
        axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values], fontsize="small")
    axes.minorticks_off()


def tidy(axes: Axes) -> None:
    """Draw a light grid, and no frame above and to the right."""
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _means_and_bands(panels: Sequence[Panel]) -> list[str]:
    notes = []
    everything = [curve for panel in panels for curve in panel.curves]
    if any(curve.members for curve in everything):
        thin = any(
            len(panel.curves) <= _MOST_WITH_MEMBERS and curve.members
            for panel in panels
            for curve in panel.curves
        )
        notes.append("mean over blocks" + (" (thin: each)" if thin else ""))
    elif panels[0].x in ("layer", "relative_depth"):
        notes.append("last step")
    if any(np.isfinite(curve.stderr).any() for curve in everything):
        notes.append("band: ± standard error")
    return notes


def add_legend(figure: Figure, panels: Sequence[Axes], columns: int) -> None:
    """Draw one legend below all panels, each label once."""
    entries: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    longest = max(map(len, entries), default=1)
    fitting = _LEGEND_CHARACTERS_A_COLUMN * columns // (longest + 8)
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=max(1, min(fitting, _LEGEND_COLUMNS)),
        fontsize="small",
        handlelength=3.5,
        frameon=False,
    )


def add_title(figure: Figure, parts: Sequence[str], columns: int) -> None:
    """Write the title over all panels, wrapped to their width."""
    figure.suptitle(wrapped_title(parts, _CHARACTERS_A_COLUMN * columns), fontsize="medium")
