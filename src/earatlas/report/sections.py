"""The sections of a scene's page, as HTML.

In: a `FoundScene`, what is `Known` of it, and players for its sounds. Out: text, a
section a method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from earatlas.plotting.palette import ILD_LIMIT_DB, LEFT, LEVEL_RANGE_DB, RIGHT, colour_of
from earatlas.plotting.posterior_maps import belief_map, zoomed_map
from earatlas.report.charts import course, spectrogram
from earatlas.report.comparison import MIXTURE, Known, comparison_table
from earatlas.report.images import LEVEL_STOPS, ild_image, level_image, mask_image, on_colour
from earatlas.report.maps import compass, map_chart
from earatlas.report.spectrograms import Levels
from earatlas.report.tracks import track_charts
from earatlas.separation.result import FoundScene, FoundSource
from earatlas.types import Array
from earatlas.wording import (
    error_words,
    length_words,
    number_words,
    percent_words,
    place_words,
    rate_words,
    speed_words,
    sure_words,
)

__all__ = ["Sections"]

_REGIONS = {1: "how probable each azimuth is", 2: "strong: 50 % region, faint: 90 %"}


def _card(heading: str, *content: str, kind: str = "card", style: str = "") -> str:
    style = f' style="{style}"' if style else ""
    return f'<section class="{kind}"{style}>{heading}{"".join(content)}</section>'


def _scale(colours: Sequence[str], low: str, high: str) -> str:
    """A key's colour scale between two words."""
    ground = f"background:linear-gradient(90deg,{','.join(colours)}),var(--plot)"
    return f'<li>{low} <span class="ramp" style="{ground}"></span> {high}</li>'


_GREY_KEY = '<li><span class="swatch missing"></span> nothing heard</li>'
_TRUE_KEY = (
    '<li><svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">'
    '<circle class="truth" cx="6" cy="6" r="4.5"/></svg> true direction</li>'
)


def _doubts(doubts: Sequence[str]) -> str:
    """What speaks against an answer; nothing where nothing does."""
    if not doubts:
        return ""
    items = "".join(f"<li>{escape(doubt)}</li>" for doubt in doubts)
    return f'<ul class="doubts" aria-label="Doubts">{items}</ul>'


def _facts(source: FoundSource, true: Array | None, off_by: float) -> str:
    """A source in words; `off_by` degrees from the truth, if that is known."""
    space, track = source.posterior.space, source.track
    place = place_words(space, source.direction)
    numbers = number_words(space, source.direction)
    sure = sure_words(space, source.radius_90, source.credible_90_area)
    off = error_words(space, off_by)
    truth = "" if true is None else f"{place_words(space, true)} (off by {off})"
    if source.moves and track.heard.any():
        ends = track.directions[track.heard][[0, -1]]
        place = "Moves: " + " to ".join(place_words(space, end) for end in ends)
        numbers = " to ".join(number_words(space, end) for end in ends)
        sure = f"within {np.nanmedian(track.radius_90):.1f}° along its way"
        truth = "" if true is None else f"off by {off} along its way"
    told = f"<dt>Truth</dt><dd>{truth}</dd>" if truth else ""
    return (
        f'<p class="place">{place}</p><dl><dt>Direction</dt><dd>{numbers}</dd>'
        f"<dt>90 % sure</dt><dd>{sure}</dd>"
        f"<dt>Energy</dt><dd>{percent_words(source.share)} of the recording</dd>{told}</dl>"
    )


def _near(m: int, source: FoundSource, true: Array | None, places: Sequence[Array]) -> str:
    """Where source m is, from near by; `places` are the true one, or some along its way."""
    space = source.posterior.space
    return map_chart(
        [(m, source.posterior, zoomed_map(source.posterior, truth=true))],
        truths=places,
        caption=f"From near by <span>{_REGIONS[space.dims]}</span>",
        alt=f"Where {source.name} is believed to be: {place_words(space, source.direction)}",
        key="" if true is None else _TRUE_KEY,
    )


class Sections:
    """What a page is put together from."""

    def __init__(
        self,
        scene: FoundScene,
        known: Known | None,
        players: Mapping[str, str],
        levels: Mapping[str, Levels],
    ) -> None:
        """`players` and `levels` are by the names of sounds; those of others are missing."""
        self.scene, self.known, self.players = scene, known, players
        picture = scene.picture
        given = Levels(picture.seconds, picture.frequencies_hz, picture.level_db)
        self.levels = {MIXTURE: given, **levels}
        self.top_db = self.levels[MIXTURE].top_db

    def header(self, title: str, elapsed_seconds: float | None) -> str:
        """Title, length, number of sources and the time that it took."""
        scene = self.scene
        count = len(scene.sources)
        facts = [
            f"<b>{length_words(scene.seconds)}</b> long",
            f"<b>{count}</b> source{'s' if count != 1 else ''} found",
            f"sounds at <b>{rate_words(scene.rate)}</b>",
        ]
        if elapsed_seconds is not None:
            facts.append(f"separated in <b>{speed_words(elapsed_seconds, scene.seconds)}</b>")
        items = "".join(f"<li>{fact}</li>" for fact in facts)
        return (
            f'<header><h1>{escape(title)}</h1><ul class="facts">{items}</ul>'
            f"{_doubts(scene.doubts)}</header>"
        )

    def overview(self) -> str:
        """All sources, from above and on a map."""
        sources = self.scene.sources
        heading = "<h2>Where the sounds come from</h2>"
        if not sources:
            return _card(heading, "<p>No source was found in this recording.</p>")
        truths: Sequence[Array] = ()
        if self.known is not None and self.known.truth.directions is not None:
            truth = self.known.truth
            truths = [place for m in range(len(truth)) for place in truth.places(m)]
        words = "; ".join(
            f"{source.name}: {place_words(source.posterior.space, source.direction)}"
            for source in sources
        )
        shown = self._map(truths, words)
        if not sources[0].posterior.space.holds_directions:
            return _card(heading, shown)
        above = compass(
            [(m, source.posterior) for m, source in enumerate(sources)],
            truths=truths,
            alt=f"The head from above. {words}",
        )
        return _card(heading, f'<div class="overview">{above}{shown}</div>', self._way())

    def _map(self, truths: Sequence[Array], words: str) -> str:
        """All sources in the whole space."""
        sources = self.scene.sources
        names = "".join(
            f'<li><span class="swatch" style="background:{colour_of(m)}"></span> '
            f"{m + 1} {escape(source.name)}</li>"
            for m, source in enumerate(sources)
        )
        return map_chart(
            [(m, s.posterior, belief_map(s.posterior)) for m, s in enumerate(sources)],
            truths=truths,
            caption=f"All sources <span>{_REGIONS[sources[0].posterior.space.dims]}</span>",
            alt=f"Map of all directions. {words}",
            key=names + (_TRUE_KEY if len(truths) else ""),
        )

    def _way(self) -> str:
        """Where the sources were over time, and how loud each was."""
        tracks = [source.track for source in self.scene.sources]
        if len(tracks[0].seconds) < 2:
            return ""
        space = self.scene.sources[0].posterior.space
        return f'<div class="pictures">{track_charts(tracks, elevation=space.dims > 1)}</div>'

    def mixture(self) -> str:
        """The recording: what it sounds like, and both of its spectrograms."""
        picture = self.scene.picture
        axes = picture.seconds, picture.frequencies_hz
        level = self._level(
            self.levels[MIXTURE],
            caption="Spectrogram <span>both ears</span>",
            alt="Spectrogram of the mixture",
            key=_scale(LEVEL_STOPS, f"−{LEVEL_RANGE_DB:g}", "0 dB"),
        )
        ild = spectrogram(
            ild_image(picture.ild_db, ILD_LIMIT_DB),
            *axes,
            caption="Level difference <span>between the ears</span>",
            alt="Level difference between the ears in each bin: blue left, red right",
            key=_scale((LEFT, "transparent", RIGHT), "left louder", "right louder") + _GREY_KEY,
        )
        return _card(
            "<h2>The recording</h2>",
            self.players.get(MIXTURE, ""),
            f'<div class="columns">{level}{ild}</div>',
        )

    def source(self, m: int) -> str:
        """Source m: where it is, what it sounds like, and which bins it was given."""
        source, colour = self.scene.sources[m], colour_of(m)
        true, places, off_by = None, (), np.nan
        if self.known is not None:
            true, off_by = self.known.direction_of(m), self.known.off_by(m, source)
            along = self.known.places_of(m)
            places = () if along is None else tuple(along)
        heading = f'<h2><span class="badge">{m + 1}</span>{escape(source.name)}</h2>'
        return _card(
            "",
            f'<div class="columns"><div>{heading}{_facts(source, true, off_by)}'
            f"{_doubts(source.doubts)}{self.players.get(source.name, '')}</div>"
            f"{_near(m, source, true, places)}</div>",
            f'<div class="pictures">{self._spectrograms(m, source)}</div>',
            kind="card source",
            style=f"--colour:{colour};--on:{on_colour(colour)}",
        )

    def _level(self, levels: Levels, *, caption: str, alt: str, key: str = "") -> str:
        """A spectrogram in the colours of all others."""
        return spectrogram(
            level_image(levels.level_db, self.top_db, LEVEL_RANGE_DB),
            levels.seconds,
            levels.frequencies_hz,
            caption=caption,
            alt=alt,
            opaque=True,
            key=key,
        )

    def _sound_of(self, m: int, source: FoundSource) -> str:
        """The spectrogram of a source's sound; without one, what it was given of the mixture's."""
        levels, caption = self.levels.get(source.name), "Its sound <span>both ears</span>"
        if levels is None:
            picture = self.scene.picture
            with np.errstate(divide="ignore"):
                heard = picture.level_db + 20 * np.log10(np.nan_to_num(picture.masks[m]))
            levels = Levels(picture.seconds, picture.frequencies_hz, heard)
            caption = "What it was given <span>of the spectrogram</span>"
        return self._level(levels, caption=caption, alt=f"Spectrogram of {source.name}")

    def _spectrograms(self, m: int, source: FoundSource) -> str:
        picture, colour = self.scene.picture, colour_of(m)
        axes = picture.seconds, picture.frequencies_hz
        mask = picture.masks[m]
        key = _scale(("transparent", colour), "0", "1") + _GREY_KEY
        shown = [
            self._sound_of(m, source),
            spectrogram(
                mask_image(mask, colour),
                *axes,
                caption="Assignment <span>probability that a bin is its own</span>",
                alt=f"Probability of each bin to belong to {source.name}",
                key=key,
            ),
        ]
        true = None if self.known is None else self.known.mask_of(m)
        if true is not None:
            shown.append(
                spectrogram(
                    mask_image(true[1], colour),
                    *axes,
                    caption=f"True mask <span>{escape(true[0])}</span>",
                    alt=f"Bins in which {true[0]} really is the strongest",
                )
            )
        return "".join(shown)

    def comparison(self) -> str:
        """The scene against the truth, where that is known."""
        if self.known is None:
            return ""
        return _card("<h2>Found and true</h2>", comparison_table(self.scene, self.known))

    def inference(self) -> str:
        """The course of the free energy, folded away."""
        values = self.scene.free_energies
        if not values:
            return ""
        count = f"{len(values)} iteration{'s' if len(values) != 1 else ''}"
        ends = [f"{values[i]:,.0f}".replace("-", "−") for i in (0, -1)]
        shown = course(
            values,
            caption=f"Free energy <span>from {ends[0]} to {ends[1]} nats</span>",
            alt=f"The free energy over {count}",
        )
        return _card(f"<details><summary>The inference: {count}</summary>{shown}</details>")
