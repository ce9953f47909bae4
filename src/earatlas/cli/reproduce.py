"""`earatlas reproduce`: the paper's tables and figures, and rooms, run and rendered again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.console import note, print_json, progress, say
from earatlas.cli.options import ForceOption, JsonOption, OutputOption
from earatlas.cli.outputs import Outputs
from earatlas.errors import InputError
from earatlas.experiments import EXPERIMENTS, Bench, run
from earatlas.experiments.page import rows_path, write_page
from earatlas.experiments.rows import Experiment
from earatlas.features.layout import CueLayout
from earatlas.files import output_folder
from earatlas.hrtf.head import MeasuredCues
from earatlas.training.reverberant import rooms_refused

__all__ = ["app", "reproduce"]

app = one_command()


@dataclass(frozen=True)
class _Plan:
    """Which experiments are run, on which heads, and how much of each."""

    name: str
    heads: tuple[str, ...]
    speech: Path | None
    quick: bool
    share: float
    jobs: int

    def __post_init__(self) -> None:
        if self.name != "all" and self.name not in EXPERIMENTS:
            raise InputError(
                f"name must be one of {', '.join(EXPERIMENTS)} or all, got '{self.name}'. "
                "Choose one."
            )
        if self.jobs < 1:
            raise InputError(
                f"jobs must be at least 1, got {self.jobs}. 1 runs one row after the other."
            )
        if not 0 < self.share <= 1:
            raise InputError(
                f"share must be above 0 and at most 1, got {self.share:g}. 0.1 is a tenth."
            )
        if self.speech is not None and not self.speech.is_dir():
            raise InputError(
                f"speech must be a folder of sound files, got '{self.speech}'. "
                "Leave it out for the built-in talkers."
            )

    @property
    def experiments(self) -> Sequence[Experiment]:
        return list(EXPERIMENTS.values()) if self.name == "all" else [EXPERIMENTS[self.name]]


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas reproduce table1 --quick",
        "earatlas reproduce all --head ku100.sofa --speech talkers -o docs",
    ),
)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="table1 … table3, figure2 … figure9, rooms, or all."),
    ],
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEAD",
            help="A .sofa file, a .csv table or the folder of its positions.csv, 'simulated' (the "
            "default) or 'simulated-room'; repeatable.",
        ),
    ] = None,
    speech: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of sound files; without it, built-in talkers."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, in a minute or two.")
    ] = False,
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the paper's repetitions, 0 to 1.")
    ] = 1.0,
    jobs: Annotated[int, typer.Option(metavar="N", help="Processes at once.")] = 1,
    draw_only: Annotated[
        bool, typer.Option("--draw-only", help="Run nothing: make the page of what there is.")
    ] = False,
    output: OutputOption = Path("reproduced"),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's experiments and put paper and ours side by side on a page.

    What was finished is not run again: stop it and start it again as you like.
    """
    plan = _Plan(name, tuple(dict.fromkeys(head or ["simulated"])), speech, quick, share, jobs)
    folder = output / "results"
    page = output / "results.md"
    Outputs(force=force).claim_in_folder(page, (folder / "rows").is_dir() or page.is_dir())
    start, answers = time.perf_counter(), []
    with output_folder(folder / "rows"):
        for answer in () if draw_only else _run(plan, folder):
            answers.append(answer)
            if not as_json:
                say("{name}, {head}: {rows} rows, {new} of them new, {seconds:.0f} s".format_map(
                    answer))  # fmt: skip
        with progress("drawing"):
            page = write_page(EXPERIMENTS, output, quick=quick)
    total = round(time.perf_counter() - start, 1)
    if as_json:
        print_json({"experiments": answers, "page": str(page), "seconds": total})
    else:
        say(f"page: {page} ({total:.0f} s in all)")


def _run(plan: _Plan, folder: Path) -> Iterator[dict[str, Any]]:
    """Run what is planned: what became of each experiment with each head."""
    for source in plan.heads:
        bench = Bench(source, plan.speech, plan.quick, plan.share)
        if any(experiment.head for experiment in plan.experiments):
            with progress(f"reading {source}"):
                _ = bench.plane
        for experiment in plan.experiments:
            if _applies(experiment, bench, source, plan):
                yield _answer(experiment, bench, source, rows_path(folder, experiment.name), plan)


def _applies(experiment: Experiment, bench: Bench, source: str, plan: _Plan) -> bool:
    """Whether an experiment is to be run with this head."""
    if not experiment.head:
        return source == plan.heads[0]  # a toy: the same for every head
    if plan.name != "all":
        return True  # what cannot be run is refused with the same reason
    reason = None
    if experiment.sound and isinstance(bench.whole.ears, MeasuredCues):
        reason = "it needs impulse responses to render talkers, and this head is known by noise"
    elif experiment.open_air and rooms_refused(bench.plane, CueLayout()) is not None:
        reason = "it needs a head that was measured in the open, and this one has a room's echoes"
    if reason is not None:
        note("[yellow]left out:[/]", f"{experiment.name} of {source}: {reason}.")
    return reason is None


def _answer(
    experiment: Experiment, bench: Bench, source: str, path: Path, plan: _Plan
) -> dict[str, Any]:
    begin = time.perf_counter()
    with progress(f"{experiment.name}, {source}") as update:
        rows, new = run(experiment, bench, path, jobs=plan.jobs, progress=update)
    seconds = time.perf_counter() - begin
    return {
        "name": experiment.name,
        "head": source,
        "rows": len(rows),
        "new": new,
        "seconds": round(seconds, 1),
    }
