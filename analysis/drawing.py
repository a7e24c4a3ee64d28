"""What every figure is drawn with: colours, line styles, bands, axes and files.

Colours are told apart by readers with any colour vision; line styles and markers differ as
well, so that a figure survives printing in black and white. Nothing global is changed: figures are
made without pyplot, and matplotlib is imported only when one is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Curve, Values
from analysis.errors import AnalysisError
from store.schema import LAYER, STEP
from store.whole_file import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette (2008), without its yellow, which is lost on white paper.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINE_STYLES: Final = ("-", "--", "-.", ":")
_MARKERS: Final = "os^Dvp"
_MOST_STEP_TICKS: Final = 12
_MOST_LARGE_TICKS: Final = 8
_SHORT: Final = 40
_LABEL_COLUMNS: Final = 44
_HARD: Final = "\u00a0"
_ABSCISSAE: Final[dict[Abscissa, str]] = {
    "relative_depth": "relative depth (layer / number of blocks)",
    "layer": "layer (0: embeddings)",
    "step": "training step",
}


@dataclass(frozen=True)
class Style:
    """How a line looks.

    Attributes:
        colour: Colour, as hexadecimal digits.
        line: Line style of matplotlib.
        marker: Marker of matplotlib.
    """

    colour: str
    line: str
    marker: str


def new_figure(columns: int, rows: int = 1) -> Figure:
    """Return an empty figure with room for a grid of panels.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AnalysisError(
            "figures need matplotlib, which is not installed: pip install 'actlas[plots]'"
        ) from error
    figure = Figure(figsize=(1.4 + 4.6 * columns, 0.6 + 3.6 * rows), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


def line_styles(labels: Sequence[str], *, ordered: bool) -> dict[str, Style]:
    """Give every label its colour, line style and marker; ordered ones from light to dark."""
    distinct = list(dict.fromkeys(labels))
    colours = _shades(len(distinct)) if ordered else _PALETTE
    return {
        label: Style(
            colours[i % len(colours)],
            _LINE_STYLES[i % len(_LINE_STYLES)],
            _MARKERS[i % len(_MARKERS)],
        )
        for i, label in enumerate(distinct)
    }


def _shades(count: int) -> Sequence[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = np.linspace(0.2, 1.0, count) if count > 1 else [1.0]
    return [to_hex(colormaps["cividis_r"](place)) for place in places]


def draw_curve(axes: Axes, curve: Curve, style: Style, *, members: bool) -> None:
    """Draw a curve with its band of one standard error, and thin lines for its members."""
    for member in curve.members.values() if members else ():
        axes.plot(curve.x, member, color=style.colour, linewidth=0.7, alpha=0.4, zorder=1)
    low, high = curve.y - curve.stderr, curve.y + curve.stderr
    axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.22, linewidth=0, zorder=2)
    axes.plot(
        curve.x,
        curve.y,
        label=curve.label,
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=4,
        linewidth=1.6,
        zorder=3,
    )


def label_axes(axes: Axes, values: xr.DataArray, x: Abscissa, drawn: Sequence[Curve]) -> None:
    """Say what runs along both axes of a panel, and space its ticks."""
    units = values.attrs.get("units", "")
    name = str(values.attrs.get("long_name", str(values.name).replace("_", " ")))
    label = name if units in ("", "1") else f"{name} [{units}]"
    axes.set_ylabel(textwrap.fill(label, _LABEL_COLUMNS))
    axes.set_xlabel(_ABSCISSAE[x])
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if x == STEP:
        _set_step_axis(axes, np.unique(np.concatenate([curve.x for curve in drawn])))
    elif x == LAYER:
        axes.locator_params(axis="x", integer=True)


def _set_step_axis(axes: Axes, steps: Values) -> None:
    """Space steps by their logarithm where they were chosen so, with step 0 shown."""
    positive = steps[steps > 0]
    if len(positive) == 0 or positive[-1] <= 4 * np.median(positive):
        if len(steps) > 1:
            axes.locator_params(axis="x", integer=True)
        else:
            axes.set_xticks(steps, [f"{step:.0f}" for step in steps])
        return
    if steps[0] > 0:
        axes.set_xscale("log")
        axes.set_xlim(steps[0] / 1.2, steps[-1] * 1.2)
    else:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(-0.08 * positive[0], steps[-1] * 1.2)
    if len(steps) > _MOST_STEP_TICKS:
        every = -(-len(positive) // (_MOST_STEP_TICKS - 1))
        steps = np.concatenate([steps[steps <= 0], positive[::-1][::every][::-1]])
    size = "small" if len(steps) > _MOST_LARGE_TICKS else "medium"
    axes.set_xticks(steps, [f"{step:.0f}" for step in steps], fontsize=size)
    axes.minorticks_off()


def wrapped_title(parts: Sequence[str], columns: int) -> str:
    """Return the parts of a title that are not empty, with dots between, in lines of a width.

    A part stays whole where it fits: a break within "n = 512" would be hard to read.
    """
    whole = [part.replace(" ", _HARD) if len(part) < _SHORT else part for part in parts if part]
    return textwrap.fill(f"{_HARD}· ".join(whole), columns).replace(_HARD, " ")


def save_figure(figure: Figure, output: Path) -> None:
    """Write the file, the same bytes each time."""
    from matplotlib import rc_context

    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with rc_context({"svg.hashsalt": "actlas"}), written_whole(output) as file:
        figure.savefig(file, metadata=undated.get(output.suffix.lower()))
