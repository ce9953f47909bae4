"""HTML views of results for notebooks: a small picture, the numbers, the doubts, and players.

Input: a head, an atlas, a posterior, a localization, a track, a source, a scene, a live report or a
sound. Output: HTML with its own style sheet, whose rules apply only within the view. Notebooks call
it through `earatlas.notebooks.HtmlView`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from html import escape

import numpy as np

from earatlas.features.audio import Audio
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Circle, Space, Sphere
from earatlas.hrtf.head import Head
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.result import Localization
from earatlas.localization.windowed import Track
from earatlas.plotting.palette import source_numbers
from earatlas.plotting.posterior_maps import posterior_map, zoomed_map
from earatlas.plotting.tracks import isotropic_bands
from earatlas.report.charts import number_mark
from earatlas.report.maps import compass, map_chart
from earatlas.report.notebook_heads import head_view, learned_head_view
from earatlas.report.notebook_parts import fact_list, framed, heading, html_table, sound_players
from earatlas.report.sections import doubt_list
from earatlas.report.tracks import direction_charts, source_charts
from earatlas.separation.result import SceneSummary, Source, SourceSummary, SourceTrack
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.wording import (
    format_alternatives,
    format_coordinates,
    format_duration,
    format_percent,
    format_position,
    format_radius,
    format_region,
    format_sampling_rate,
    is_unknown,
    listed_alternatives,
)

__all__ = ["notebook_html"]


@singledispatch
def notebook_html(value: object) -> str:
    """Return the HTML view of a result, or its escaped repr for any other type.

    Examples
    --------
    >>> import earatlas as ea
    >>> notebook_html(ea.simulated_head([[30, 0], [0, 0], [-30, 0]])).startswith("<div")
    True
    """
    return f"<pre>{escape(repr(value))}</pre>"


notebook_html.register(Head)(head_view)
notebook_html.register(LearnedHead)(learned_head_view)


# --- sounds -------------------------------------------------------------------------------------


@notebook_html.register
def _(audio: Audio) -> str:
    facts = {
        "Duration": format_duration(audio.seconds),
        "Channels": str(audio.channels),
        "Sampling rate": format_sampling_rate(audio.rate),
    }
    stereo = Audio(audio.samples[:2], audio.rate)  # browsers play two channels
    return framed(fact_list(facts), sound_players({"sound": stereo}).get("sound", ""))


# --- one source ---------------------------------------------------------------------------------


def _pictures(posterior: DirectionPosterior, m: int = 0) -> str:
    """Return the head from above and a map of one posterior in the colour of source m."""
    space, radius = posterior.space, posterior.radius_90
    place = format_position(space, posterior.direction, radius)
    others = [
        (m, one.direction) for one in listed_alternatives(posterior.alternatives, radius, space)
    ]
    whole = posterior_map(posterior)
    drawn = whole if others or is_unknown(radius, space) else zoomed_map(posterior)
    caption = "Map" if drawn.extent == whole.extent else "Close-up"
    note = "probability density" if space.dims == 1 else "strong colour: 50 % region, pale: 90 %"
    chart = ""
    if space.dims <= 2:
        chart = map_chart(
            [(m, posterior, drawn)],
            alternatives=others,
            caption=f"{caption} <span>{note}</span>",
            alt=f"Posterior of the direction: {place}",
        )
    if not space.holds_directions:
        return chart
    above = compass([(m, posterior)], alternatives=others, alt=f"The head from above. {place}")
    return above + chart


def _where(posterior: DirectionPosterior) -> dict[str, str]:
    """Return the numbers of a posterior by name."""
    space, radius = posterior.space, posterior.radius_90
    known = not is_unknown(radius, space)
    alternatives, lateral_angle = posterior.alternatives, posterior.lateral_angle
    return {
        "Direction": format_coordinates(space, posterior.direction) if known else "unknown",
        "90 % region": format_region(space, radius, posterior.credible_area(0.9)),
        "Possibly": format_alternatives(space, alternatives, radius, lateral_angle) or "",
    }


def _posterior_view(
    posterior: DirectionPosterior,
    facts: Mapping[str, str],
    *parts: str,
    name: str = "",
    m: int = 0,
) -> str:
    """Return the view of one source: its place in words, numbers, further parts and pictures."""
    place = format_position(posterior.space, posterior.direction, posterior.radius_90)
    numbers = fact_list({**_where(posterior), **facts})
    return framed(
        heading(f"{name}: {place}" if name else place),
        f'<div class="view"><div>{numbers}{"".join(parts)}</div>{_pictures(posterior, m)}</div>',
    )


@notebook_html.register
def _(posterior: DirectionPosterior) -> str:
    return _posterior_view(posterior, {"Components": str(len(posterior.weights))})


@notebook_html.register
def _(where: Localization) -> str:
    facts = {
        "Observed": f"{format_percent(where.observed_share)} of the time-frequency bins",
        "Duration": format_duration(where.seconds),
    }
    return _posterior_view(where.posterior, facts, doubt_list(where.doubts))


@notebook_html.register
def _(source: SourceSummary) -> str:
    facts = {"Energy": f"{format_percent(source.share)} of the recording"}
    player = ""
    if isinstance(source, Source):
        player = sound_players({source.name: source.audio}).get(source.name, "")
    (m,) = source_numbers([source])
    return _posterior_view(
        source.posterior, facts, doubt_list(source.doubts), player, name=source.name, m=m
    )


@notebook_html.register
def _(track: Track) -> str:
    if not len(track):
        return framed(heading(repr(track)))
    observed = [window for window in track if window.observed_share > 0]
    space = track[0].posterior.space
    facts = {
        "Windows": f"{len(track)}, {len(observed)} of them with sound",
        "Time": f"{track.times[0]:.2f} s to {track.times[-1]:.2f} s",
    }
    if observed:
        median = float(np.median([window.radius_90 for window in observed]))
        facts["90 % radius"] = f"{format_radius(space, median)} (median)"
    doubts = list(dict.fromkeys(doubt.word.value for window in track for doubt in window.doubts))
    charts = ""
    if space.holds_directions and len(track) > 1 and observed:
        rows = _source_track(track)
        charts = direction_charts([rows], [isotropic_bands(rows, space)], elevation=space.dims > 1)
    return framed(
        heading("Track of one source"),
        fact_list(facts),
        doubt_list([f"{kind}, in some windows" for kind in doubts]),
        f'<div class="view">{charts}</div>',
    )


def _source_track(track: Track) -> SourceTrack:
    """Return the windows of a track as rows of a source, whose level is unknown."""
    radius = [w.radius_90 if w.observed_share > 0 else np.nan for w in track]
    unknown = np.full(len(track), np.nan)
    return SourceTrack(track.times, track.directions, np.array(radius), unknown, moves=True)


# --- several sources ----------------------------------------------------------------------------


@notebook_html.register
def _(scene: SceneSummary) -> str:
    sources = scene.sources
    count = f"{len(sources)} source{'' if len(sources) == 1 else 's'}"
    title = heading(f"{count} in {format_duration(scene.seconds)} of sound")
    if not sources:
        return framed(title, doubt_list(scene.doubts))
    rows = [_source_row(m, s) for m, s in zip(source_numbers(sources), sources, strict=True)]
    columns = ["", "direction", "90 % within", "energy"]
    sounds = {source.name: source.audio for source in sources if isinstance(source, Source)}
    if sounds:
        columns.append("sound")
        html = sound_players(sounds)
        rows = [[*row, html.get(s.name, "")] for row, s in zip(rows, sources, strict=True)]
    doubts = [f"{s.name}: {doubt}" for s in sources for doubt in s.doubts]
    return framed(
        title,
        html_table(columns, rows),
        doubt_list([*scene.doubts, *doubts]),
        f'<div class="view">{_scene_pictures(sources)}</div>',
    )


def _source_row(m: int, source: SourceSummary) -> list[str]:
    """Return name, direction, radius and share of a source as cells of a table; m is its number."""
    space = source.posterior.space
    place = format_position(space, source.direction, source.radius_90)
    track = source.track
    radius = source.radius_90
    if source.moves and track.active.any():
        ends = track.directions[track.active][[0, -1]]
        place = "moves: " + " to ".join(format_position(space, end) for end in ends)
        radius = float(np.nanmedian(track.radius_90))
    other = format_alternatives(space, source.alternatives, source.radius_90, source.lateral_angle)
    known = "" if is_unknown(radius, space) else format_radius(space, radius)
    return [
        f"{number_mark(m)}{escape(source.name)}",
        place if other is None else f"{place}<br><small>{other}</small>",
        known,
        format_percent(source.share),
    ]


def _scene_pictures(sources: Sequence[SourceSummary]) -> str:
    """Return the head from above, or a map, and the sources over time."""
    space = sources[0].posterior.space
    numbered = list(zip(source_numbers(sources), sources, strict=True))
    if not space.holds_directions:
        drawn = [(m, s.posterior, posterior_map(s.posterior)) for m, s in numbered]
        return map_chart(drawn, caption="All sources", alt="Map of all sources")
    above = compass(
        [(m, source.posterior) for m, source in numbered],
        alt="The head from above, with the density of each source over azimuth",
    )
    return above if len(sources[0].track.seconds) < 2 else above + source_charts(sources)


@notebook_html.register
def _(report: LiveReport) -> str:
    count = f"{len(report.sources)} source{'' if len(report.sources) == 1 else 's'}"
    title = heading(f"{count} after {format_duration(report.time)}")
    if not report.sources:
        return framed(title, doubt_list(report.doubts))
    rows = [_live_row(source) for source in report.sources]
    doubts = [f"source {s.id}: {doubt}" for s in report.sources for doubt in s.doubts]
    known = [
        (source.id - 1, _gaussian(source))
        for source in report.sources
        if not is_unknown(source.radius_90)
    ]
    above = compass(known, alt="The head from above, with the tracked sources")
    columns = ("", "direction", "90 % within", "state", "level")
    return framed(
        title,
        f'<div class="view">{html_table(columns, rows)}{above}</div>',
        doubt_list([*report.doubts, *doubts]),
    )


def _live_row(source: LiveSource) -> list[str]:
    """Return a tracked source as cells of a table."""
    space = _live_space(source)
    state = "active" if source.active else f"silent for {source.age:.1f} s"
    unknown = is_unknown(source.radius_90)
    level = (
        f"{source.level_db:.0f}&nbsp;dB".replace("-", "−") if np.isfinite(source.level_db) else ""
    )
    return [
        f"{number_mark(source.id - 1)}source&nbsp;{source.id}",
        format_position(space, source.direction, source.radius_90),
        "" if unknown else format_radius(space, source.radius_90),
        state if source.confirmed else "tentative",
        level,
    ]


def _live_space(source: LiveSource) -> Space:
    """Return the space of a tracked source: azimuths alone are on a circle."""
    return Sphere() if len(source.direction) > 1 else Circle()


def _gaussian(source: LiveSource) -> DirectionPosterior:
    """Return a Gaussian with the direction and the 90 % radius of a tracked source."""
    direction = np.zeros(2)
    direction[: len(source.direction)] = source.direction
    deviation = max(source.radius_90, 0.1) / gaussian_radius_90(2)
    return DirectionPosterior(
        Sphere(), direction[None], np.ones(1), np.zeros((1, 2)), deviation**2 * np.eye(2)[None]
    )
