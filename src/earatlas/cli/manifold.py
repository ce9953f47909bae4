"""`earatlas manifold`: embeddings of the interaural cues of a head (figure 3 of the paper)."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import out, print_json, print_line, progress
from earatlas.cli.options import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    ForceOption,
    HeadArgument,
    HeadOptions,
    JsonOption,
    Kind,
    KindOption,
    OutputOption,
    WrongWayOption,
    read_head,
)
from earatlas.cli.outputs import OutputFiles, is_picture
from earatlas.errors import EaratlasWarning, InputError, missing_extra
from earatlas.features.layout import CueLayout
from earatlas.files import atomic_write_all, output_folder
from earatlas.hrtf.head import Head
from earatlas.types import Progress

if TYPE_CHECKING:
    from earatlas.manifold.viewer import Embedding

__all__ = ["app", "manifold"]

app = command_app()

_CUES = {
    "low ILD": CueLayout.low_ild,
    "low IPD": CueLayout.low_ipd,
    "high ILD": CueLayout.high_ild,
    "high IPD": CueLayout.high_ipd,
}


@dataclass(frozen=True)
class _EmbeddingSettings:
    """Settings of the manifold learning."""

    neighbours: int  # nearest neighbours of each cue vector
    candidates: int  # eigenvectors from which three are chosen
    whiten: int  # principal components that are whitened in the second embedding

    def __post_init__(self) -> None:
        if not 3 <= self.candidates <= 24:
            raise InputError(
                f"candidates must be from 3 to 24, got {self.candidates}. The default is 9."
            )
        if self.whiten < 3:
            raise InputError(f"whiten must be at least 3, got {self.whiten}. The default is 20.")
        if self.neighbours < 4:
            raise InputError(f"neighbours must be at least 4, got {self.neighbours}. Use 8 to 25.")

    def check_head(self, head: Head) -> None:
        """Refuse a head with too few directions, or with only one elevation."""
        head.check_directions("show a manifold")
        minimum = max(60, 2 * self.neighbours)  # fewer directions do not show a surface
        if len(head) < minimum or head.space.dims != 2:
            raise InputError(
                f"head must have at least {minimum} directions at several elevations, got "
                f"{len(head)} on the {head.space.name}. Use a head that was measured on a sphere."
            )


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas manifold ku100.sofa -o ku100",
        "earatlas manifold simulated --neighbours 15 --json",
    ),
)
def manifold(
    head: HeadArgument,
    output: OutputOption = Path("manifold"),
    neighbours: Annotated[
        int, typer.Option(metavar="N", help="Nearest neighbours of each direction, in cue space.")
    ] = 10,
    candidates: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of eigenvectors from which three are chosen; 3 takes the first three, as "
            "in the paper.",
        ),
    ] = 9,
    whiten: Annotated[
        int,
        typer.Option(
            metavar="N", help="Principal components that are whitened in the second embedding."
        ),
    ] = 20,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    wrong_way: WrongWayOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Embed the interaural cues of a head in 3D, and score the embeddings.

    Uses LTSA, LTSA with whitening, and PCA for low and high ILD and IPD cues. Writes a picture and
    an interactive page, and scores how well each embedding preserves the directions.
    """
    _check_extra()
    settings = _EmbeddingSettings(neighbours, candidates, whiten)
    measured = read_head(head, HeadOptions(kind, channels, duplicates, wrong_way))
    settings.check_head(measured)
    outputs = OutputFiles(force=force)
    picture, page = (output / f"{measured.name}.{ending}" for ending in ("png", "html"))
    own = picture.is_file() and is_picture(picture)
    for file in (picture, page):
        outputs.claim_in_folder(file, own)
    start = time.perf_counter()
    with output_folder(output), warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the table shows what is left out
        with progress(f"embedding {measured.name}") as update:
            embeddings = _embeddings(measured, settings, update)
            with atomic_write_all(output) as new:
                _plot(measured, embeddings, new / picture.name, new / page.name)
    seconds = time.perf_counter() - start
    outputs.report()
    if as_json:
        answer = {"head": measured.name, "directions": len(measured), "neighbours": neighbours,
                  "manifolds": [_row(e) for e in embeddings], "picture": str(picture),
                  "page": str(page), "seconds": round(seconds, 2)}  # fmt: skip
        print_json(answer)
        return
    print_line(
        f"{measured.name}: {len(measured)} directions, {neighbours} neighbours, in {seconds:.1f} s"
    )
    _print(embeddings)
    print_line(f"picture: {picture}")
    print_line(f"page: {page} (open it in a browser, and drag to rotate)")


def _check_extra() -> None:
    """Raise an error if scikit-learn is not installed."""
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error


def _embeddings(head: Head, settings: _EmbeddingSettings, update: Progress) -> list[Embedding]:
    """Return three embeddings of each kind of cue, with their scores."""
    from earatlas.manifold.faithfulness import faithfulness
    from earatlas.manifold.ltsa import ltsa, pca
    from earatlas.manifold.viewer import Embedding

    all_directions = np.arange(len(head))
    embeddings = []
    for done, (cue, layout) in enumerate(_CUES.items(), start=1):
        y = head.cues(layout())
        plain, white = (
            ltsa(
                y, neighbours=settings.neighbours, candidates=settings.candidates, whiten=components
            )
            for components in (None, settings.whiten)
        )
        for method, kept, t in (
            ("LTSA, whitened", white.kept, white.coordinates),
            ("LTSA", plain.kept, plain.coordinates),
            ("PCA", all_directions, pca(y)),
        ):
            score = faithfulness(head.space, head.directions[kept], t)
            embeddings.append(Embedding(cue, method, kept, t, score, len(head) - len(kept)))
        update(done, len(_CUES) + 1)
    return embeddings


def _plot(head: Head, embeddings: list[Embedding], picture: Path, page: Path) -> None:
    """Write the picture and the interactive page."""
    from earatlas.manifold.viewer import manifold_page
    from earatlas.plotting.manifolds import plot_manifolds
    from earatlas.plotting.style import save

    content = embeddings, head.directions, head.spacing_degrees
    title = f"{head.name}: binaural manifolds of {len(head)} directions"
    save(plot_manifolds(*content, title=title), picture)
    page.write_text(manifold_page(*content, title=title), encoding="utf-8")


def _row(e: Embedding) -> dict[str, Any]:
    """Return an embedding as JSON values."""
    return {
        "cue": e.cue,
        "method": e.method,
        "directions": len(e.direction_indices),
        "left_out": e.left_out,
        **{name: round(value, 4) for name, value in vars(e.score).items()},
        "homeomorphic": e.verdict == "homeomorphic",
    }


def _print(embeddings: list[Embedding]) -> None:
    """Print the scores of the embeddings as a table."""
    table = Table("cue", "method", "left out", "trust", "contin.", "agree", ">30°", "verdict",
                  box=None, padding=(0, 2, 0, 0))  # fmt: skip
    for e in embeddings:
        s = e.score
        table.add_row(
            e.cue, e.method, str(e.left_out), f"{s.trustworthiness:.3f}", f"{s.continuity:.3f}",
            f"{s.agreement:.2f}", f"{100 * s.beyond_30_share:.0f} %", e.verdict,
        )  # fmt: skip
    out.print(table, highlight=False)
    print_line(
        "trust(worthiness) and contin(uity): 0.95 or more is homeomorphic, 0.5 is chance level"
    )
    print_line("agree: share of preserved neighbours; >30°: nearest neighbours more than 30° apart")
