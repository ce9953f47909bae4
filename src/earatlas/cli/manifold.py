"""`earatlas manifold`: the surfaces that a head's cues lie on (the paper's figure 3)."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from earatlas.cli.console import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    HeadArgument,
    JsonOption,
    Kind,
    KindOption,
    OutputOption,
    opened_head,
    out,
    print_json,
    progress,
    say,
)
from earatlas.errors import EaratlasWarning, InputError, missing_extra
from earatlas.hearing.layout import CueLayout

__all__ = ["commands"]

commands = typer.Typer()

_CUES = {
    "low ILD": CueLayout.low_ild,
    "low IPD": CueLayout.low_ipd,
    "high ILD": CueLayout.high_ild,
    "high IPD": CueLayout.high_ipd,
}
_LEAST = 60  # directions: fewer say nothing about a surface


@commands.command(
    epilog="Examples: earatlas manifold ku100.sofa -o ku100; "
    "earatlas manifold simulated --neighbours 15 --json",
)
def manifold(
    head: HeadArgument,
    output: OutputOption = Path("manifold"),
    neighbours: Annotated[int, typer.Option(help="Of a direction, among the cues.")] = 10,
    candidates: Annotated[
        int, typer.Option(help="Eigenvectors to choose three from; 3: the first, as in the paper.")
    ] = 9,
    whiten: Annotated[
        int, typer.Option(help="Principal components that count alike in the second embedding.")
    ] = 20,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    as_json: JsonOption = False,
) -> None:
    """Unroll the surface of each kind of cue, score it against the directions, and draw it."""
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error
    from earatlas.drawing.manifolds import plot_manifolds
    from earatlas.drawing.style import save
    from earatlas.manifold.faithfulness import faithfulness
    from earatlas.manifold.ltsa import ltsa, pca
    from earatlas.manifold.viewer import Embedding, manifold_page

    if not 3 <= candidates <= 24:
        raise InputError(f"candidates must be from 3 to 24, got {candidates}. 9 is the default.")
    if whiten < 3:
        raise InputError(f"whiten must be at least 3, got {whiten}. 20 is the default.")
    if neighbours < 4:
        raise InputError(f"neighbours must be at least 4, got {neighbours}. Take 8 to 25.")
    opened = opened_head(head, kind=kind, channels=channels, duplicates=duplicates)
    if len(opened) < max(_LEAST, 2 * neighbours) or opened.space.dims != 2:
        raise InputError(
            f"head must have at least {max(_LEAST, 2 * neighbours)} directions at several "
            f"elevations, got {len(opened)} on the {opened.space.name}. Use a head "
            "that was measured all round."
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output folder must be writable, got '{output}' ({error.strerror}). "
            "Choose another folder."
        ) from error
    start, everywhere = time.perf_counter(), np.arange(len(opened))
    embeddings = []
    with progress(f"unrolling {opened.name}") as update, warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the table says what is left out
        for done, (cue, layout) in enumerate(_CUES.items(), start=1):
            y = opened.cues(layout())
            plain, white = (
                ltsa(y, neighbours=neighbours, candidates=candidates, whiten=components)
                for components in (None, whiten)
            )
            for method, places, t in (
                ("LTSA, whitened", white.kept, white.coordinates),
                ("LTSA", plain.kept, plain.coordinates),
                ("PCA", everywhere, pca(y)),
            ):
                score = faithfulness(opened.space, opened.directions[places], t)
                left_out = len(opened) - len(places)
                embeddings.append(Embedding(cue, method, places, t, score, left_out))
            update(done, len(_CUES) + 1)
        drawn = embeddings, opened.directions, opened.spacing_degrees
        title = f"{opened.name}: binaural manifolds of {len(opened)} directions"
        picture = save(plot_manifolds(*drawn, title=title), output / f"{opened.name}.png")
        page = output / f"{opened.name}.html"
        text = manifold_page(*drawn, title=title)
        try:
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"page must be a file that can be written, got '{page}' ({error.strerror}). "
                "Check the output folder."
            ) from error
    seconds = time.perf_counter() - start
    if as_json:
        rows = [
            {
                "cue": e.cue,
                "method": e.method,
                "directions": len(e.places),
                "left_out": e.left_out,
                **{name: round(value, 4) for name, value in vars(e.score).items()},
                "homeomorphic": e.verdict == "homeomorphic",
            }
            for e in embeddings
        ]
        print_json(
            {
                "head": opened.name,
                "directions": len(opened),
                "neighbours": neighbours,
                "manifolds": rows,
                "picture": str(picture),
                "page": str(page),
                "seconds": round(seconds, 2),
            }
        )
        return
    table = Table("cue", "method", "left out", "trust", "contin.", "agree", ">30°", "verdict",
                  box=None, padding=(0, 2, 0, 0))  # fmt: skip
    for e in embeddings:
        s = e.score
        table.add_row(
            e.cue, e.method, str(e.left_out), f"{s.trustworthiness:.3f}", f"{s.continuity:.3f}",
            f"{s.agreement:.2f}", f"{100 * s.beyond_30_share:.0f} %", e.verdict,
        )  # fmt: skip
    say(f"{opened.name}: {len(opened)} directions, {neighbours} neighbours, in {seconds:.1f} s")
    out.print(table, highlight=False)
    say("trust(worthiness) and contin(uity): 0.95 or more is homeomorphic, 0.5 is chance")
    say("agree: neighbours kept; >30°: nearest by coordinates that lie elsewhere by direction")
    say(f"picture: {picture}")
    say(f"page: {page} (open it in a browser: drag to turn)")
