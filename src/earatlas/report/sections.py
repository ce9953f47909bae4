"""Sections of a scene's report as HTML.

The inputs are a `SceneSummary`, its comparison with the ground truth, and players and spectrograms
of its sounds. Each method of `Sections` returns one section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np

from earatlas.plotting.palette import (
    ILD_LIMIT_DB,
    LEVEL_RANGE_DB,
    source_colour,
    source_numbers,
    text_colour,
)
from earatlas.plotting.posterior_maps import posterior_map, zoomed_map
from earatlas.report.charts import line_chart, spectrogram_chart
from earatlas.report.comparison import MIXTURE, SceneComparison, comparison_table
from earatlas.report.images import (
    ILD_STOPS,
    LEVEL_STOPS,
    ild_image,
    level_image,
    mask_image,
)
from earatlas.report.maps import compass, map_chart
from earatlas.report.spectrograms import LevelSpectrogram
from earatlas.report.tracks import track_charts
from earatlas.separation.result import SceneSummary, SourceSummary
from earatlas.types import Array
from earatlas.wording import (
    format_alternatives,
    format_coordinates,
    format_duration,
    format_error,
    format_percent,
    format_position,
    format_region,
    format_sampling_rate,
    format_speed,
    listed_alternatives,
)

__all__ = ["Sections", "colour_scale", "doubt_list"]

# Explanation of a map, by the number of dimensions of the space.
_MAP_NOTES = {1: "probability density", 2: "strong colour: 50 % credible region, pale: 90 %"}


def _card(heading: str, *content: str, kind: str = "card", style: str = "") -> str:
    style = f' style="{style}"' if style else ""
    return f'<section class="{kind}"{style}>{heading}{"".join(content)}</section>'


def colour_scale(colours: Sequence[str], low: str, high: str) -> str:
    """Return a colour scale between two labels for a legend."""
    background = f"background:linear-gradient(90deg,{','.join(colours)}),var(--plot)"
    return f'<li>{low} <span class="ramp" style="{background}"></span> {high}</li>'


_MISSING_KEY = '<li><span class="swatch missing"></span> not observed</li>'
_TRUTH_KEY = (
    '<li><svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">'
    '<circle class="truth" cx="6" cy="6" r="4.5"/></svg> true direction</li>'
)


def doubt_list(doubts: Sequence[str]) -> str:
    """Return a list of doubts, or nothing if there are none."""
    if not doubts:
        return ""
    items = "".join(f"<li>{escape(doubt)}</li>" for doubt in doubts)
    return f'<ul class="doubts" aria-label="Doubts">{items}</ul>'


def _source_place(source: SourceSummary) -> str:
    """Describe the direction of a source, or say that it is unknown."""
    return format_position(source.posterior.space, source.direction, source.radius_90)


def _alternative_places(m: int, source: SourceSummary) -> list[tuple[int, Array]]:
    """Return the number of a source with each of its further possible directions."""
    listed = listed_alternatives(source.alternatives, source.radius_90, source.posterior.space)
    return [(m, one.direction) for one in listed]


def _facts(source: SourceSummary, true: Array | None, direction_error: float) -> str:
    """Describe a source; with the true direction also its error in degrees."""
    space, track = source.posterior.space, source.track
    place = _source_place(source)
    coordinates = format_coordinates(space, source.direction)
    region = format_region(space, source.radius_90, source.credible_90_area)
    error = format_error(space, direction_error)
    truth = "" if true is None else f"{format_position(space, true)} (error {error})"
    if source.moves and track.active.any():
        ends = track.directions[track.active][[0, -1]]
        place = "Moves: " + " to ".join(format_position(space, end) for end in ends)
        coordinates = " to ".join(format_coordinates(space, end) for end in ends)
        region = f"within {np.nanmedian(track.radius_90):.1f}° along its path"
        truth = "" if true is None else f"median error {error} along its path"
    elif not source.direction_known:
        coordinates = "unknown"
    alternatives = format_alternatives(
        space, source.alternatives, source.radius_90, source.lateral_angle
    )
    if alternatives is not None:
        place += f"<br><small>{alternatives}</small>"
    truth_row = f"<dt>Truth</dt><dd>{truth}</dd>" if truth else ""
    return (
        f'<p class="place">{place}</p><dl><dt>Direction</dt><dd>{coordinates}</dd>'
        f"<dt>90 % region</dt><dd>{region}</dd>"
        f"<dt>Energy</dt><dd>{format_percent(source.share)} of the recording</dd>{truth_row}</dl>"
    )


def _close_up(m: int, source: SourceSummary, true: Array | None, positions: Sequence[Array]) -> str:
    """Return a close-up of source m; `places` are its true direction, or some along its path."""
    space = source.posterior.space
    return map_chart(
        [(m, source.posterior, zoomed_map(source.posterior, truth=true))],
        truths=positions,
        alternatives=_alternative_places(m, source),
        caption=f"Close-up <span>{_MAP_NOTES[space.dims]}</span>",
        alt=f"Posterior of the direction of {source.name}: {_source_place(source)}",
        key="" if true is None else _TRUTH_KEY,
    )


class Sections:
    """Sections of a report."""

    def __init__(
        self,
        scene: SceneSummary,
        comparison: SceneComparison | None,
        players: Mapping[str, str],
        spectrograms: Mapping[str, LevelSpectrogram],
        background: str = "",
    ) -> None:
        """Collect the content; `players` and `spectrograms` are by the name of the sound.

        `background` is the data URI of a picture behind the map of all sources.
        """
        self.background = background
        self.scene, self.comparison, self.players = scene, comparison, players
        self.numbers = source_numbers(scene.sources)
        summary = scene.spectrogram
        given = LevelSpectrogram(summary.seconds, summary.frequencies_hz, summary.level_db)
        self.spectrograms = {MIXTURE: given, **spectrograms}
        self.top_db = self.spectrograms[MIXTURE].top_db

    def header(self, title: str, elapsed_seconds: float | None) -> str:
        """Return title, duration, number of sources, sampling rate and processing time."""
        scene = self.scene
        count = len(scene.sources)
        facts = [
            f"<b>{format_duration(scene.seconds)}</b> long",
            f"<b>{count}</b> source{'s' if count != 1 else ''} found",
            f"sampling rate <b>{format_sampling_rate(scene.rate)}</b>",
        ]
        if elapsed_seconds is not None:
            facts.append(f"separated in <b>{format_speed(elapsed_seconds, scene.seconds)}</b>")
        items = "".join(f"<li>{fact}</li>" for fact in facts)
        return (
            f'<header><h1>{escape(title)}</h1><ul class="facts">{items}</ul>'
            f"{doubt_list(scene.doubts)}</header>"
        )

    def overview(self) -> str:
        """Return a compass and a map of all sources, and their tracks over time."""
        sources = self.scene.sources
        heading = "<h2>Where the sounds come from</h2>"
        if not sources:
            return _card(heading, "<p>No source was found in this recording.</p>")
        truths: Sequence[Array] = ()
        if self.comparison is not None and self.comparison.truth.directions is not None:
            truth = self.comparison.truth
            truths = [place for m in range(len(truth)) for place in truth.positions(m)]
        description = "; ".join(f"{source.name}: {_source_place(source)}" for source in sources)
        whole_map = self._map(truths, description)
        if not sources[0].posterior.space.holds_directions:
            return _card(heading, whole_map)
        above = compass(
            [(m, source.posterior) for m, source in self._numbered()],
            truths=truths,
            alternatives=self._alternatives(),
            alt=f"The head from above. {description}",
        )
        return _card(heading, f'<div class="overview">{above}{whole_map}</div>', self._tracks())

    def _map(self, truths: Sequence[Array], description: str) -> str:
        """Return a map of all sources in the whole space."""
        sources = self.scene.sources
        names = "".join(
            f'<li><span class="swatch" style="background:{source_colour(m)}"></span> '
            f"{m + 1} {escape(source.name)}</li>"
            for m, source in self._numbered()
        )
        return map_chart(
            [(m, s.posterior, posterior_map(s.posterior)) for m, s in self._numbered()],
            truths=truths,
            alternatives=self._alternatives(),
            caption=f"All sources <span>{_MAP_NOTES[sources[0].posterior.space.dims]}</span>",
            alt=f"Map of all directions. {description}",
            key=names + (_TRUTH_KEY if len(truths) else ""),
            background=self.background,
        )

    def _numbered(self) -> Iterator[tuple[int, SourceSummary]]:
        """Yield the sources with their numbers, which determine their colours."""
        return zip(self.numbers, self.scene.sources, strict=True)

    def _alternatives(self) -> list[tuple[int, Array]]:
        """Return the further possible directions of all sources."""
        return [place for m, source in self._numbered() for place in _alternative_places(m, source)]

    def _tracks(self) -> str:
        """Return charts of direction and level over time, unless there is a single row."""
        if len(self.scene.sources[0].track.seconds) < 2:
            return ""
        return f'<div class="pictures">{track_charts(self.scene.sources)}</div>'

    def mixture(self) -> str:
        """Return the player of the recording, its spectrogram and its level difference."""
        summary = self.scene.spectrogram
        level = self._level_chart(
            self.spectrograms[MIXTURE],
            caption="Spectrogram <span>both ears</span>",
            alt="Spectrogram of the mixture",
            key=colour_scale(LEVEL_STOPS, f"−{LEVEL_RANGE_DB:g}", "0 dB"),
        )
        ild = spectrogram_chart(
            ild_image(summary.ild_db, ILD_LIMIT_DB),
            summary.seconds,
            summary.frequencies_hz,
            caption="Level difference <span>between the ears</span>",
            alt="Level difference between the ears in each bin: blue left, red right",
            key=colour_scale(
                ILD_STOPS, f"left louder, −{ILD_LIMIT_DB:g}", f"{ILD_LIMIT_DB:g} dB, right"
            )
            + _MISSING_KEY,
        )
        return _card(
            "<h2>The recording</h2>",
            self.players.get(MIXTURE, ""),
            f'<div class="columns">{level}{ild}</div>',
        )

    def source(self, m: int) -> str:
        """Return direction, doubts, player, close-up, spectrogram and mask of source m."""
        source, number = self.scene.sources[m], self.numbers[m]
        colour = source_colour(number)
        true, positions, error = None, (), np.nan
        if self.comparison is not None:
            true = self.comparison.true_direction(m)
            error = self.comparison.direction_error(m, source)
            path = self.comparison.true_path(m)
            positions = () if path is None else tuple(path)
        heading = f'<h2><span class="badge">{number + 1}</span>{escape(source.name)}</h2>'
        return _card(
            "",
            f'<div class="columns"><div>{heading}{_facts(source, true, error)}'
            f"{doubt_list(source.doubts)}{self.players.get(source.name, '')}</div>"
            f"{_close_up(number, source, true, positions)}</div>",
            f'<div class="pictures">{self._source_charts(m, source)}</div>',
            kind="card source",
            style=f"--colour:{colour};--on:{text_colour(colour)}",
        )

    def _level_chart(
        self, spectrogram: LevelSpectrogram, *, caption: str, alt: str, key: str = ""
    ) -> str:
        """Return a spectrogram with the colour scale of the mixture."""
        return spectrogram_chart(
            level_image(spectrogram.level_db, self.top_db, LEVEL_RANGE_DB),
            spectrogram.seconds,
            spectrogram.frequencies_hz,
            caption=caption,
            alt=alt,
            opaque=True,
            key=key,
        )

    def _separated_chart(self, m: int, source: SourceSummary) -> str:
        """Return the spectrogram of a source's sound, or of the masked mixture without one."""
        spectrogram = self.spectrograms.get(source.name)
        caption = "Separated sound <span>both ears</span>"
        if spectrogram is None:
            summary = self.scene.spectrogram
            with np.errstate(divide="ignore"):
                level_db = summary.level_db + 20 * np.log10(np.nan_to_num(summary.masks[m]))
            spectrogram = LevelSpectrogram(summary.seconds, summary.frequencies_hz, level_db)
            caption = "Masked mixture <span>both ears</span>"
        return self._level_chart(spectrogram, caption=caption, alt=f"Spectrogram of {source.name}")

    def _source_charts(self, m: int, source: SourceSummary) -> str:
        """Return the spectrogram, the mask and, if known, the true mask of source m."""
        summary, colour = self.scene.spectrogram, source_colour(self.numbers[m])
        axes = summary.seconds, summary.frequencies_hz
        key = colour_scale(("transparent", colour), "0", "1") + _MISSING_KEY
        charts = [
            self._separated_chart(m, source),
            spectrogram_chart(
                mask_image(summary.masks[m], colour),
                *axes,
                caption="Mask <span>probability that a bin belongs to this source</span>",
                alt=f"Probability that each bin belongs to {source.name}",
                key=key,
            ),
        ]
        true = None if self.comparison is None else self.comparison.true_mask(m)
        if true is not None:
            name, mask = true
            charts.append(
                spectrogram_chart(
                    mask_image(mask, colour),
                    *axes,
                    caption=f"True mask <span>{escape(name)}</span>",
                    alt=f"Bins in which {name} is the strongest source",
                )
            )
        return "".join(charts)

    def comparison_section(self) -> str:
        """Return the comparison with the ground truth, if it is known."""
        if self.comparison is None:
            return ""
        table = comparison_table(self.scene, self.comparison)
        return _card("<h2>Comparison with the ground truth</h2>", table)

    def inference(self) -> str:
        """Return a collapsed chart of the free energy over the iterations."""
        values = self.scene.free_energies
        if not values:
            return ""
        count = f"{len(values)} iteration{'s' if len(values) != 1 else ''}"
        ends = [f"{values[i]:,.0f}".replace("-", "−") for i in (0, -1)]
        chart = line_chart(
            values,
            caption=f"Free energy <span>from {ends[0]} to {ends[1]} nats</span>",
            alt=f"The free energy over {count}",
        )
        return _card(f"<details><summary>Inference: {count}</summary>{chart}</details>")
