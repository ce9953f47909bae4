"""`earatlas reproduce`: the paper's tables and figures, run and rendered again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from earatlas.cli.console import JsonOption, OutputOption, note, print_json, progress, say
from earatlas.errors import InputError
from earatlas.heads.head import MeasuredCues

__all__ = ["commands"]

commands = typer.Typer()


@commands.command(
    epilog="Examples: earatlas reproduce table1 --quick; "
    "earatlas reproduce all --head simulated --head ku100.sofa --speech talkers -o docs"
)
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME|all", help="table1 … table3, figure2 … figure9, or all.")
    ],
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="A .sofa file, a .csv table or the folder of its positions.csv, 'simulated' (the "
            "default) or 'simulated-room'; repeatable."
        ),
    ] = None,
    speech: Annotated[
        Path | None, typer.Option(help="Folder of sound files; without it, built-in talkers.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, in a minute or two.")
    ] = False,
    share: Annotated[float, typer.Option(help="Of the paper's repetitions, 0 to 1.")] = 1.0,
    jobs: Annotated[int, typer.Option(help="Processes at once.")] = 1,
    draw_only: Annotated[
        bool, typer.Option("--draw-only", help="Run nothing: make the page of what there is.")
    ] = False,
    output: OutputOption = Path("reproduced"),
    as_json: JsonOption = False,
) -> None:
    """Run the paper's experiments and put paper and ours side by side on a page.

    What was finished is not run again: stop it and start it again as you like.
    """
    from earatlas.experiments import EXPERIMENTS, Bench, run
    from earatlas.experiments.page import rows_path, write_page

    if name != "all" and name not in EXPERIMENTS:
        raise InputError(
            f"name must be one of {', '.join(EXPERIMENTS)} or all, got '{name}'. Choose one."
        )
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}. 1 runs one row after the other.")
    if not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1, got {share:g}. 0.1 is a tenth.")
    if speech is not None and not speech.is_dir():
        raise InputError(
            f"speech must be a folder of sound files, got '{speech}'. "
            "Leave it out for the built-in talkers."
        )
    folder = output / "results"
    try:
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        if not os.access(folder / "rows", os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise InputError(
            f"output folder must be writable, got '{output}' ({error.strerror}). "
            "Choose another folder."
        ) from error
    chosen = list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]
    start, answers = time.perf_counter(), []
    heads = list(dict.fromkeys(head or ["simulated"]))
    for source in () if draw_only else heads:
        bench = Bench(source, speech, quick, share)
        if any(experiment.head for experiment in chosen):
            with progress(f"reading {source}"):
                _ = bench.plane
        for experiment in chosen:
            if not experiment.head and source != heads[0]:
                continue  # a toy: the same for every head
            noise_only = experiment.sound and isinstance(bench.whole.ears, MeasuredCues)
            if noise_only and name == "all":  # alone, it is refused with the same reason
                note("[yellow]left out:[/]", f"{experiment.name} of {source}: it needs impulse "
                     "responses to render talkers, and this head is known by noise.")  # fmt: skip
                continue
            begin = time.perf_counter()
            with progress(f"{experiment.name}, {source}") as update:
                rows, new = run(
                    experiment, bench, rows_path(folder, experiment.name), jobs=jobs,
                    progress=update,
                )  # fmt: skip
            seconds = time.perf_counter() - begin
            answers.append(
                {"name": experiment.name, "head": source, "rows": len(rows), "new": new,
                 "seconds": round(seconds, 1)}
            )  # fmt: skip
            if not as_json:
                say(f"{experiment.name}, {source}: {len(rows)} rows, {new} of them new, "
                    f"{seconds:.0f} s")  # fmt: skip
    with progress("drawing"):
        page = write_page(EXPERIMENTS, output, quick=quick)
    total = round(time.perf_counter() - start, 1)
    if as_json:
        print_json({"experiments": answers, "page": str(page), "seconds": total})
        return
    say(f"page: {page} ({total:.0f} s in all)")
