"""The page of a scene: its sections, put together and written.

In: a `FoundScene`, and what is known of the truth. Out: one HTML file that needs nothing else: no
network, no other file, no library. Its look is in page.html.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files as resources
from pathlib import Path

from earatlas.errors import InputError
from earatlas.evaluation.ground_truth import Truth
from earatlas.features.audio import Audio
from earatlas.files import written_whole
from earatlas.plotting.palette import look
from earatlas.report.comparison import MIXTURE, Known
from earatlas.report.players import players
from earatlas.report.sections import Sections
from earatlas.report.spectrograms import levels_of
from earatlas.separation.result import FoundScene, Scene

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
    with written_whole(path, "report") as scratch:
        # A name may be no UTF-8, which a page is.
        scratch.write_text(page, encoding="utf-8", errors="backslashreplace")
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
    known = None if truth is None else Known.judged(scene, truth, sounds)
    levels = {name: levels_of(sound) for name, sound in sounds.items()}
    sections = Sections(scene, known, players(sounds, given, Path(folder)), levels)
    body = "".join(
        (
            sections.header(title, elapsed_seconds),
            "<main>",
            sections.overview(),
            sections.comparison(),
            sections.mixture(),
            *(sections.source(m) for m in range(len(scene.sources))),
            sections.inference(),
            "</main><footer>Made by earatlas. Everything is inside this file: "
            "it can be sent on as it is.</footer>",
        )
    )
    return _filled(body, title)


def _filled(body: str, title: str) -> str:
    """The page with this body. Only what stands before it is filled in: it may say anything."""
    text = resources("earatlas.report").joinpath("page.html").read_text(encoding="utf-8")
    before, _, after = text.partition("{{body}}")
    digest = b64encode(sha256(_SCRIPT.encode()).digest()).decode("ascii")
    for name, value in {"look": look(), "script_hash": digest, "title": escape(title)}.items():
        before = before.replace(f"{{{{{name}}}}}", value)
    return before + body + after.replace("{{script}}", _SCRIPT)


def _sounds(scene: FoundScene, files: Mapping[str, Path]) -> dict[str, Audio | Path]:
    """What there is to listen to: the scene's own sounds, or the files they were written to."""
    if isinstance(scene, Scene):
        return {MIXTURE: scene.mixture, **{s.name: s.audio for s in scene.sources}}
    return dict(files)
