"""The page of a scene: its sections, put together and written.

In: a `Scene`, and what is known of the truth. Out: one HTML file that needs nothing else: no
network, no other file, no library. Its look is in page.html.
"""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files as resources
from pathlib import Path

import numpy as np

from earatlas.drawing.belief_maps import belief_map, zoomed_map
from earatlas.drawing.scenes import ILD_LIMIT_DB, LEVEL_RANGE_DB, colour_of
from earatlas.errors import InputError
from earatlas.hearing.audio import Audio
from earatlas.judging.truth import Truth, place_errors
from earatlas.report.comparison import MIXTURE, Known, comparison_table
from earatlas.report.pictures import (
    compass,
    course,
    ild_image,
    level_image,
    map_chart,
    mask_image,
    on_colour,
    spectrogram,
    track_chart,
)
from earatlas.report.sounds import players
from earatlas.report.words import (
    length_words,
    number_words,
    percent_words,
    place_words,
    sure_words,
)
from earatlas.separation.scene import FoundScene, FoundSource, Scene
from earatlas.types import Array

__all__ = ["report_page", "write_report"]


# Starting one player stops the others: two at once are a mixture again.
_SCRIPT = (
    'document.addEventListener("play",e=>{for(const a of document.querySelectorAll("audio"))'
    "if(a!==e.target)a.pause()},true);"
)


def write_report(
    path: str | Path,
    scene: FoundScene,
    *,
    title: str,
    truth: Truth | None = None,
    files: Mapping[str, str | Path] | None = None,
    elapsed_seconds: float | None = None,
) -> Path:
    """Write the scene's page, the whole file or nothing.

    `files` names sound files by source, and the recording by "mixture": the page links to them, by
    names relative to its own folder, and takes its sounds from them where the scene has none.
    """
    path = Path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"report must end in .html, got '{path}'. Rename the output.")
    page = report_page(
        scene,
        title=title,
        truth=truth,
        files=files,
        elapsed_seconds=elapsed_seconds,
        folder=path.parent,
    )
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            Path(scratch, path.name).write_text(page, encoding="utf-8")
            Path(scratch, path.name).replace(path)
    except OSError as error:
        raise InputError(
            f"report must be a file that can be written, got '{path}' ({error.strerror}). "
            "Check that its folder exists and is writable."
        ) from error
    return path


def report_page(
    scene: FoundScene,
    *,
    title: str,
    truth: Truth | None = None,
    files: Mapping[str, str | Path] | None = None,
    elapsed_seconds: float | None = None,
    folder: str | Path = ".",
) -> str:
    """The text of the page that `write_report` writes into `folder`."""
    names = [MIXTURE, *(source.name for source in scene.sources)]
    given = {name: Path(file) for name, file in (files or {}).items()}
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InputError(
            f"files must be those of {', '.join(names)}, got one of '{unknown[0]}'. "
            "Name the sources as the scene does."
        )
    sounds = _sounds(scene, given)
    known = None if truth is None else Known.of(scene, truth, sounds)
    page = _Page(scene, known, players(sounds, given, Path(folder)))
    body = "".join(
        (
            page.header(title, elapsed_seconds),
            "<main>",
            page.overview(),
            page.comparison(),
            page.mixture(),
            *(page.source(m) for m in range(len(scene.sources))),
            page.inference(),
            "</main><footer>Made by earatlas. Everything is inside this file: "
            "it can be sent on as it is.</footer>",
        )
    )
    text = resources("earatlas.report").joinpath("page.html").read_text(encoding="utf-8")
    digest = b64encode(sha256(_SCRIPT.encode()).digest()).decode("ascii")
    before, _, after = text.partition("{{body}}")
    before = before.replace("{{script_hash}}", digest).replace("{{title}}", escape(title))
    return before + body + after.replace("{{script}}", _SCRIPT)


def _sounds(scene: FoundScene, files: Mapping[str, Path]) -> dict[str, Audio | Path]:
    """What there is to listen to: the scene's own sounds, or the files they were written to."""
    if isinstance(scene, Scene):
        return {MIXTURE: scene.mixture, **{s.name: s.audio for s in scene.sources}}
    return dict(files)


def _card(heading: str, *content: str, kind: str = "card", style: str = "") -> str:
    style = f' style="{style}"' if style else ""
    return f'<section class="{kind}"{style}>{heading}{"".join(content)}</section>'


def _ramp(colours: str, low: str, high: str) -> str:
    """A key's colour scale between two words."""
    ground = f"background:linear-gradient(90deg,{colours}),var(--plot)"
    return f'<li>{low} <span class="ramp" style="{ground}"></span> {high}</li>'


_MAP_CAPTIONS = {
    1: "All sources <span>density of where each is</span>",
    2: "All sources <span>full: 50 % region, faint: 90 %</span>",
}
_GREY_KEY = '<li><span class="swatch missing"></span> nothing heard</li>'
_TRUE_KEY = (
    '<li><svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">'
    '<circle class="truth" cx="6" cy="6" r="4.5"/></svg> true direction</li>'
)


class _Page:
    """The sections of a scene's page, as HTML."""

    def __init__(self, scene: FoundScene, known: Known | None, players: Mapping[str, str]) -> None:
        self.scene, self.known, self.players = scene, known, players
        self.maps = [belief_map(source.belief) for source in scene.sources]
        level = scene.picture.level_db
        self.top_db = float(level[np.isfinite(level)].max(initial=-200.0))

    def header(self, title: str, elapsed_seconds: float | None) -> str:
        scene = self.scene
        count = len(scene.sources)
        facts = [
            f"<b>{length_words(scene.seconds)}</b> long",
            f"<b>{count}</b> source{'s' if count != 1 else ''} found",
        ]
        if elapsed_seconds is not None:
            factor = elapsed_seconds / max(scene.seconds, 1e-9)
            facts.append(
                f"separated in <b>{length_words(elapsed_seconds)}</b> ({factor:.2g} × real time)"
            )
        items = "".join(f"<li>{fact}</li>" for fact in facts)
        return f'<header><h1>{escape(title)}</h1><ul class="facts">{items}</ul></header>'

    def overview(self) -> str:
        sources = self.scene.sources
        heading = "<h2>Where the sounds come from</h2>"
        if not sources:
            return _card(heading, "<p>No source was found in this recording.</p>")
        space = sources[0].belief.space
        truths: Sequence[Array] = ()
        if self.known is not None and self.known.truth.directions is not None:
            truths = list(self.known.truth.directions)
        words = "; ".join(
            f"{source.name}: {place_words(space, source.direction)}" for source in sources
        )
        names = "".join(
            f'<li><span class="swatch" style="background:{colour_of(m)}"></span> '
            f"{m + 1} {escape(source.name)}</li>"
            for m, source in enumerate(sources)
        )
        shown = map_chart(
            [(m, s.belief, self.maps[m]) for m, s in enumerate(sources)],
            truths=truths,
            caption=_MAP_CAPTIONS[space.dims],
            alt=f"Map of all directions. {words}",
            key=names + (_TRUE_KEY if len(truths) else ""),
        )
        if not space.holds_directions:
            return _card(heading, shown)
        shown += self._way()
        above = compass(
            [(m, source.belief) for m, source in enumerate(sources)],
            truths=truths,
            alt=f"The head from above. {words}",
        )
        return _card(heading, f'<div class="overview">{above}<div>{shown}</div></div>')

    def _way(self) -> str:
        """Where the sources were over time, for a long recording."""
        seconds, track = self.scene.track_seconds, self.scene.track
        if len(seconds) < 2:
            return ""
        shown = track_chart(
            seconds,
            track[..., 0],
            caption="Over time <span>azimuth in each part of the recording</span>",
            alt="Azimuth of each source over time",
        )
        return f'<div class="way">{shown}</div>'

    def mixture(self) -> str:
        picture = self.scene.picture
        axes = picture.seconds, picture.frequencies_hz
        level = spectrogram(
            level_image(picture.level_db, self.top_db, LEVEL_RANGE_DB),
            *axes,
            caption="Spectrogram <span>both ears</span>",
            alt="Spectrogram of the mixture",
            opaque=True,
            key=_ramp("#000004,#51127c,#b73779,#fc8961,#fcfdbf", f"−{LEVEL_RANGE_DB:g}", "0 dB"),
        )
        ild = spectrogram(
            ild_image(picture.ild_db, ILD_LIMIT_DB),
            *axes,
            caption="Level difference <span>between the ears</span>",
            alt="Level difference between the ears in each bin: blue left, red right",
            key=_ramp("#2a6fc4,transparent,#d1303f", "left louder", "right louder") + _GREY_KEY,
        )
        return _card(
            "<h2>The recording</h2>",
            self.players.get(MIXTURE, ""),
            f'<div class="columns">{level}{ild}</div>',
        )

    def source(self, m: int) -> str:
        source = self.scene.sources[m]
        space, colour = source.belief.space, colour_of(m)
        true = None if self.known is None else self.known.direction_of(m)
        off = ""
        if true is not None:
            error = float(place_errors(space, true, source.direction))
            unit = "°" if space.holds_directions else ""
            off = f"<dt>Truth</dt><dd>{place_words(space, true)} (off by {error:.1f}{unit})</dd>"
        shown = map_chart(
            [(m, source.belief, zoomed_map(source.belief, truth=true))],
            truths=() if true is None else [true],
            caption=f"Belief <span>{'log-' * (space.dims > 1)}density around its peak</span>",
            alt=f"Where {source.name} is believed to be: {place_words(space, source.direction)}",
            key="" if true is None else _TRUE_KEY,
        )
        facts = (
            f'<p class="place">{place_words(space, source.direction)}</p>'
            f"<dl><dt>Direction</dt><dd>{number_words(space, source.direction)}</dd>"
            f"<dt>90 % sure</dt><dd>within {sure_words(space, source.credible_90_area)}</dd>"
            f"<dt>Energy</dt><dd>{percent_words(source.share)} of the recording</dd>{off}</dl>"
        )
        heading = f'<h2><span class="badge">{m + 1}</span>{escape(source.name)}</h2>'
        return _card(
            "",
            f'<div class="columns"><div>{heading}{facts}{self.players.get(source.name, "")}</div>'
            f"{shown}</div>",
            f'<div class="pictures">{self._spectrograms(m, source)}</div>',
            kind="card source",
            style=f"--colour:{colour};--on:{on_colour(colour)}",
        )

    def _spectrograms(self, m: int, source: FoundSource) -> str:
        picture, colour = self.scene.picture, colour_of(m)
        axes = picture.seconds, picture.frequencies_hz
        mask = picture.masks[m]
        with np.errstate(divide="ignore"):
            heard = picture.level_db + 20 * np.log10(np.nan_to_num(mask))
        key = _ramp(f"transparent,{colour}", "0", "1") + _GREY_KEY
        shown = [
            spectrogram(
                level_image(heard, self.top_db, LEVEL_RANGE_DB),
                *axes,
                caption="What it was given <span>of the spectrogram</span>",
                alt=f"Spectrogram of {source.name}",
                opaque=True,
            ),
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
        if self.known is None:
            return ""
        return _card("<h2>Found and true</h2>", comparison_table(self.scene, self.known))

    def inference(self) -> str:
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
