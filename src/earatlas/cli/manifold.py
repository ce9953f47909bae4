"""`earatlas manifold`: the surfaces that a head's cues lie on (the paper's figure 3)."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.console import out, print_json, progress, say
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
    opened_head,
)
from earatlas.cli.outputs import Outputs, is_picture
from earatlas.errors import EaratlasWarning, InputError, missing_extra
from earatlas.features.layout import CueLayout
from earatlas.files import output_folder, written_together
from earatlas.hrtf.head import Head
from earatlas.types import Progress

if TYPE_CHECKING:
    from earatlas.manifold.viewer import Embedding

__all__ = ["app", "manifold"]

app = one_command()

_CUES = {
    "low ILD": CueLayout.low_ild,
    "low IPD": CueLayout.low_ipd,
    "high ILD": CueLayout.high_ild,
    "high IPD": CueLayout.high_ipd,
}
_LEAST = 60  # directions: fewer say nothing about a surface


@dataclass(frozen=True)
class _Unrolling:
    """How a surface is unrolled."""

    neighbours: int  # of a direction, among the cues
    candidates: int  # eigenvectors to choose three from
    whiten: int  # principal components that count alike in the second embedding

    def __post_init__(self) -> None:
        if not 3 <= self.candidates <= 24:
            raise InputError(
                f"candidates must be from 3 to 24, got {self.candidates}. 9 is the default."
            )
        if self.whiten < 3:
            raise InputError(f"whiten must be at least 3, got {self.whiten}. 20 is the default.")
        if self.neighbours < 4:
            raise InputError(f"neighbours must be at least 4, got {self.neighbours}. Take 8 to 25.")

    def check_head(self, head: Head) -> None:
        """Refuse a head that has no surface, or too few directions on it."""
        least = max(_LEAST, 2 * self.neighbours)
        if len(head) < least or head.space.dims != 2:
            raise InputError(
                f"head must have at least {least} directions at several elevations, got "
                f"{len(head)} on the {head.space.name}. Use a head that was measured all round."
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
        int, typer.Option(metavar="N", help="Of a direction, among the cues.")
    ] = 10,
    candidates: Annotated[
        int,
        typer.Option(
            metavar="N", help="Eigenvectors to choose three from; 3: the first, as in the paper."
        ),
    ] = 9,
    whiten: Annotated[
        int,
        typer.Option(
            metavar="N", help="Principal components that count alike in the second embedding."
        ),
    ] = 20,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    wrong_way: WrongWayOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Unroll the surface of each kind of cue, score it against the directions, and draw it."""
    _check_extra()
    how = _Unrolling(neighbours, candidates, whiten)
    opened = opened_head(head, HeadOptions(kind, channels, duplicates, wrong_way))
    how.check_head(opened)
    outputs = Outputs(force=force)
    picture, page = (output / f"{opened.name}.{ending}" for ending in ("png", "html"))
    ours = picture.is_file() and is_picture(picture)
    for file in (picture, page):
        outputs.claim_in_folder(file, ours)
    start = time.perf_counter()
    with output_folder(output), warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the table says what is left out
        with progress(f"unrolling {opened.name}") as update:
            embeddings = _embeddings(opened, how, update)
            with written_together(output) as new:
                _draw(opened, embeddings, new / picture.name, new / page.name)
    seconds = time.perf_counter() - start
    outputs.tell()
    if as_json:
        answer = {"head": opened.name, "directions": len(opened), "neighbours": neighbours,
                  "manifolds": [_row(e) for e in embeddings], "picture": str(picture),
                  "page": str(page), "seconds": round(seconds, 2)}  # fmt: skip
        print_json(answer)
        return
    say(f"{opened.name}: {len(opened)} directions, {neighbours} neighbours, in {seconds:.1f} s")
    _print(embeddings)
    say(f"picture: {picture}")
    say(f"page: {page} (open it in a browser: drag to turn)")


def _check_extra() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error


def _embeddings(head: Head, how: _Unrolling, update: Progress) -> list[Embedding]:
    """Each kind of cue unrolled in three ways."""
    from earatlas.manifold.faithfulness import faithfulness
    from earatlas.manifold.ltsa import ltsa, pca
    from earatlas.manifold.viewer import Embedding

    everywhere = np.arange(len(head))
    embeddings = []
    for done, (cue, layout) in enumerate(_CUES.items(), start=1):
        y = head.cues(layout())
        plain, white = (
            ltsa(y, neighbours=how.neighbours, candidates=how.candidates, whiten=components)
            for components in (None, how.whiten)
        )
        for method, places, t in (
            ("LTSA, whitened", white.kept, white.coordinates),
            ("LTSA", plain.kept, plain.coordinates),
            ("PCA", everywhere, pca(y)),
        ):
            score = faithfulness(head.space, head.directions[places], t)
            embeddings.append(Embedding(cue, method, places, t, score, len(head) - len(places)))
        update(done, len(_CUES) + 1)
    return embeddings


def _draw(head: Head, embeddings: list[Embedding], picture: Path, page: Path) -> None:
    """Write the picture and the page to turn it in."""
    from earatlas.manifold.viewer import manifold_page
    from earatlas.plotting.manifolds import plot_manifolds
    from earatlas.plotting.style import save

    drawn = embeddings, head.directions, head.spacing_degrees
    title = f"{head.name}: binaural manifolds of {len(head)} directions"
    save(plot_manifolds(*drawn, title=title), picture)
    page.write_text(manifold_page(*drawn, title=title), encoding="utf-8")


def _row(e: Embedding) -> dict[str, Any]:
    return {
        "cue": e.cue,
        "method": e.method,
        "directions": len(e.places),
        "left_out": e.left_out,
        **{name: round(value, 4) for name, value in vars(e.score).items()},
        "homeomorphic": e.verdict == "homeomorphic",
    }


def _print(embeddings: list[Embedding]) -> None:
    table = Table("cue", "method", "left out", "trust", "contin.", "agree", ">30°", "verdict",
                  box=None, padding=(0, 2, 0, 0))  # fmt: skip
    for e in embeddings:
        s = e.score
        table.add_row(
            e.cue, e.method, str(e.left_out), f"{s.trustworthiness:.3f}", f"{s.continuity:.3f}",
            f"{s.agreement:.2f}", f"{100 * s.beyond_30_share:.0f} %", e.verdict,
        )  # fmt: skip
    out.print(table, highlight=False)
    say("trust(worthiness) and contin(uity): 0.95 or more is homeomorphic, 0.5 is chance")
    say("agree: neighbours kept; >30°: nearest by coordinates that lie elsewhere by direction")
