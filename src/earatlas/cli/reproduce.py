"""`earatlas reproduce`: the experiments of the paper, and those in rooms."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import print_json, print_line, print_note, progress
from earatlas.cli.options import ForceOption, JsonOption, OutputOption
from earatlas.cli.outputs import OutputFiles
from earatlas.errors import InputError
from earatlas.experiments import EXPERIMENTS, Bench, run_experiment
from earatlas.experiments.confirmation import check_rows
from earatlas.experiments.page import rows_path, write_page
from earatlas.experiments.recorded_talkers import is_recorded_speech
from earatlas.experiments.rows import Experiment
from earatlas.features.layout import CueLayout
from earatlas.files import output_folder
from earatlas.hrtf.head import MeasuredCues
from earatlas.training.reverberant import reverberation_obstacle

__all__ = ["app", "reproduce"]

app = command_app()

_ANSWER = "{name}, {head}: {rows} rows, {new} of them new, {seconds:.0f} s"
_CHECKED = (
    "{name}, {head}: {repeated} of {stale} stale rows repeated, {confirmed} confirmed, "
    "{seconds:.0f} s"
)
_PORTIONS = (0.1, 0.3, 1.0)  # shares of the repetitions of all experiments after each pass


@dataclass(frozen=True)
class _Plan:
    """The experiments to run, their heads, and the share of repetitions."""

    name: str
    heads: tuple[str, ...]
    speech: Path | None
    quick: bool
    share: float
    jobs: int
    repeat_stale: bool = False
    check: int | None = None

    def __post_init__(self) -> None:
        if self.name != "all" and self.name not in EXPERIMENTS:
            raise InputError(
                f"name must be one of {', '.join(EXPERIMENTS)} or all, got '{self.name}'. "
                "Choose one."
            )
        if self.jobs < 1:
            raise InputError(
                f"jobs must be at least 1, got {self.jobs}. Use 1 to run one row at a time."
            )
        if self.check is not None and (self.check < 1 or self.repeat_stale):
            raise InputError(
                f"check must be at least 1 and without stale, got {self.check}"
                f"{' with stale' if self.repeat_stale else ''}. Use --check 3, and --stale "
                "afterwards for the rows that differ."
            )
        if not 0 < self.share <= 1:
            raise InputError(
                f"share must be above 0 and at most 1, got {self.share:g}. Use 1 for all "
                "repetitions."
            )
        if self.speech is not None and not (self.speech.is_dir() or self.has_recordings):
            raise InputError(
                f"speech must be a folder of sound files or a .csv table of binaural recordings, "
                f"got '{self.speech}'. Remove the option to use the built-in talkers."
            )

    @property
    def has_recordings(self) -> bool:
        """Whether speech is a table of binaural recordings."""
        return is_recorded_speech(self.speech)

    @property
    def experiments(self) -> Sequence[Experiment]:
        """Return the experiments in order."""
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
        typer.Argument(
            metavar="NAME", help="Experiment: table1 … table3, figure2 … figure9, rooms, or all."
        ),
    ],
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEAD",
            help="Head: a .sofa file, a .csv table, a folder with a positions.csv, 'simulated' "
            "(the default) or 'simulated-room'. Can be repeated.",
        ),
    ] = None,
    speech: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of speech, or a .csv table of binaural recordings of speech (file, "
            "azimuth, elevation, speaker), which are summed. Default: built-in talkers.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small version, in a minute or two.")
    ] = False,
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the planned repetitions, 0 to 1.")
    ] = 1.0,
    jobs: Annotated[int, typer.Option(metavar="N", help="Number of parallel processes.")] = 1,
    stale: Annotated[
        bool, typer.Option("--stale", help="Repeat rows that were measured by other code.")
    ] = False,
    check: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Repeat only N stale rows of each kind (method, number of talkers), and confirm "
            "the others if they agree; differences are listed.",
        ),
    ] = None,
    draw_only: Annotated[
        bool, typer.Option("--draw-only", help="Run nothing; write the page from existing results.")
    ] = False,
    output: OutputOption = Path("reproduced"),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the experiments of the paper, and compare the results.

    Writes a page with the results of the paper and of this package. Finished results are kept:
    an interrupted run continues where it stopped. Results of code that has changed since are
    marked on the page.
    """
    heads = tuple(dict.fromkeys(head or ["simulated"]))
    plan = _Plan(name, heads, speech, quick, share, jobs, stale, check)
    folder = output / "results"
    page = output / "results.md"
    OutputFiles(force=force).claim_in_folder(page, (folder / "rows").is_dir() or page.is_dir())
    start, answers = time.perf_counter(), []
    with output_folder(folder / "rows"):
        for answer in () if draw_only else _run(plan, folder):
            answers.append(answer)
            if not as_json:
                print_line((_ANSWER if check is None else _CHECKED).format_map(answer))
                for difference in answer.get("differences", ()):
                    print_line(f"  differs: {difference}")
        with progress("plotting"):
            page = write_page(EXPERIMENTS, output, quick=quick)
    total = round(time.perf_counter() - start, 1)
    if as_json:
        print_json({"experiments": answers, "page": str(page), "seconds": total})
    else:
        print_line(f"page: {page} ({total:.0f} s in total)")


def _run(plan: _Plan, folder: Path) -> Iterator[dict[str, Any]]:
    """Run the planned experiments with each head; yield their results as JSON values.

    All experiments get a part of their repetitions before any gets the rest, so that an interrupted
    run has something of everything.
    """
    pairs = []
    for source in plan.heads:
        bench = Bench(source, plan.speech, plan.quick, plan.share)
        if any(experiment.head for experiment in plan.experiments):
            with progress(f"reading {source}"):
                _ = bench.planar_head
        pairs += [
            (experiment, bench)
            for experiment in plan.experiments
            if _applies(experiment, bench, source, plan)
        ]
    if plan.check is not None:
        for experiment, bench in pairs:
            yield _check(experiment, bench, rows_path(folder, experiment.name), plan.check)
        return
    portions = _PORTIONS if len(pairs) > 1 and not plan.quick else (1.0,)
    totals: dict[int, dict[str, Any]] = {}
    for portion in portions:
        for n, (experiment, bench) in enumerate(pairs):
            answer = _answer(experiment, bench, rows_path(folder, experiment.name), plan, portion)
            for name in ("new", "seconds") if n in totals else ():
                answer[name] = round(answer[name] + totals[n][name], 1)
            totals[n] = answer
            if portion == portions[-1]:
                yield answer


def _applies(experiment: Experiment, bench: Bench, source: str, plan: _Plan) -> bool:
    """Whether an experiment can be run with this head; print the reason if not."""
    if not experiment.head:
        return source == plan.heads[0]  # synthetic data: the same for every head
    if plan.name != "all":
        return True  # the experiment itself raises the error
    reason = None
    if experiment.needs_anechoic_head and plan.has_recordings:
        reason = "it needs a folder of dry speech, but the talkers are binaural recordings"
    elif (
        experiment.needs_speech
        and not plan.has_recordings
        and isinstance(bench.full_head.ears, MeasuredCues)
    ):
        reason = "it needs impulse responses, but this head consists of noise recordings"
    elif (
        experiment.needs_anechoic_head
        and reverberation_obstacle(bench.planar_head, CueLayout()) is not None
    ):
        reason = "it needs an anechoic head, but the responses of this one are reverberant"
    if reason is not None:
        print_note("[yellow]skipped:[/]", f"{experiment.name} of {source}: {reason}.")
    return reason is None


def _answer(
    experiment: Experiment, bench: Bench, path: Path, plan: _Plan, portion: float
) -> dict[str, Any]:
    """Run a portion of an experiment; return the counts and the time as JSON values."""
    start, source = time.perf_counter(), bench.head
    with progress(f"{experiment.name}, {source}") as update:
        rows, new = run_experiment(
            experiment,
            bench,
            path,
            jobs=plan.jobs,
            repeat_stale=plan.repeat_stale,
            portion=portion,
            progress=update,
        )
    seconds = time.perf_counter() - start
    return {
        "name": experiment.name,
        "head": source,
        "rows": len(rows),
        "new": new,
        "seconds": round(seconds, 1),
    }


def _check(experiment: Experiment, bench: Bench, path: Path, repetitions: int) -> dict[str, Any]:
    """Repeat some stale rows; return the counts and the time as JSON values."""
    start = time.perf_counter()
    with progress(f"{experiment.name}, {bench.head}") as update:
        checks = check_rows(experiment, bench, path, repetitions, progress=update)
    return {
        "name": experiment.name,
        "head": bench.head,
        "stale": sum(check.rows for check in checks),
        "repeated": sum(check.repeated for check in checks),
        "confirmed": sum(check.rows for check in checks if check.agrees),
        "differences": [
            f"{check.kind or experiment.name} ({check.rows} rows): {check.difference}"
            for check in checks
            if not check.agrees
        ],
        "seconds": round(time.perf_counter() - start, 1),
    }
