"""Figure of the cue spectrograms of a recording; missing bins are grey."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earatlas.errors import InputError
from earatlas.features.cues import Cues
from earatlas.plotting.palette import DIFFERENCE_MAP, ILD_LIMIT_DB, MISSING, PHASE_MAP
from earatlas.plotting.style import (
    add_colour_bar,
    add_title,
    axes_figure,
    new_figure,
    phase_labels,
    style_axes,
)

__all__ = ["plot_cues"]


def plot_cues(
    cues: Cues,
    *,
    title: str = "",
    start_seconds: float = 0.0,
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """Plot the ILD and IPD spectrograms of a recording.

    Bins in which nothing was observed are grey. A cue without any frequency in the layout has no
    panel.

    Parameters
    ----------
    cues : Cues
        Interaural cues, for example from `earatlas.audio_cues`.
    title : str, default: ""
        Title of the figure.
    start_seconds : float, default: 0.0
        Time of the first frame in seconds, where the cues are those of an excerpt.
    ax : matplotlib.axes.Axes or sequence of Axes, optional
        Axes to draw on, one per cue: level difference, phase difference. By default a new figure is
        made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    Raises
    ------
    InputError
        If there are not as many axes as cues.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> from earatlas.plotting.cues import plot_cues
    >>> noise = np.random.default_rng(0).normal(size=(2, 4000))
    >>> figure = plot_cues(ea.audio_cues(ea.Audio(noise, 16_000)), title="noise")
    >>> [axes.get_title(loc="left") for axes in figure.axes[::2]]
    ['Level difference', 'Phase difference']
    """
    layout = cues.layout
    both = (
        ("Level difference", layout.ild_frequencies, cues.ild,
         (DIFFERENCE_MAP, ILD_LIMIT_DB, "dB, right over left")),
        ("Phase difference", layout.ipd_frequencies, cues.ipd,
         (PHASE_MAP, np.pi, "radians, right minus left")),
    )  # fmt: skip
    panels = [panel for panel in both if len(panel[1])]
    given = _check_axes(ax, len(panels))
    figure = axes_figure(given[0]) if given else new_figure(9.0, 3.0 * len(panels) + 0.4)
    seconds = cues.frames * layout.hop / layout.rate
    for row, (name, bins, values, (cmap, limit, label)) in enumerate(panels, start=1):
        axes = given[row - 1] if given else figure.add_subplot(len(panels), 1, row)
        low, high = (layout.frequencies_hz[bins[i]] / 1000 for i in (0, -1))
        extent = (start_seconds, start_seconds + seconds, float(low), float(high))
        axes.set_facecolor(MISSING)
        image = axes.imshow(
            values,
            origin="lower",
            aspect="auto",
            extent=extent,
            cmap=cmap,
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
        )
        style_axes(axes, name, "seconds" if row == len(panels) else "", "kHz")
        bar = add_colour_bar(image, axes, label)
        if cmap == PHASE_MAP:
            phase_labels(bar.ax.yaxis)
    return figure if given else add_title(figure, title)


def _check_axes(ax: Axes | Sequence[Axes] | None, count: int) -> list[Axes] | None:
    """Return the given axes as a list of this length, or None if none are given."""
    if ax is None:
        return None
    axes = [ax] if isinstance(ax, Axes) else list(ax)
    if len(axes) != count:
        raise InputError(
            f"ax must have one Axes per cue, got {len(axes)} for {count} cues. Give as many, or a "
            "layout with fewer cues."
        )
    return axes
