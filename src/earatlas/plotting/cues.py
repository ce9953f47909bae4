"""The cue spectrograms of a recording; missing bins are grey."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from earatlas.features.cues import Cues
from earatlas.plotting.palette import DIFFERENCE_MAP, ILD_LIMIT_DB, MISSING, PHASE_MAP
from earatlas.plotting.style import colour_bar, figure_of, headed, styled

__all__ = ["plot_cues"]


def plot_cues(cues: Cues, *, title: str = "", start_seconds: float = 0.0) -> Figure:
    """ILD and IPD spectrograms of a recording; grey where nothing was observed."""
    layout = cues.layout
    both = (
        ("Level difference", layout.ild_frequencies, cues.ild,
         (DIFFERENCE_MAP, ILD_LIMIT_DB, "dB, right over left")),
        ("Phase difference", layout.ipd_frequencies, cues.ipd, (PHASE_MAP, np.pi, "radians")),
    )  # fmt: skip
    panels = [panel for panel in both if len(panel[1])]
    figure = figure_of(9.0, 3.0 * len(panels) + 0.4)
    seconds = cues.frames * layout.hop / layout.rate
    for row, (kind, bins, values, (cmap, limit, label)) in enumerate(panels, start=1):
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
        styled(axes, kind, "seconds" if row == len(panels) else "", "kHz")
        colour_bar(image, axes, label)
    return headed(figure, title)
