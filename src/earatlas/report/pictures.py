"""Pictures for a page: spectrograms, maps and a compass that suit any width, light and dark.

In: arrays of a scene's `Picture` and beliefs. Out: HTML text. Data are PNG images with a palette,
one pixel a cell, whose colours are see-through where there is little to show, so that the page's
own ground is behind them; what can be written (ticks, labels) is text of the page, what can be
drawn (marks, grids) is SVG. Hence nothing is blurred on a fine screen or tiny on a small one, and
a page needs milliseconds where figures would need seconds.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from earatlas.drawing.belief_maps import FLOOR, BeliefMap, edges
from earatlas.drawing.scenes import colour_of
from earatlas.space.angles import wrap_degrees
from earatlas.space.belief import ChartMixture
from earatlas.space.spaces import Plane
from earatlas.types import Array

__all__ = [
    "Chart",
    "compass",
    "course",
    "ild_image",
    "level_image",
    "map_chart",
    "mask_image",
    "on_colour",
    "png",
    "spectrogram",
    "track_chart",
]

Bytes = NDArray[np.uint8]
Ticks = Sequence[tuple[float, str]]  # (share of the axis from its start, label)

_MISSING = (125, 135, 148, 110)  # grey on a light ground and on a dark one
_STEPS = 48  # shades of an image: more cannot be told apart, and fewer bytes do
_LEFT_LOUDER, _RIGHT_LOUDER = "#2a6fc4", "#d1303f"
_CLEAR = ' class="clear"'
_RING, _LOBE = 78.0, 30.0  # radius of the compass, and the height of the highest lobe


def png(indices: Bytes, palette: Bytes) -> bytes:
    """A PNG file of indices (H, W) into a palette (256 at most, 4) of RGBA."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    height, width = indices.shape
    rows = np.pad(indices, ((0, 0), (1, 0)))  # every row begins with its filter: none
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", palette[:, :3].tobytes()),
            chunk(b"tRNS", palette[:, 3].tobytes()),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            chunk(b"IEND", b""),
        )
    )


def _image(values: Array, colours: Array) -> str:
    """Values (H, W) in [0, 1], first row lowest, as a data URI; NaN is missing."""
    known = ~np.isnan(values)
    shade = np.where(known, np.clip(values, 0.0, 1.0), 0.0) * (len(colours) - 1)
    indices = np.where(known, 1 + np.rint(shade), 0).astype(np.uint8)[::-1]
    palette = np.concatenate([[_MISSING], np.rint(255 * colours)]).astype(np.uint8)
    return "data:image/png;base64," + b64encode(png(indices, palette)).decode("ascii")


def _see_through(colour: str, opacity: Array) -> Array:
    return np.column_stack([np.tile(to_rgb(colour), (len(opacity), 1)), opacity])


@cache
def _magma() -> Array:
    return np.asarray(matplotlib.colormaps["magma"](np.linspace(0, 1, _STEPS)), dtype=np.float64)


def level_image(level_db: Array, top_db: float, range_db: float) -> str:
    """A spectrogram as a data URI, from black at `range_db` below `top_db`."""
    known = np.where(np.isfinite(level_db), level_db, -np.inf)
    return _image(np.clip((known - top_db) / range_db + 1, 0.0, 1.0), _magma())


def ild_image(ild_db: Array, limit_db: float) -> str:
    """Level differences: blue where the left ear is louder, red where the right one is."""
    half = np.linspace(0.0, 1.0, _STEPS)
    left, right = _see_through(_LEFT_LOUDER, half[::-1]), _see_through(_RIGHT_LOUDER, half[1:])
    return _image(0.5 + ild_db / (2 * limit_db), np.concatenate([left, right]))


def mask_image(mask: Array, colour: str) -> str:
    """Probabilities: nothing at 0, the colour at 1."""
    return _image(mask, _see_through(colour, np.linspace(0.0, 1.0, _STEPS)))


def on_colour(colour: str) -> str:
    """Black or white, whichever is easier to read on the colour (WCAG contrast)."""
    c = np.array(to_rgb(colour))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return "#10151a" if linear @ (0.2126, 0.7152, 0.0722) > 0.179 else "#ffffff"


@dataclass(frozen=True)
class Chart:
    """A frame with ticks that are text of the page."""

    caption: str  # HTML
    inside: str  # HTML of what fills the frame
    shape: str  # CSS of the frame: height or aspect-ratio
    x: Ticks = ()
    y: Ticks = ()
    key: str = ""  # HTML of the list items below

    def html(self) -> str:
        """The figure."""
        marks = "".join(
            f'<span{_end(at, "bottom", "top")} style="bottom:{100 * at:.2f}%">{label}</span>'
            for at, label in self.y
        )
        below = "".join(
            f'<span{_end(at, "first", "last")} style="left:{100 * at:.2f}%">{label}</span>'
            for at, label in self.x
        )
        key = f'<ul class="key">{self.key}</ul>' if self.key else ""
        side = f'<div class="y" aria-hidden="true">{marks}</div>' if self.y else ""
        return (
            f"<figure><figcaption>{self.caption}</figcaption>"
            f'<div class="plot{"" if self.y else " bare"}">{side}'
            f'<div class="frame" style="{self.shape}">{self.inside}</div>'
            f'<div class="x" aria-hidden="true">{below}</div></div>{key}</figure>'
        )


def _end(at: float, first: str, last: str) -> str:
    """The class of a label that would stick out of its axis."""
    return f' class="{first}"' if at < 0.02 else f' class="{last}"' if at > 0.98 else ""


def _ticks(low: float, high: float, most: int, sizes: Sequence[float]) -> Array:
    """The multiples of the smallest of the sizes that gives `most` ticks or fewer."""
    size = next((s for s in sizes if (high - low) / s < most), sizes[-1])
    first = np.ceil(low / size - 1e-6)
    return size * np.arange(first, np.floor(high / size + 1e-6) + 1) + 0.0  # no -0


def _times(start: float, end: float) -> Ticks:
    sizes = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200)
    times = _ticks(max(start, 0.0), end, 6, sizes)
    return [((t - start) / (end - start), _clock(round(t, 3), end > 120)) for t in times]


def _clock(seconds: float, long: bool) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if long else f"{seconds:g} s"


def spectrogram(
    image: str,
    seconds: Array,
    frequencies_hz: Array,
    *,
    caption: str,
    alt: str,
    key: str = "",
    opaque: bool = False,
) -> str:
    """An image of bins and frames with its axes; `caption` and `key` are HTML, `alt` is text.

    An image that is not opaque is made brighter on a dark ground.
    """
    start, end = edges(seconds)
    low, high = (f / 1000 for f in edges(frequencies_hz))
    rows = _ticks(low, high, 6, (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50))
    return Chart(
        caption,
        f'<img src="{image}" alt="{escape(alt)}"{"" if opaque else _CLEAR}>',
        "height:11rem",
        _times(start, end),
        [((f - low) / (high - low), f"{f:g}" + (" kHz" if f == rows[-1] else "")) for f in rows],
        key,
    ).html()


def _degrees_across(azimuth: float) -> str:
    side = " left" if azimuth > 0 else " right"
    return f"{abs(azimuth):g}°{side if 0 < abs(azimuth) < 180 else ''}"


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
    def of(cls, beliefs: Sequence[tuple[int, ChartMixture, BeliefMap]]) -> _Frame:
        space = beliefs[0][1].space
        extents = np.array([d.extent for _, _, d in beliefs])
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
            x, y = _ticks(self.left, self.right, 5, sizes), _ticks(self.low, self.high, 6, sizes)
            names = ([_sideways(v) for v in x], [f"{v:g}°".replace("-", "−") for v in y])
        else:
            sizes = tuple(m * 10.0**p for p in range(-2, 6) for m in (1, 2, 5))
            x, y = _ticks(self.left, self.right, 6, sizes), _ticks(self.low, self.high, 5, sizes)
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
    beliefs: Sequence[tuple[int, ChartMixture, BeliefMap]],
    *,
    truths: Sequence[Array] = (),
    caption: str,
    alt: str,
    key: str = "",
) -> str:
    """Beliefs of sources (m, belief, its map) in their colours, their peaks, and true places.

    One belief alone is drawn as log-density, several as credible regions. `caption` and `key` are
    HTML, `alt` is text.
    """
    frame = _Frame.of(beliefs)
    columns, rows = frame.ticks()
    wide, tall, unit = frame.width, frame.height, frame.width / 360
    parts = [_line(at * wide, 0, at * wide, tall) for at, _ in columns]
    parts += [_line(0, tall * (1 - at), wide, tall * (1 - at)) for at, _ in rows]
    for m, _, drawn in beliefs:
        draw = _arc if frame.flat else _density if len(beliefs) == 1 else _regions
        parts.append(draw(m, drawn, frame))
    for place in truths:
        parts.append(_ring(*frame.spot(place), 11 * unit))
    for m, belief, _ in beliefs:
        parts.append(_badge(m, *frame.spot(belief.best), 8 * unit))
    inside = (
        f'<svg viewBox="0 0 {wide:.2f} {tall:.2f}" role="img" aria-label="{escape(alt)}">'
        f"{''.join(parts)}</svg>"
    )
    shape = f"aspect-ratio:{wide:.2f}/{tall:.2f}"
    return Chart(caption, inside, shape, columns, rows, key).html()


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"/>'


def _density(m: int, drawn: BeliefMap, frame: _Frame) -> str:
    return _layer(m, np.clip(1 - drawn.log_density / FLOOR, 0.0, 1.0), drawn, frame)


def _regions(m: int, drawn: BeliefMap, frame: _Frame) -> str:
    """The 50 % region full, the 90 % one half, and what is left faint."""
    shade = np.interp(drawn.levels, (0.0, 0.5, 0.9, 0.99, 1.0), (0.9, 0.75, 0.45, 0.06, 0.0))
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


def _badge(m: int, x: float, y: float, r: float) -> str:
    """The number of source m on a dot of its colour."""
    colour = colour_of(m)
    return (
        f'<circle class="peak" cx="{x:.2f}" cy="{y:.2f}" r="{r:.2f}" fill="{colour}"/>'
        f'<text x="{x:.2f}" y="{y + 0.36 * 1.25 * r:.2f}" font-size="{1.25 * r:.2f}" '
        f'font-weight="700" text-anchor="middle" fill="{on_colour(colour)}">{m + 1}</text>'
    )


def _round(azimuth: Array, radius: Array | float) -> str:
    """Points of the compass, ahead at the top and left on the left, as an SVG list."""
    turn = np.radians(azimuth)
    x, y = -radius * np.sin(turn), -radius * np.cos(turn)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def compass(
    beliefs: Sequence[tuple[int, ChartMixture]], *, truths: Sequence[Array] = (), alt: str
) -> str:
    """The head from above, and around it how probable each azimuth is for each source."""
    parts = [
        f'<circle class="grid" r="{_RING}"/>',
        f'<line class="grid" x1="{-_RING}" x2="{_RING}"/><line class="grid" y1="{-_RING}" '
        f'y2="{_RING}"/>',
        '<path class="head" d="M-6 -23L0 -34L6 -23"/><ellipse class="head" cx="-25" rx="4" ry="8"/>'
        '<ellipse class="head" cx="25" rx="4" ry="8"/><circle class="head" r="25"/>',
    ]
    for word, column, row, anchor in (
        ("front", 0, -45, "middle"), ("behind", 0, 51, "middle"),
        ("left", -61, -4, "start"), ("right", 61, -4, "end"),
    ):  # fmt: skip
        parts.append(
            f'<text class="word" x="{column}" y="{row}" font-size="11" '
            f'text-anchor="{anchor}">{word}</text>'
        )
    cells = np.arange(-180.0, 180.0, 2.0)
    for m, belief in beliefs:
        azimuth = belief.sample(8000)[:, 0]
        counts = np.histogram((azimuth + 181.0) % 360.0, bins=180, range=(0.0, 360.0))[0]
        # Smoothed by 3 degrees, so that a sharp belief is a needle that can be seen.
        near = np.minimum(cells + 180, 180 - cells)
        kernel = np.exp(-0.5 * (near / 3.0) ** 2)
        lobe = np.fft.irfft(np.fft.rfft(counts) * np.fft.rfft(kernel), n=len(cells)).clip(0.0)
        outer = _round(cells, _RING + _LOBE * lobe / lobe.max())
        inner = _round(cells[::-1], _RING)
        parts.append(f'<polygon points="{outer} {inner}" fill="{colour_of(m)}" fill-opacity=".6"/>')
    for place in truths:
        x, y = (float(v) for v in _round(np.array([place[0]]), _RING).split(","))
        parts.append(_ring(x, y, 12.5))
    for m, belief in beliefs:
        x, y = (float(v) for v in _round(belief.best[:1], _RING).split(","))
        parts.append(_badge(m, x, y, 9.0))
    return (
        f'<svg class="compass" viewBox="-112 -112 224 224" role="img" aria-label="{escape(alt)}">'
        f"{''.join(parts)}</svg>"
    )


def track_chart(seconds: Array, track: Array, *, caption: str, alt: str) -> str:
    """Azimuths (W, M) of the sources over time (W,), left at the top; NaN is a gap."""
    start, end = edges(seconds)
    parts = [f'<line class="grid" x1="0" x2="100" y1="{y}" y2="{y}"/>' for y in (90, 180, 270)]
    for m, azimuths in enumerate(track.T):
        for a, b, s, e in zip(azimuths, azimuths[1:], seconds, seconds[1:], strict=False):
            if abs(a - b) < 180:  # not through the seam behind the head, nor NaN
                x1, x2 = (100 * (v - start) / (end - start) for v in (s, e))
                parts.append(
                    f'<line class="way" x1="{x1:.2f}" y1="{180 - a:.1f}" x2="{x2:.2f}" '
                    f'y2="{180 - b:.1f}" stroke="{colour_of(m)}"/>'
                )
    inside = (
        f'<svg viewBox="0 0 100 360" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(alt)}">{"".join(parts)}</svg>'
    )
    sides = [(0.0, "180°"), (0.25, "right"), (0.5, "front"), (0.75, "left"), (1.0, "180°")]
    return Chart(caption, inside, "height:10rem", _times(start, end), sides).html()


def course(values: Sequence[float], *, caption: str, alt: str) -> str:
    """A quantity over the iterations as a line."""
    v = np.array(values, dtype=np.float64)
    low, high = float(v.min()), float(v.max())
    span = high - low or 1.0
    x = np.linspace(0.0, 100.0, len(v)) if len(v) > 1 else np.array([0.0])
    y = 95 - 90 * (v - low) / span
    points = " ".join(f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True))
    inside = (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(alt)}"><polyline class="course" points="{points}"/></svg>'
    )
    ticks = [(0.0, "iteration 1"), (1.0, str(len(v)))] if len(v) > 1 else [(0.0, "iteration 1")]
    return Chart(caption, inside, "height:8rem", ticks).html()
