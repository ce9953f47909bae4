"""Style of the figures: empty figures, axes, colour bars, and saving.

pyplot and its global state are not used, so figures can be made in threads and on machines without
a display. The colours are those of `earatlas.plotting.palette`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from earatlas.errors import InputError, check_path
from earatlas.files import atomic_write
from earatlas.geometry.angles import wrap_degrees
from earatlas.plotting.palette import GREY, INK, MISSING

__all__ = [
    "add_colour_bar",
    "add_grid",
    "add_title",
    "axes_figure",
    "check_figure_path",
    "degree_labels",
    "escape_mathtext",
    "new_figure",
    "phase_labels",
    "save",
    "style_axes",
    "tint_colormap",
]

DOTS_PER_INCH = 150  # resolution of PNG files
_SOFTWARE_KEY = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}  # metadata field


def tint_colormap(colour: str) -> LinearSegmentedColormap:
    """Return a colour map from white to `colour`."""
    return LinearSegmentedColormap.from_list(colour, ["white", colour])


def escape_mathtext(text: str) -> str:
    """Escape dollar signs, so that matplotlib does not typeset names as formulas."""
    return text.replace("$", r"\$")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, not registered with pyplot."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def axes_figure(axes: Axes) -> Figure:
    """Return the figure of given axes, which may be in a subfigure."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes are always part of a figure
    return figure


def add_title(figure: Figure, title: str) -> Figure:
    """Add a title to a figure, unless it is empty, and return the figure."""
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure


def style_axes(axes: Axes, title: str, x: str = "", y: str = "") -> Axes:
    """Set the title, labels, ticks and frame of axes, and return them."""
    axes.set_title(title, loc="left", fontsize=10, color=INK, fontweight="bold")
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=GREY, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_color(GREY)
        spine.set_linewidth(0.6)
    return axes


def add_grid(axes: Axes) -> Axes:
    """Add a light grid behind everything else, and return the axes."""
    axes.grid(color=MISSING, linewidth=0.5)
    axes.set_axisbelow(True)
    return axes


def degree_labels(*axes: Axis) -> None:
    """Label the ticks of axes with degree signs; angles beyond ±180 degrees are wrapped."""
    for axis in axes:
        axis.set_major_formatter(lambda v, _: f"{_wrapped(v):g}°".replace("-", "−"))


def _wrapped(degrees: float) -> float:
    """Return an angle within ±180 degrees; 180 and 270 degrees of a polar angle are not wrapped."""
    rounded = round(float(degrees), 6)
    return rounded if abs(rounded) <= 180 else float(wrap_degrees(rounded))


def phase_labels(axis: Axis) -> None:
    """Label an axis of phases between -π and π with fractions of π."""
    axis.set_ticks([-np.pi, -np.pi / 2, 0.0, np.pi / 2, np.pi], ["−π", "−π/2", "0", "π/2", "π"])


def add_colour_bar(image: ScalarMappable, axes: Axes, label: str) -> Colorbar:
    """Add the colour bar of an image beside its axes, and return it."""
    bar = axes_figure(axes).colorbar(image, ax=axes, pad=0.02, aspect=18)
    bar.set_label(label, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7)
    return bar


def check_figure_path(path: Path) -> None:
    """Raise InputError if `save` cannot write to this path; commands call it before they compute.

    Raises
    ------
    InputError
        If the name does not end in .png, .svg or .pdf.
    """
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"plot must end in .png, .svg or .pdf, got '{path}'. Rename the output.")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, according to its extension.

    The file is written completely or not at all: an error leaves an existing file unchanged.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Any figure, for example from `earatlas.plotting.posteriors.plot_posterior`.
    path : str or Path
        A name that ends in .png (150 dots per inch), .svg or .pdf.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    InputError
        If the extension is another one, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from earatlas.plotting.style import new_figure, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(new_figure(2.0, 1.0), f"{folder}/empty.svg").name
    'empty.svg'
    """
    path = check_path(path)
    check_figure_path(path)
    with atomic_write(path, "plot") as scratch:
        figure.savefig(
            scratch, dpi=DOTS_PER_INCH, metadata={_SOFTWARE_KEY[path.suffix.lower()]: "earatlas"}
        )
    return path
