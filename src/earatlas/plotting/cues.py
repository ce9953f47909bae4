"""Figure of the cue spectrograms of a recording; missing bins are grey."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from earatlas.features.cues import Cues
from earatlas.plotting.palette import DIFFERENCE_MAP, ILD_LIMIT_DB, MISSING, PHASE_MAP
from earatlas.plotting.style import add_colour_bar, add_title, new_figure, style_axes

__all__ = ["plot_cues"]


def plot_cues(cues: Cues, *, title: str = "", start_seconds: float = 0.0) -> Figure:
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

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

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
        ("Phase difference", layout.ipd_frequencies, cues.ipd, (PHASE_MAP, np.pi, "radians")),
    )  # fmt: skip
    panels = [panel for panel in both if len(panel[1])]
    figure = new_figure(9.0, 3.0 * len(panels) + 0.4)
    seconds = cues.frames * layout.hop / layout.rate
    for row, (name, bins, values, (cmap, limit, label)) in enumerate(panels, start=1):
        axes = figure.add_subplot(len(panels), 1, row)
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
        add_colour_bar(image, axes, label)
    return add_title(figure, title)
