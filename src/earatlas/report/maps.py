"""Maps for a page: where sources are, over the whole space, from near by, or around the head.

In: posteriors and their maps. Out: HTML text, of SVG with images of the densities in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane
from earatlas.plotting.palette import colour_of
from earatlas.plotting.posterior_maps import BeliefMap
from earatlas.report.charts import Chart, Ticks, tick_values
from earatlas.report.images import mask_image, on_colour
from earatlas.types import Array

__all__ = ["compass", "map_chart"]

# Words on the compass: x, y and which end of the word is there.
_WORDS = (
    ("front", 0, -45, "middle"),
    ("behind", 0, 51, "middle"),
    ("left", -61, -4, "start"),
    ("right", 61, -4, "end"),
)
# (Level, opacity) of a posterior's cells.
_SHADES = (
    (0.0, 0.9),
    (0.48, 0.8),
    (0.52, 0.45),
    (0.88, 0.35),
    (0.92, 0.12),
    (0.99, 0.03),
    (1.0, 0.0),
)
_RING, _LOBE = 78.0, 30.0  # radius of the compass, and the height of the highest lobe


@dataclass(frozen=True)
class _Frame:
    """Where the places of a map lie in its SVG: left on the left, up is up, degrees as units."""

    left: float
    right: float
    low: float
    high: float
    turned: bool  # the first coordinate is an azimuth, which grows to the left
    wrapped: bool  # … and comes round
    flat: bool  # L = 1: there is no second coordinate

    @classmethod
    def of(cls, posteriors: Sequence[tuple[int, DirectionPosterior, BeliefMap]]) -> _Frame:
        space = posteriors[0][1].space
        extents = np.array([d.extent for _, _, d in posteriors])
        left, right = float(extents[:, 0].min()), float(extents[:, 1].max())
        low, high = float(extents[:, 2].min()), float(extents[:, 3].max())
        if space.dims == 1:
            low, high = 0.0, 0.4 * (right - left)
        turned, wrapped = space.holds_directions, not isinstance(space, Plane)
        return cls(left, right, low, high, turned, wrapped, space.dims == 1)

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def middle(self) -> float:
        return 0.5 * (self.left + self.right)

    @property
    def height(self) -> float:
        return self.high - self.low

    def across(self, x: float) -> float:
        return self.right - x if self.turned else x - self.left

    def spot(self, place: Array) -> tuple[float, float]:
        """Where a mark goes: what lies beyond the map is marked on its edge."""
        y = 0.12 * self.height if self.flat else self.high - float(place[1])
        x = self.across(float(place[0]))
        if self.wrapped and not 0 <= x <= self.width:
            x = self.across(float(wrap_degrees(place[0] - self.middle)) + self.middle)
        return min(max(x, 0.0), self.width), min(max(y, 0.0), self.height)

    def ticks(self) -> tuple[Ticks, Ticks]:
        if self.turned:
            sizes: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 45.0, 90.0)
            x, y = (
                tick_values(self.left, self.right, 5, sizes),
                tick_values(self.low, self.high, 6, sizes),
            )
            names = ([_sideways(v) for v in x], [f"{v:g}°".replace("-", "−") for v in y])
        else:
            sizes = tuple(m * 10.0**p for p in range(-2, 6) for m in (1, 2, 5))
            x, y = (
                tick_values(self.left, self.right, 6, sizes),
                tick_values(self.low, self.high, 5, sizes),
            )
            names = ([f"{v:g}" for v in x], [f"{v:g}" for v in y])
        columns = [self.across(float(v)) / self.width for v in x]
        rows = [(float(v) - self.low) / self.height for v in y]
        # A label close to an end would be moved inwards, on a phone into its neighbour.
        across = [t for t in zip(columns, names[0], strict=True) if not 0.001 < _to_end(t[0]) < 0.1]
        return across, [] if self.flat else list(zip(rows, names[1], strict=True))


def _to_end(at: float) -> float:
    return min(at, 1 - at)


def _sideways(turn: float) -> str:
    azimuth = float(wrap_degrees(turn))
    side = " left" if azimuth > 0 else " right"
    return f"{abs(azimuth):g}°{side if 0 < abs(azimuth) < 180 else ''}"


def map_chart(
    posteriors: Sequence[tuple[int, DirectionPosterior, BeliefMap]],
    *,
    truths: Sequence[Array] = (),
    caption: str,
    alt: str,
    key: str = "",
) -> str:
    """Beliefs of sources (m, posterior, its map) in their colours, their peaks, and true places.

    `caption` and `key` are HTML, `alt` is text.
    """
    frame = _Frame.of(posteriors)
    columns, rows = frame.ticks()
    wide, tall, unit = frame.width, frame.height, frame.width / 360
    parts = [_line(at * wide, 0, at * wide, tall) for at, _ in columns]
    parts += [_line(0, tall * (1 - at), wide, tall * (1 - at)) for at, _ in rows]
    for m, _, drawn in posteriors:
        parts.append((_arc if frame.flat else _regions)(m, drawn, frame))
    # One alone needs no number, and a smaller mark hides less of its regions.
    mark, size = (_dot, 4 * unit) if len(posteriors) == 1 else (_badge, 8 * unit)
    parts += [_ring(*frame.spot(place), size + 3 * unit) for place in truths]
    parts += [mark(m, *frame.spot(posterior.best), size) for m, posterior, _ in posteriors]
    inside = (
        f'<svg viewBox="0 0 {wide:.2f} {tall:.2f}" role="img" aria-label="{escape(alt)}">'
        f"{''.join(parts)}</svg>"
    )
    shape = f"aspect-ratio:{wide:.2f}/{tall:.2f}"
    return Chart(caption, inside, shape, columns, rows, key).html()


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"/>'


def _regions(m: int, drawn: BeliefMap, frame: _Frame) -> str:
    """The 50 % region strong, the 90 % one faint, and hardly anything of what is left."""
    levels, opacities = np.array(_SHADES).T
    shade = np.interp(drawn.levels, levels, opacities)
    return _layer(m, shade, drawn, frame)


def _layer(m: int, shade: Array, drawn: BeliefMap, frame: _Frame) -> str:
    left, right, low, high = drawn.extent
    image = mask_image(shade[:, ::-1] if frame.turned else shade, colour_of(m))
    return (
        f'<image href="{image}" x="{min(frame.across(left), frame.across(right)):.2f}" '
        f'y="{frame.high - high:.2f}" width="{right - left:.2f}" height="{high - low:.2f}" '
        'preserveAspectRatio="none"/>'
    )


def _arc(m: int, drawn: BeliefMap, frame: _Frame) -> str:
    """The density over one coordinate, from the floor of the frame."""
    heights = frame.height * (1 - 0.75 * np.exp(drawn.log_density[0]))
    points = [(frame.across(float(x)), y) for x, y in zip(drawn.x, heights, strict=True)]
    ends = [(points[0][0], frame.height), *points, (points[-1][0], frame.height)]
    outline = " ".join(f"{x:.2f},{y:.2f}" for x, y in ends)
    return f'<polygon points="{outline}" fill="{colour_of(m)}" fill-opacity=".6"/>'


def _ring(x: float, y: float, r: float) -> str:
    """The mark of a true place: a badge that is right lies inside it, and hides nothing of it."""
    place = f'cx="{x:.2f}" cy="{y:.2f}" r="{r:.2f}"'
    return f'<circle class="halo" {place}/><circle class="truth" {place}/>'


def _dot(m: int, x: float, y: float, r: float) -> str:
    """A dot of the colour of source m."""
    return f'<circle class="peak" cx="{x:.2f}" cy="{y:.2f}" r="{r:.2f}" fill="{colour_of(m)}"/>'


def _badge(m: int, x: float, y: float, r: float) -> str:
    """The number of source m on a dot of its colour."""
    return _dot(m, x, y, r) + (
        f'<text x="{x:.2f}" y="{y + 0.36 * 1.25 * r:.2f}" font-size="{1.25 * r:.2f}" '
        f'font-weight="700" text-anchor="middle" fill="{on_colour(colour_of(m))}">{m + 1}</text>'
    )


def _round(azimuth: Array, radius: Array | float) -> str:
    """Points of the compass, ahead at the top and left on the left, as an SVG list."""
    turn = np.radians(azimuth)
    x, y = -radius * np.sin(turn), -radius * np.cos(turn)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _lobe(m: int, posterior: DirectionPosterior) -> str:
    """How probable each azimuth is for source m, as a hill on the ring."""
    cells = np.arange(-180.0, 180.0, 2.0)
    azimuth = posterior.sample(8000)[:, 0]
    counts = np.histogram((azimuth + 181.0) % 360.0, bins=180, range=(0.0, 360.0))[0]
    # Smoothed by 3 degrees, so that a sharp posterior is a needle that can be seen.
    near = np.minimum(cells + 180, 180 - cells)
    kernel = np.exp(-0.5 * (near / 3.0) ** 2)
    hill = np.fft.irfft(np.fft.rfft(counts) * np.fft.rfft(kernel), n=len(cells)).clip(0.0)
    turn, height = np.append(cells, 180.0), np.append(hill, hill[0]) / hill.max()  # no slit behind
    outer, inner = _round(turn, _RING + _LOBE * height), _round(turn[::-1], _RING)
    return f'<polygon points="{outer} {inner}" fill="{colour_of(m)}" fill-opacity=".6"/>'


def compass(
    posteriors: Sequence[tuple[int, DirectionPosterior]], *, truths: Sequence[Array] = (), alt: str
) -> str:
    """The head from above, and around it how probable each azimuth is for each source."""
    parts = [
        f'<circle class="grid" r="{_RING}"/>',
        f'<line class="grid" x1="{-_RING}" x2="{_RING}"/><line class="grid" y1="{-_RING}" '
        f'y2="{_RING}"/>',
        '<path class="head" d="M-6 -23L0 -34L6 -23"/><ellipse class="head" cx="-25" rx="4" ry="8"/>'
        '<ellipse class="head" cx="25" rx="4" ry="8"/><circle class="head" r="25"/>',
    ]
    parts += [
        f'<text class="word" x="{x}" y="{y}" font-size="11" text-anchor="{anchor}">{word}</text>'
        for word, x, y, anchor in _WORDS
    ]
    parts += [_lobe(m, posterior) for m, posterior in posteriors]
    for place in truths:
        x, y = (float(v) for v in _round(np.array([place[0]]), _RING).split(","))
        parts.append(_ring(x, y, 12.5))
    for m, posterior in posteriors:
        x, y = (float(v) for v in _round(posterior.best[:1], _RING).split(","))
        parts.append(_badge(m, x, y, 9.0))
    return (
        f'<svg class="compass" viewBox="-112 -112 224 224" role="img" aria-label="{escape(alt)}">'
        f"{''.join(parts)}</svg>"
    )
