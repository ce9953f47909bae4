"""One palette and one style: figures that belong to nobody, and how they are saved.

No pyplot, no global state, safe in threads and on machines without a screen.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from earatlas.errors import InputError

__all__ = ["check_picture", "save"]

INK, GREY, _MISSING = "#1f2933", "#7b8794", "#c9ced6"
_LEVEL, _PHASE = "RdBu_r", "twilight_shifted"
_AZIMUTHS = (180, 90, 0, -90, -180)
_LINES = ("#2f6db5", "#ff9f1c", "#d7263d", "#2a9d5c", "#8e5ea2", "#17a2b8", "#8d6e63")


def check_picture(path: Path) -> None:
    """Refuse a name that `save` cannot write: commands ask before they work."""
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"plot must end in .png, .svg or .pdf, got '{path}'. Rename the output.")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by its ending; the whole file or nothing."""
    path = Path(path)
    check_picture(path)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            figure.savefig(Path(scratch, path.name), dpi=150)
            Path(scratch, path.name).replace(path)
    except OSError as error:
        raise InputError(
            f"plot must be a file that can be written, got '{path}' ({error.strerror}). "
            "Check that its folder exists and is writable."
        ) from error
    return path


def figure_of(width: float, height: float) -> Figure:
    """An empty figure that belongs to nobody."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


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


def _bar(figure: Figure, image: ScalarMappable, axes: Axes, label: str) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=18)
    bar.set_label(label, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7)
