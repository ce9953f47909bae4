"""HTML views of results for notebooks: a small picture, the numbers, the doubts, and players.

Input: a head, an atlas, a posterior, a localization, a track, a source, a scene, a live report or a
sound. Output: HTML with its own style sheet, whose rules apply only within the view. Notebooks call
it through `earatlas.notebooks.HtmlView`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from html import escape
from pathlib import Path

import numpy as np

from earatlas.features.audio import Audio
from earatlas.geometry.credible_region import gaussian_radius_90
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Circle, Space, Sphere
from earatlas.hrtf.head import Head, MeasuredCues
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.result import Localization
from earatlas.localization.windowed import Track
from earatlas.plotting.palette import (
    ILD_LIMIT_DB,
    LEFT_EAR,
    RIGHT_EAR,
    shared_css,
    source_colour,
    source_numbers,
)
from earatlas.plotting.posterior_maps import posterior_map, zoomed_map
from earatlas.plotting.tracks import isotropic_bands
from earatlas.report.charts import Chart, number_mark
from earatlas.report.images import ild_image
from earatlas.report.maps import compass, map_chart
from earatlas.report.page import chart_css
from earatlas.report.players import EmbeddedSoundLimits, players
from earatlas.report.sections import colour_scale, doubt_list
from earatlas.report.tracks import direction_charts, source_charts
from earatlas.separation.result import SceneSummary, Source, SourceSummary, SourceTrack
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.types import Array
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

# Evidence: docs/figures/settings/report.md, "notebook".
_SOUND_LIMITS = EmbeddedSoundLimits(seconds=20.0, megabytes=3.0)  # of one view
_CELL_DEGREES = 5.0  # width of the cells of a head's map

_AZIMUTHS = [(0.0, "180°"), (0.25, "90° left"), (0.5, "0°"), (0.75, "90° right"), (1.0, "180°")]
_ELEVATIONS = [(0.0, "−90°"), (0.25, "−45°"), (0.5, "0°"), (0.75, "45°"), (1.0, "90°")]

_VIEW_CSS = """
& { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .75rem 1rem; max-width: 60rem; font-size: 14px; line-height: 1.4;
  box-sizing: border-box; }
.place { font-size: 1.1rem; margin: 0 0 .35rem; }
.view { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 14rem), 1fr));
  gap: .75rem 1.5rem; align-items: start; margin-top: .5rem; }
.compass { max-width: 13rem; width: 100%; margin: 0 auto; display: block; }
audio { display: block; width: 100%; min-width: 12rem; height: 2rem; margin: .25rem 0 0; }
th, td { padding: .25rem .75rem .25rem 0; background: none; color: inherit; }
tbody tr { background: none; }
td:has(.number) { white-space: nowrap; }
"""


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


def _view(*parts: str) -> str:
    """Return the parts in a frame with their style sheet."""
    shared = shared_css().replace(":root {", "& {").replace("body {", "& {")
    style = f".earatlas-view {{\n{shared}{chart_css()}{_VIEW_CSS}}}"
    return f'<div class="earatlas-view"><style>{style}</style>{"".join(parts)}</div>'


def _title(text: str) -> str:
    """Return the first line of a view; `text` is plain text."""
    return f'<p class="place">{escape(text)}</p>'


def _facts(facts: Mapping[str, str]) -> str:
    """Return names and values as a list; both are plain text."""
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)
    return f"<dl>{rows}</dl>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns are text, cells are HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _players(sounds: Mapping[str, Audio]) -> dict[str, str]:
    """Return the players of sounds with one or two channels, by name."""
    playable = {name: sound for name, sound in sounds.items() if sound.samples.shape[1]}
    return players(playable, {}, Path(), _SOUND_LIMITS)


# --- sounds -------------------------------------------------------------------------------------


@notebook_html.register
def _(audio: Audio) -> str:
    facts = {
        "Duration": format_duration(audio.seconds),
        "Channels": str(audio.channels),
        "Sampling rate": format_sampling_rate(audio.rate),
    }
    stereo = Audio(audio.samples[:2], audio.rate)  # browsers play two channels
    return _view(_facts(facts), _players({"sound": stereo}).get("sound", ""))


# --- heads --------------------------------------------------------------------------------------


@notebook_html.register
def _(head: Head) -> str:
    facts = {
        "Directions": f"{len(head)} on the {head.space.name}",
        "Spacing": f"{head.spacing_degrees:.1f}° to the nearest neighbour",
        "Measurement": _measurement(head),
        "Licence": head.licence,
        "Provenance": head.provenance,
    }
    return _view(
        _title(f"Head {head.name}"), f'<div class="view">{_facts(facts)}{_head_map(head)}</div>'
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
        _ELEVATIONS,
        colour_scale((LEFT_EAR, "transparent", RIGHT_EAR), "left louder", "right louder")
        + '<li><span class="swatch missing"></span> not measured</li>',
    ).html()


@notebook_html.register
def _(head: LearnedHead) -> str:
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
    return _view(
        _title(f"{type(head).__name__} {head.about.get('head', '?')}"),
        f'<div class="view">{_facts(facts)}{_chart_centres(head)}</div>',
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
    return Chart(caption, inside, "aspect-ratio:2/1", _AZIMUTHS, _ELEVATIONS).html()


# --- one source ---------------------------------------------------------------------------------


def _pictures(posterior: DirectionPosterior) -> str:
    """Return the head from above and a map of one posterior."""
    space, radius = posterior.space, posterior.radius_90
    place = format_position(space, posterior.direction, radius)
    others = [
        (0, one.direction) for one in listed_alternatives(posterior.alternatives, radius, space)
    ]
    whole = posterior_map(posterior)
    drawn = whole if others or is_unknown(radius, space) else zoomed_map(posterior)
    caption = "Map" if drawn.extent == whole.extent else "Close-up"
    note = "probability density" if space.dims == 1 else "strong colour: 50 % region, pale: 90 %"
    chart = ""
    if space.dims <= 2:
        chart = map_chart(
            [(0, posterior, drawn)],
            alternatives=others,
            caption=f"{caption} <span>{note}</span>",
            alt=f"Posterior of the direction: {place}",
        )
    if not space.holds_directions:
        return chart
    above = compass([(0, posterior)], alternatives=others, alt=f"The head from above. {place}")
    return above + chart


def _where(posterior: DirectionPosterior) -> dict[str, str]:
    """Return the numbers of a posterior by name."""
    space, radius = posterior.space, posterior.radius_90
    if is_unknown(radius, space):
        facts = {"Direction": "unknown"}
    else:
        facts = {
            "Direction": format_coordinates(space, posterior.direction),
            "90 % region": format_region(space, radius, posterior.credible_area(0.9)),
        }
    return {
        **facts,
        "Alternatives": format_alternatives(space, posterior.alternatives, radius) or "",
    }


def _posterior_view(
    posterior: DirectionPosterior, facts: Mapping[str, str], *parts: str, name: str = ""
) -> str:
    """Return the view of one source: its place in words, numbers, further parts and pictures."""
    place = format_position(posterior.space, posterior.direction, posterior.radius_90)
    numbers = _facts({**_where(posterior), **facts})
    return _view(
        _title(f"{name}: {place}" if name else place),
        f'<div class="view"><div>{numbers}{"".join(parts)}</div>{_pictures(posterior)}</div>',
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
        player = _players({source.name: source.audio}).get(source.name, "")
    return _posterior_view(
        source.posterior, facts, doubt_list(source.doubts), player, name=source.name
    )


@notebook_html.register
def _(track: Track) -> str:
    if not len(track):
        return _view(_title(repr(track)))
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
    return _view(
        _title("Track of one source"),
        _facts(facts),
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
    title = _title(f"{count} in {format_duration(scene.seconds)} of sound")
    if not sources:
        return _view(title, doubt_list(scene.doubts))
    rows = [_source_row(m, source) for m, source in enumerate(sources)]
    columns = ["", "direction", "90 % within", "energy"]
    sounds = {source.name: source.audio for source in sources if isinstance(source, Source)}
    if sounds:
        columns.append("sound")
        html = _players(sounds)
        rows = [[*row, html.get(s.name, "")] for row, s in zip(rows, sources, strict=True)]
    doubts = [f"{s.name}: {doubt}" for s in sources for doubt in s.doubts]
    return _view(
        title,
        _table(columns, rows),
        doubt_list([*scene.doubts, *doubts]),
        f'<div class="view">{_scene_pictures(sources)}</div>',
    )


def _source_row(m: int, source: SourceSummary) -> list[str]:
    """Return name, direction, radius and share of source m as cells of a table."""
    space = source.posterior.space
    place = format_position(space, source.direction, source.radius_90)
    track = source.track
    radius = source.radius_90
    if source.moves and track.active.any():
        ends = track.directions[track.active][[0, -1]]
        place = "moves: " + " to ".join(format_position(space, end) for end in ends)
        radius = float(np.nanmedian(track.radius_90))
    other = format_alternatives(space, source.alternatives, source.radius_90)
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
    title = _title(f"{count} after {format_duration(report.time)}")
    if not report.sources:
        return _view(title, doubt_list(report.doubts))
    rows = [_live_row(source) for source in report.sources]
    doubts = [f"source {s.id}: {doubt}" for s in report.sources for doubt in s.doubts]
    known = [
        (source.id - 1, _gaussian(source))
        for source in report.sources
        if not is_unknown(source.radius_90)
    ]
    above = compass(known, alt="The head from above, with the tracked sources")
    columns = ("", "direction", "90 % within", "state", "level")
    return _view(
        title,
        f'<div class="view">{_table(columns, rows)}{above}</div>',
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
