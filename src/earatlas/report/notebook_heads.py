"""HTML views of heads and learned heads for notebooks.

Input: a head or an atlas. Output: HTML of `earatlas.report.notebook_parts`, with a map of the level
difference between the ears, or of the centres of the charts.
"""

from __future__ import annotations

import numpy as np

from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, MeasuredCues
from earatlas.localization.learned_head import LearnedHead
from earatlas.plotting.palette import ILD_LIMIT_DB, LEFT_EAR, RIGHT_EAR, source_colour
from earatlas.report.charts import ELEVATION_TICKS, Chart
from earatlas.report.images import ild_image
from earatlas.report.notebook_parts import fact_list, framed, heading
from earatlas.report.sections import colour_scale
from earatlas.types import Array
from earatlas.wording import format_sampling_rate

__all__ = ["head_view", "learned_head_view"]

# Evidence: docs/figures/settings/report.md, "notebook".
_CELL_DEGREES = 5.0  # width of the cells of a head's map

_AZIMUTHS = [(0.0, "180°"), (0.25, "90° left"), (0.5, "0°"), (0.75, "90° right"), (1.0, "180°")]


def head_view(head: Head) -> str:
    """Return the view of a head: what was measured, and a map of the level difference."""
    facts = {
        "Directions": f"{len(head)} on the {head.space.name}",
        "Spacing": f"{head.spacing_degrees:.1f}° to the nearest neighbour",
        "Measurement": _measurement(head),
        "Licence": head.licence,
        "Provenance": head.provenance,
    }
    return framed(
        heading(f"Head {head.name}"), f'<div class="view">{fact_list(facts)}{_head_map(head)}</div>'
    )


def _measurement(head: Head) -> str:
    """Describe what was measured at the ears."""
    if isinstance(head.ears, MeasuredCues):
        return f"cues of noise, {len(head.ears.layout.cue_kinds)} per direction"
    rate = format_sampling_rate(round(head.ears.rate))
    return f"impulse responses, {head.ears.samples.shape[-1]} samples at {rate}"


def _level_differences(head: Head) -> Array:
    """Return the mean level difference (N,) of each direction in dB, right over left."""
    if isinstance(head.ears, MeasuredCues):
        ild = head.ears.layout.cue_kinds == "ild"
        differences: Array = head.ears.values[:, ild].mean(axis=1)
        return differences
    # The floor keeps a silent response finite.
    energy = (head.ears.samples**2).sum(axis=2) + 1e-30
    return np.asarray(10 * np.log10(energy[:, 1] / energy[:, 0]))


def _head_map(head: Head) -> str:
    """Return a map of the level difference at the measured direction nearest to each cell."""
    azimuth = np.arange(180.0 - _CELL_DEGREES / 2, -180.0, -_CELL_DEGREES)  # left to right
    elevation = np.arange(-90.0 + _CELL_DEGREES / 2, 90.0, _CELL_DEGREES)
    cells = np.stack(np.meshgrid(azimuth, elevation), axis=-1).reshape(-1, 2)
    nearest = Sphere().nearest(head.directions, cells)
    near = np.nan_to_num(1.5 * head.spacing_degrees) + _CELL_DEGREES / 2
    measured = Sphere().distance(head.directions[nearest], cells) <= near
    values = np.where(measured, _level_differences(head)[nearest], np.nan)
    image = ild_image(values.reshape(len(elevation), -1), ILD_LIMIT_DB)
    return Chart(
        "Level difference <span>of the ears, by direction</span>",
        f'<img src="{image}" alt="Map of the level difference over azimuth and elevation" '
        'class="clear">',
        "aspect-ratio:2/1",
        _AZIMUTHS,
        ELEVATION_TICKS,
        colour_scale((LEFT_EAR, "transparent", RIGHT_EAR), "left louder", "right louder")
        + '<li><span class="swatch missing"></span> not measured</li>',
    ).html()


def learned_head_view(head: LearnedHead) -> str:
    """Return the view of a learned head: its data, its errors, and the centres of its charts."""
    accuracy = head.accuracy
    errors = ""
    if accuracy is not None:
        errors = (
            f"median {accuracy.median_degrees:.1f}°, mean {accuracy.mean_degrees:.1f}° "
            f"at {accuracy.held_out} held-out directions"
        )
    facts = {
        "Learned from": f"{head.about.get('directions', '?')} directions on the {head.space.name}",
        "Error": errors,
        "Model": f"{len(head.model.weights)} charts, {len(head.layout.cue_kinds)} cues",
        "Rooms": "yes" if head.reverberant_localizer is not None else "only as it was measured",
        "Licence": str(head.about.get("licence", "")),
    }
    return framed(
        heading(f"{type(head).__name__} {head.about.get('head', '?')}"),
        f'<div class="view">{fact_list(facts)}{_chart_centres(head)}</div>',
    )


def _chart_centres(head: LearnedHead) -> str:
    """Return a map of the centres of the charts; nothing if they are no directions."""
    if not head.space.holds_directions:
        return ""
    dots = "".join(
        f'<circle class="peak" cx="{180 - azimuth:.1f}" cy="{90 - elevation:.1f}" r="3.5" '
        f'fill="{source_colour(0)}"/>'
        for azimuth, elevation in head.model.centres
    )
    inside = (
        f'<svg viewBox="0 0 360 180" role="img" aria-label="Centres of the charts">{dots}</svg>'
    )
    caption = "Centres of the charts <span>azimuth and elevation</span>"
    return Chart(caption, inside, "aspect-ratio:2/1", _AZIMUTHS, ELEVATION_TICKS).html()
