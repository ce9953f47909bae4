"""Assembly and writing of a scene's report.

The inputs are a `SceneSummary` and optionally the ground truth, the output is one self-contained
HTML file. Its layout and style are in page.html.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files as resources
from pathlib import Path

from earatlas.errors import InputError, check_path, sanitize
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.features.audio import Audio
from earatlas.files import atomic_write
from earatlas.plotting.palette import shared_css
from earatlas.report.comparison import MIXTURE, SceneComparison
from earatlas.report.pictures import picture_uri
from earatlas.report.players import players
from earatlas.report.sections import Sections
from earatlas.report.spectrograms import level_spectrogram
from earatlas.separation.result import Scene, SceneSummary

__all__ = ["chart_css", "report_page", "write_report"]

# Starting one player pauses the others.
_SCRIPT = (
    'document.addEventListener("play",e=>{for(const a of document.querySelectorAll("audio"))'
    "if(a!==e.target)a.pause()},true);"
)


def write_report(
    path: str | Path,
    scene: SceneSummary,
    *,
    title: str,
    truth: GroundTruth | None = None,
    files: Mapping[str, str | Path] | None = None,
    elapsed_seconds: float | None = None,
    picture: str | Path | None = None,
) -> Path:
    """Write a report of a separated scene as one self-contained HTML file.

    The report shows where each source is and how certain that is, spectrograms and masks, and has a
    player for each sound. With `truth` it also compares directions and sounds with the ground
    truth. The file is written completely or not at all.

    Parameters
    ----------
    path : str or Path
        A name that ends in .html.
    scene : SceneSummary
        A separated scene, for example from `Atlas.separate`.
    title : str
        Title of the page, for example the name of the recording.
    truth : GroundTruth, optional
        True directions, true images, or both.
    files : mapping from str to str or Path, optional
        Sound files by the name of the source, and the recording as "mixture". The page links to
        them relative to its own folder, and plays them if the scene holds no sounds.
    elapsed_seconds : float, optional
        How long the separation took, in seconds.
    picture : str or Path, optional
        A .png or .jpg file of the camera, on which positions in pixels are shown.

    Returns
    -------
    Path
        The path of the page.

    Raises
    ------
    InputError
        If the name does not end in .html, the file cannot be written, or `files` names a source
        that the scene does not have.

    Examples
    --------
    >>> import tempfile
    >>> import earatlas as ea
    >>> from earatlas.report import write_report
    >>> mixture = ea.render_scene(
    ...     ea.simulated_head([[40, 10]]), [ea.synthetic_speech(0.4, seed=1)], [[40, 10]]).mixture
    >>> scene = ea.example_atlas().separate(mixture, n_sources=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(f"{folder}/speech.html", scene, title="speech").name
    'speech.html'
    """
    path = check_path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"report must end in .html, got '{path}'. Rename the output.")
    page = report_page(
        scene,
        title=title,
        truth=truth,
        files=files,
        elapsed_seconds=elapsed_seconds,
        folder=path.parent,
        picture=picture,
    )
    with atomic_write(path, "report") as scratch:
        # File names may contain bytes that are not valid UTF-8.
        scratch.write_text(page, encoding="utf-8", errors="backslashreplace")
    return path


def report_page(
    scene: SceneSummary,
    *,
    title: str,
    truth: GroundTruth | None = None,
    files: Mapping[str, str | Path] | None = None,
    elapsed_seconds: float | None = None,
    folder: str | Path = ".",
    picture: str | Path | None = None,
) -> str:
    """Return the HTML that `write_report` writes into `folder`.

    The parameters are those of `write_report`; links to files are relative to `folder`.
    """
    title = sanitize(title)  # a file name may control the terminal that shows the page
    names = [MIXTURE, *(source.name for source in scene.sources)]
    given = {name: Path(file) for name, file in (files or {}).items()}
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InputError(
            f"files must be those of {', '.join(names)}, got one of '{unknown[0]}'. "
            "Use the names of the scene's sources."
        )
    sounds = _sounds(scene, given)
    comparison = None if truth is None else SceneComparison.compute(scene, truth, sounds)
    spectrograms = {name: level_spectrogram(sound) for name, sound in sounds.items()}
    background = ""
    if picture is not None and scene.sources:
        background = picture_uri(picture, scene.sources[0].posterior.space)
    sections = Sections(
        scene, comparison, players(sounds, given, Path(folder)), spectrograms, background
    )
    body = "".join(
        (
            sections.header(title, elapsed_seconds),
            "<main>",
            sections.overview(),
            sections.comparison_section(),
            sections.mixture(),
            *(sections.source(m) for m in range(len(scene.sources))),
            sections.inference(),
            "</main><footer>Made with earatlas. This file is self-contained: sounds and images are "
            "embedded.</footer>",
        )
    )
    return _fill_template(body, title)


def _fill_template(body: str, title: str) -> str:
    """Return page.html with this body; placeholders within the body are left as they are."""
    text = _resource("page.html")
    before, _, after = text.partition("{{body}}")
    digest = b64encode(sha256(_SCRIPT.encode()).digest()).decode("ascii")
    values = {
        "shared_css": shared_css(),
        "chart_css": chart_css(),
        "script_hash": digest,
        "title": escape(title),
    }
    for name, value in values.items():
        before = before.replace(f"{{{{{name}}}}}", value)
    return before + body + after.replace("{{script}}", _SCRIPT)


def chart_css() -> str:
    """Return the style sheet of charts, for pages that have `shared_css`."""
    return _resource("charts.css")


def _resource(name: str) -> str:
    """Return the text of a file of this package."""
    return resources("earatlas.report").joinpath(name).read_text(encoding="utf-8")


def _sounds(scene: SceneSummary, files: Mapping[str, Path]) -> dict[str, Audio | Path]:
    """Return the sounds of a scene by name, or the files they were written to."""
    if isinstance(scene, Scene):
        return {MIXTURE: scene.mixture, **{s.name: s.audio for s in scene.sources}}
    return dict(files)
