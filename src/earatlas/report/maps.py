"""Maps for pages: posteriors over the whole space, as a close-up, or as a compass.

The inputs are posteriors and their maps, the output is HTML with SVG that contains images of the
densities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane
from earatlas.plotting.palette import DEGREE_STEPS, source_colour, text_colour
from earatlas.plotting.posterior_maps import PosteriorMap
from earatlas.report.charts import Chart, Ticks, tick_values
from earatlas.report.images import mask_image
from earatlas.types import Array

__all__ = ["compass", "map_chart", "region_opacities"]

# Labels of the compass: text, x, y, text anchor.
_COMPASS_LABELS = (
    ("front", 0, -45, "middle"),
    ("behind", 0, 51, "middle"),
    ("left", -61, -4, "start"),
    ("right", 61, -4, "end"),
)
# Opacity of a cell by its credible level: (level, opacity).
_OPACITIES = (
    (0.0, 0.9),
    (0.48, 0.8),
    (0.52, 0.45),
    (0.88, 0.35),
    (0.92, 0.0),
    (1.0, 0.0),
)
_COMPASS_RADIUS = 78.0  # SVG units


@dataclass(frozen=True)
class _Frame:
    """Coordinates of a map's SVG: left is on the left, up is up, one unit per degree."""

    left: float
    right: float
    low: float
    high: float
    azimuth: bool  # the first coordinate is an azimuth, which increases to the left
    periodic: bool  # the first coordinate has a period of 360 degrees
    flat: bool  # L = 1: there is no second coordinate
    downward: bool = False  # the second coordinate increases downwards, as in an image

    @classmethod
    def of(cls, posteriors: Sequence[tuple[int, DirectionPosterior, PosteriorMap]]) -> _Frame:
        """Return the frame that contains the maps of all posteriors."""
        space = posteriors[0][1].space
        extents = np.array([drawn.extent for _, _, drawn in posteriors])
        left, right = float(extents[:, 0].min()), float(extents[:, 1].max())
        low, high = float(extents[:, 2].min()), float(extents[:, 3].max())
        if space.dims == 1:
            low, high = 0.0, 0.4 * (right - left)
        azimuth, periodic = space.holds_directions, not isinstance(space, Plane)
        downward = space.unit_name == "pixels"
        return cls(left, right, low, high, azimuth, periodic, space.dims == 1, downward)

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def middle(self) -> float:
        return 0.5 * (self.left + self.right)

    @property
    def height(self) -> float:
        return self.high - self.low

    def to_x(self, coordinate: float) -> float:
        """Return the horizontal SVG position of a first coordinate."""
        return self.right - coordinate if self.azimuth else coordinate - self.left

    def to_y(self, coordinate: float) -> float:
        """Return the vertical SVG position of a second coordinate."""
        return coordinate - self.low if self.downward else self.high - coordinate

    def mark_position(self, place: Array) -> tuple[float, float]:
        """Return the SVG position of a mark; places outside the map are marked on its edge."""
        y = 0.12 * self.height if self.flat else self.to_y(float(place[1]))
        x = self.to_x(float(place[0]))
        if self.periodic and not 0 <= x <= self.width:
            x = self.to_x(float(wrap_degrees(place[0] - self.middle)) + self.middle)
        return min(max(x, 0.0), self.width), min(max(y, 0.0), self.height)

    def ticks(self) -> tuple[Ticks, Ticks]:
        """Return the ticks of both axes."""
        if self.azimuth:
            x = tick_values(self.left, self.right, 5, DEGREE_STEPS)
            y = tick_values(self.low, self.high, 6, DEGREE_STEPS)
            labels = ([_format_azimuth(v) for v in x], [f"{v:g}°".replace("-", "−") for v in y])
        else:
            steps = tuple(m * 10.0**p for p in range(-2, 6) for m in (1, 2, 5))
            x = tick_values(self.left, self.right, 6, steps)
            y = tick_values(self.low, self.high, 5, steps)
            labels = ([f"{v:g}" for v in x], [f"{v:g}" for v in y])
        columns = [self.to_x(float(v)) / self.width for v in x]
        rows = [1 - self.to_y(float(v)) / self.height for v in y]
        # A label close to an end is moved inwards; on a narrow screen it would overlap the next.
        x_ticks = [
            tick
            for tick in zip(columns, labels[0], strict=True)
            if not 0.001 < min(tick[0], 1 - tick[0]) < 0.1
        ]
        return x_ticks, [] if self.flat else list(zip(rows, labels[1], strict=True))


def _format_azimuth(degrees: float) -> str:
    """Format an azimuth of any turn as degrees to the left or right."""
    azimuth = float(wrap_degrees(degrees))
    side = " left" if azimuth > 0 else " right"
    return f"{abs(azimuth):g}°{side if 0 < abs(azimuth) < 180 else ''}"


def map_chart(
    posteriors: Sequence[tuple[int, DirectionPosterior, PosteriorMap]],
    *,
    truths: Sequence[Array] = (),
    alternatives: Sequence[tuple[int, Array]] = (),
    caption: str,
    alt: str,
    key: str = "",
    background: str = "",
) -> str:
    """Return a map of sources (m, posterior, its map) in their colours, and rings at `truths`.

    `alternatives` are further possible directions of sources m, which are small dots.
    `caption` and `key` are HTML, `alt` is text, `background` is the data URI of a picture.
    """
    frame = _Frame.of(posteriors)
    columns, rows = frame.ticks()
    width, height, unit = frame.width, frame.height, frame.width / 360
    parts = [_line(at * width, 0, at * width, height) for at, _ in columns]
    parts += [_line(0, height * (1 - at), width, height * (1 - at)) for at, _ in rows]
    if background:
        parts = [
            f'<image href="{background}" x="{frame.to_x(0):.2f}" y="{frame.to_y(0):.2f}" '
            f'width="{width:.2f}" height="{height:.2f}" preserveAspectRatio="none"/>'
        ]
    for m, _, drawn in posteriors:
        parts.append((_density_curve if frame.flat else _regions)(m, drawn, frame))
    # A single source needs no number, and a smaller mark hides less of its regions.
    mark, size = (_dot, 4 * unit) if len(posteriors) == 1 else (_badge, 8 * unit)
    parts += [_ring(*frame.mark_position(place), size + 3 * unit) for place in truths]
    parts += [_dot(m, *frame.mark_position(place), 2.5 * unit) for m, place in alternatives]
    parts += [mark(m, *frame.mark_position(p.direction), size) for m, p, _ in posteriors]
    inside = (
        f'<svg viewBox="0 0 {width:.2f} {height:.2f}" role="img" aria-label="{escape(alt)}">'
        f"{''.join(parts)}</svg>"
    )
    shape = f"aspect-ratio:{width:.2f}/{height:.2f}"
    return Chart(caption, inside, shape, columns, rows, key).html()


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"/>'


def region_opacities(drawn: PosteriorMap) -> Array:
    """Return the opacity (Y, X) of each cell: dark in the 50 % region, light in the 90 % region."""
    levels, opacities = np.array(_OPACITIES).T
    opacity: Array = np.interp(drawn.credible_levels, levels, opacities)
    return opacity


def _regions(m: int, drawn: PosteriorMap, frame: _Frame) -> str:
    """Return an image of the 50 % region (dark) and the 90 % region (light)."""
    opacity = region_opacities(drawn)
    left, right, low, high = drawn.extent
    opacity = opacity[::-1] if frame.downward else opacity
    image = mask_image(opacity[:, ::-1] if frame.azimuth else opacity, source_colour(m))
    return (
        f'<image href="{image}" x="{min(frame.to_x(left), frame.to_x(right)):.2f}" '
        f'y="{min(frame.to_y(low), frame.to_y(high)):.2f}" '
        f'width="{right - left:.2f}" height="{high - low:.2f}" preserveAspectRatio="none"/>'
    )


def _density_curve(m: int, drawn: PosteriorMap, frame: _Frame) -> str:
    """Return the density over one coordinate as a filled polygon."""
    heights = frame.height * (1 - 0.75 * np.exp(drawn.log_density[0]))
    points = [(frame.to_x(float(x)), y) for x, y in zip(drawn.x, heights, strict=True)]
    closed = [(points[0][0], frame.height), *points, (points[-1][0], frame.height)]
    outline = " ".join(f"{x:.2f},{y:.2f}" for x, y in closed)
    return f'<polygon points="{outline}" fill="{source_colour(m)}" fill-opacity=".6"/>'


def _ring(x: float, y: float, r: float) -> str:
    """Return the mark of a true place: a ring around the badge of a correct estimate."""
    place = f'cx="{x:.2f}" cy="{y:.2f}" r="{r:.2f}"'
    return f'<circle class="halo" {place}/><circle class="truth" {place}/>'


def _dot(m: int, x: float, y: float, r: float) -> str:
    """Return a dot in the colour of source m."""
    colour = source_colour(m)
    return f'<circle class="peak" cx="{x:.2f}" cy="{y:.2f}" r="{r:.2f}" fill="{colour}"/>'


def _badge(m: int, x: float, y: float, r: float) -> str:
    """Return the number of source m on a dot in its colour."""
    fill = text_colour(source_colour(m))
    return _dot(m, x, y, r) + (
        f'<text x="{x:.2f}" y="{y + 0.36 * 1.25 * r:.2f}" font-size="{1.25 * r:.2f}" '
        f'font-weight="700" text-anchor="middle" fill="{fill}">{m + 1}</text>'
    )


def _compass_points(azimuth: Array, radius: Array | float) -> str:
    """Return points on the compass, front at the top and left on the left, as an SVG list."""
    angle = np.radians(azimuth)
    x, y = -radius * np.sin(angle), -radius * np.cos(angle)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _compass_position(azimuth: Array) -> tuple[float, float]:
    """Return the position of one azimuth (1,) on the ring."""
    x, y = _compass_points(azimuth, _COMPASS_RADIUS).split(",")
    return float(x), float(y)


def _lobe(m: int, posterior: DirectionPosterior) -> str:
    """Return the marginal density over azimuth of source m as a lobe on the ring."""
    cells = np.arange(-180.0, 180.0, 2.0)
    azimuth = posterior.sample(8000)[:, 0]
    counts = np.histogram((azimuth + 181.0) % 360.0, bins=180, range=(0.0, 360.0))[0]
    distance = np.minimum(cells + 180, 180 - cells)
    # Smoothed by 3 degrees, so that the lobe of a sharp posterior stays visible.
    kernel = np.exp(-0.5 * (distance / 3.0) ** 2)
    density = np.fft.irfft(np.fft.rfft(counts) * np.fft.rfft(kernel), n=len(cells)).clip(0.0)
    # The first value is repeated, so that the lobe has no slit behind the head.
    angles, height = np.append(cells, 180.0), np.append(density, density[0]) / density.max()
    outer = _compass_points(angles, _COMPASS_RADIUS + 30.0 * height)
    inner = _compass_points(angles[::-1], _COMPASS_RADIUS)
    return f'<polygon points="{outer} {inner}" fill="{source_colour(m)}" fill-opacity=".6"/>'


def compass(
    posteriors: Sequence[tuple[int, DirectionPosterior]],
    *,
    truths: Sequence[Array] = (),
    alternatives: Sequence[tuple[int, Array]] = (),
    alt: str,
) -> str:
    """Return a head seen from above, with the density over azimuth of each source around it.

    `alternatives` are further possible directions of sources m, which are small dots.
    """
    r = _COMPASS_RADIUS
    parts = [
        f'<circle class="grid" r="{r}"/>',
        f'<line class="grid" x1="{-r}" x2="{r}"/><line class="grid" y1="{-r}" y2="{r}"/>',
        '<path class="head" d="M-6 -23L0 -34L6 -23"/><ellipse class="head" cx="-25" rx="4" ry="8"/>'
        '<ellipse class="head" cx="25" rx="4" ry="8"/><circle class="head" r="25"/>',
    ]
    parts += [
        f'<text class="word" x="{x}" y="{y}" font-size="11" text-anchor="{anchor}">{label}</text>'
        for label, x, y, anchor in _COMPASS_LABELS
    ]
    parts += [_lobe(m, posterior) for m, posterior in posteriors]
    parts += [_ring(*_compass_position(place[:1]), 12.5) for place in truths]
    parts += [_dot(m, *_compass_position(place[:1]), 4.0) for m, place in alternatives]
    parts += [_badge(m, *_compass_position(p.direction[:1]), 9.0) for m, p in posteriors]
    return (
        f'<svg class="compass" viewBox="-112 -112 224 224" role="img" aria-label="{escape(alt)}">'
        f"{''.join(parts)}</svg>"
    )
