"""One palette and one style: figures that belong to nobody, and how they are saved.

No pyplot, no global state, safe in threads and on machines without a screen. The colours are those
of `earatlas.plotting.palette`.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from earatlas.errors import InputError
from earatlas.files import written_whole
from earatlas.plotting.palette import GREY, INK, MISSING

__all__ = [
    "check_picture",
    "colour_bar",
    "figure_of",
    "gridded",
    "headed",
    "plain",
    "save",
    "styled",
    "tints",
]


def tints(colour: str) -> LinearSegmentedColormap:
    """A colour map from white to the colour."""
    return LinearSegmentedColormap.from_list(colour, ["white", colour])


def plain(name: str) -> str:
    """A name from outside, of which matplotlib is not to make a formula."""
    return name.replace("$", r"\$")


def figure_of(width: float, height: float) -> Figure:
    """An empty figure that belongs to nobody."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def headed(figure: Figure, title: str) -> Figure:
    """The figure with a title of its own, if there is any."""
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure


def styled(axes: Axes, title: str, x: str = "", y: str = "") -> Axes:
    """Title, labels and thin grey lines around."""
    axes.set_title(title, loc="left", fontsize=10, color=INK, fontweight="bold")
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=GREY, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_color(GREY)
        spine.set_linewidth(0.6)
    return axes


def gridded(axes: Axes) -> Axes:
    """A faint grid behind everything."""
    axes.grid(color=MISSING, linewidth=0.5)
    axes.set_axisbelow(True)
    return axes


def colour_bar(image: ScalarMappable, axes: Axes, label: str) -> None:
    """The key of an image's colours, beside it."""
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, aspect=18)
    bar.set_label(label, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7)


def check_picture(path: Path) -> None:
    """Refuse a name that `save` cannot write: commands ask before they work."""
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"plot must end in .png, .svg or .pdf, got '{path}'. Rename the output.")


DOTS_AN_INCH = 150  # of a PNG
_MAKER = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by its ending; the whole file or nothing."""
    path = Path(path)
    check_picture(path)
    with written_whole(path, "plot") as scratch:
        # Told to whoever asks whose picture it is: PNG and PDF have room for it, SVG too.
        figure.savefig(
            scratch, dpi=DOTS_AN_INCH, metadata={_MAKER[path.suffix.lower()]: "earatlas"}
        )
    return path
