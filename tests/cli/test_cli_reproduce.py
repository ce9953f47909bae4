"""The command reproduce: a small run of all experiments, resuming, and bad input."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests_support import refused

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import earatlas as ea
from earatlas.cli.reproduce import _applies, _Plan
from earatlas.experiments import (
    EXPERIMENTS,
    Bench,
    figure8,
    read_rows,
    rooms,
    table3,
)
from earatlas.experiments.page import write_page
from earatlas.experiments.tables import merge_parts, select_rows
from earatlas.experiments.talkers import render_talkers
from earatlas.ppam.calibration import CalibrationSettings
from earatlas.simulation.scene import SimulatedScene
from earatlas.training.learn_head import LearningSettings
from earatlas.training.reverberant import ReverberantTrainingSettings

Run = Callable[..., subprocess.CompletedProcess[str]]


def short_talkers(*arguments: Any, seconds: tuple[float, float]) -> SimulatedScene:
    """`render_talkers` with talkers of 1.3 s, because VESSL of the paper is slow."""
    return render_talkers(*arguments, seconds=(1.3, 1.3))


def clear_caches() -> None:
    """Forget the heads and models that experiments keep for the next row."""
    for module in [m for name, m in sys.modules.items() if name.startswith("earatlas.experiments")]:
        for value in vars(module).values():
            if callable(clear := getattr(value, "cache_clear", None)):
                clear()


def few_components(bench: Bench) -> list[dict[str, Any]]:
    """Return the plan of Figure 8 without the models that take longest."""
    return [settings for settings in figure8.plan(bench) if settings["components"] < 48]


@pytest.fixture(scope="module")
def full_run(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """`reproduce all --quick` with every fourth direction in place of every third."""
    folder = tmp_path_factory.mktemp("reproduced")
    clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("earatlas.experiments.bench._every", lambda quick: 4)
        patch.setitem(EXPERIMENTS, "figure8", replace(EXPERIMENTS["figure8"], plan=few_components))
        patch.setattr(
            "earatlas.training.learn_head.LEARNING_SETTINGS", LearningSettings(max_held_out=20)
        )  # the calibration is not tested
        patch.setattr("earatlas.ppam.calibration._SETTINGS", CalibrationSettings(min_sounds=20))
        patch.setattr(
            "earatlas.training.reverberant.TRAINING_SETTINGS",
            ReverberantTrainingSettings(scenes=20),
        )
        patch.setattr(table3, "render_talkers", short_talkers)
        result = run("reproduce", "all", "--quick", "-o", folder, "--json")
    clear_caches()
    assert result.returncode == 0, result.stderr
    return folder, json.loads(result.stdout)


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows that an experiment has written."""
    return read_rows(folder / "results" / "rows" / f"{name}.jsonl")


def test_all_experiments(full_run: tuple[Path, dict[str, Any]]) -> None:
    """Every experiment has rows, a section and pictures, and there are no other files."""
    folder, answer = full_run
    assert [part["name"] for part in answer["experiments"]] == list(EXPERIMENTS)
    assert all(part["rows"] == part["new"] > 0 for part in answer["experiments"])
    text = (folder / "results.md").read_text()
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}" in text
    pictures = {path.name for path in (folder / "results").glob("*.png")}
    assert len(pictures) == 9
    assert all(f"(results/{name})" in text for name in pictures)
    assert ">>>" not in text, "the page is read by the doctests"
    assert {path.name for path in folder.iterdir()} == {"results", "results.md"}


def test_ranking_of_the_methods(full_run: tuple[Path, dict[str, Any]]) -> None:
    """The ranking is that of the paper: PPAM before SIR and PHAT; separation helps."""
    folder, _ = full_run
    error = {
        (row["settings"]["cue"], row["settings"]["method"]): row["result"]["azimuth"]["mean"]
        for row in rows_of(folder, "table1")
    }
    for cue in ("ILD", "ILPD"):
        for method in ("PPAM", "PPAM, ours", "PPAM, ours, K = N/10", "MPLR, reduced"):
            assert 0.05 < error[cue, method] < 0.3 * error[cue, "SIR-2"]
        assert error[cue, "PPAM, ours, K = N/10"] < error[cue, "look-up"]
    talker = [row["result"] for row in merge_parts(rows_of(folder, "table2"))]
    front = [r["errors"] for r in talker if r["frontal"]]
    assert front
    means = {
        method: np.mean([r[method]["azimuth"]["mean"] for r in front])
        for method in ("PPAM(T1)", "PHAT")
    }
    assert means["PPAM(T1)"] < 0.5 * means["PHAT"]
    for row in merge_parts(rows_of(folder, "table3")):
        methods = row["result"]["methods"]
        sdr = {name: r["SDR"]["mean"] for name, r in methods.items() if "SDR" in r}
        # The oracle's masks are binary: soft masks may be slightly better, a leak much better.
        assert sdr["mixture"] + 5 < sdr["ours(T2), masks"] < sdr["oracle"] + 1
        assert sdr["ours(T2), masks"] - 1 < sdr["ours(T2)"] < 60


def test_atlases_ready_for_rooms_are_better_in_rooms(
    full_run: tuple[Path, dict[str, Any]],
) -> None:
    """Errors are smaller in rooms, and mostly the same in anechoic scenes."""
    rows = rows_of(full_run[0], "rooms")
    assert len(rows) == 9
    assert {r["settings"]["walls"] for r in select_rows(rows, t60_seconds=0.0)} == {""}
    for case in (rooms.ROOMS[1], rooms.TWO):
        results = [r["result"] for r in select_rows(rows, **case.settings)]
        ready, anechoic = (np.mean([r[a]["errors"] for r in results]) for a in rooms.ATLASES)
        assert 0.2 < ready < 0.7 * anechoic
    anechoic_results = [row["result"] for row in select_rows(rows, t60_seconds=0.0)]
    assert sum(r[rooms.REVERBERANT] == r[rooms.ANECHOIC] for r in anechoic_results) >= 2


def test_reverberant_heads_are_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`all` skips the rooms for a reverberant head, and prints the reason."""
    head = ea.simulated_head(ea.Plane().grid(13.0))
    ears = head.responses()
    later = round(0.03 * ears.rate)
    direct = np.pad(ears.samples, ((0, 0), (0, 0), (0, later)))
    reverberant = replace(ears, samples=direct + 0.5 * np.roll(direct, later, axis=2))
    plan = _Plan("all", ("mine",), None, True, 1.0, 1)
    for ears_, runs in ((ears, True), (reverberant, False)):
        own = replace(head, ears=ears_)
        monkeypatch.setattr("earatlas.experiments.bench._full_head", lambda *_, own=own: own)
        monkeypatch.setattr("earatlas.experiments.bench._planar_head", lambda *_, own=own: own)
        assert _applies(EXPERIMENTS["rooms"], Bench("mine"), "mine", plan) == runs
        assert _applies(EXPERIMENTS["table2"], Bench("mine"), "mine", plan)
        assert ("anechoic head" in capsys.readouterr().err) != runs
    alone = replace(plan, name="rooms")
    assert _applies(EXPERIMENTS["rooms"], Bench("mine"), "mine", alone), "the experiment refuses it"


@pytest.mark.usefixtures("unsaved_figures")
def test_finished_rows_are_kept(
    full_run: tuple[Path, dict[str, Any]], run: Run, tmp_path: Path
) -> None:
    """A second run only draws the same page; a broken row is reported and run again."""
    folder = shutil.copytree(full_run[0], tmp_path / "reproduced")
    before = (folder / "results.md").read_text()
    (folder / "results.md").unlink()
    result = run("reproduce", "all", "--quick", "--draw-only", "-o", folder)
    assert result.returncode == 0, result.stderr
    assert (folder / "results.md").read_text() == before
    path = folder / "results" / "rows" / "figure2.jsonl"
    for other in path.parent.iterdir():  # a page with few figures is drawn quickly
        if other.stem not in ("figure2", "table1", "table2"):
            other.unlink()
    result = run("reproduce", "all", "--quick", "--draw-only", "-o", folder)
    assert result.returncode == 0, result.stderr
    before = (folder / "results.md").read_text()
    result = run("reproduce", "figure2", "--quick", "-o", folder)
    assert result.returncode == 0, result.stderr
    assert "figure2, simulated: 4 rows, 0 of them new" in result.stdout
    assert (folder / "results.md").read_text() == before
    (first, *others) = path.read_text().splitlines(True)[1:]
    plan = path.read_text().splitlines(True)[0]
    stale = json.dumps({**json.loads(first), "code": "other"}) + "\n"
    path.write_text("".join([plan, stale, *others]))
    result = run("reproduce", "figure2", "--quick", "-o", folder)
    assert "4 rows, 0 of them new" in result.stdout
    assert "toy (1 of 4)" in " ".join((folder / "results.md").read_text().split())
    path.write_text("".join([plan, stale, *others]))
    result = run("reproduce", "figure2", "--quick", "--check", 1, "-o", folder)
    assert "1 of 1 stale rows repeated, 1 confirmed" in result.stdout
    assert "Stale rows" not in (folder / "results.md").read_text()
    assert run("reproduce", "figure2", "--check", 0, "-o", folder).returncode == 2
    path.write_text("".join([plan, stale, *others]))
    result = run("reproduce", "figure2", "--quick", "--stale", "-o", folder)
    assert "4 rows, 1 of them new" in result.stdout
    assert (folder / "results.md").read_text() == before
    path.write_text("".join([plan, first, *others])[:-40])
    result = run("reproduce", "figure2", "--quick", "-o", folder, "--jobs", 2)
    assert "4 rows, 1 of them new" in result.stdout
    assert "warning: rows must be JSON lines" in result.stderr
    assert (folder / "results.md").read_text() == before


@pytest.mark.usefixtures("unsaved_figures")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_row_order_does_not_matter(
    full_run: tuple[Path, dict[str, Any]], name: str, tmp_path: Path
) -> None:
    """Shuffled rows give the same section, also with a second head; both heads are shown."""
    experiment, rows = EXPERIMENTS[name], rows_of(full_run[0], name)
    if experiment.head:
        rows += [{**row, "data": {**row["data"], "fingerprint": "other"}} for row in rows]
    once = experiment.section(rows, tmp_path)
    for seed in (1, 2):
        random.Random(seed).shuffle(rows)
        assert experiment.section(rows, tmp_path) == once
    assert ("**simulated, fingerprint other" in once) == experiment.head


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_page_of_partial_results(
    full_run: tuple[Path, dict[str, Any]], tmp_path: Path, share: float
) -> None:
    """Partial results of an interrupted run can be drawn."""
    (tmp_path / "results" / "rows").mkdir(parents=True)
    for name in EXPERIMENTS:
        lines = (full_run[0] / "results" / "rows" / f"{name}.jsonl").read_text().splitlines(True)
        some = lines[: max(int(share * len(lines)), 1)]
        (tmp_path / "results" / "rows" / f"{name}.jsonl").write_text("".join(some))
    text = write_page(EXPERIMENTS, tmp_path, quick=True).read_text()
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}" in text
    assert " rows so far." in text
    assert ("\n\nsimulated: 0 of 21 rows so far.\n" in text) == (share == 0.0)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the layout of CAMIL: positions.csv and one noise recording per direction."""
    folder = tmp_path_factory.mktemp("camil")
    head = ea.simulated_head(ea.Plane().grid(13.0))
    responses, noise = head.responses().at_rate(16_000), np.random.default_rng(0).normal(size=3000)
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        signal = np.stack([np.convolve(noise, ear) for ear in responses[n]])
        ea.Audio(0.1 * signal, 16_000).write(folder / f"{n}.wav")
        lines.append(f"{n}.wav,{azimuth},{elevation}")
    (folder / "positions.csv").write_text("\n".join(lines))
    return folder


def test_noise_recordings_as_head(recordings: Path, run: Run, tmp_path: Path) -> None:
    """Noise recordings work, except for experiments that need impulse responses."""
    result = run("reproduce", "figure4", "--quick", "--head", recordings, "-o", tmp_path)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "results.md").read_text()
    assert recordings.name in text
    experiment = replace(EXPERIMENTS["figure4"], findings=lambda rows: "found on other heads")
    assert experiment.findings_on, "it has findings for other heads"
    page = write_page(
        {"figure4": experiment}, shutil.copytree(tmp_path, tmp_path / "copy"), quick=True
    )
    assert "found on other heads" not in page.read_text()
    result = run("reproduce", "table2", "--quick", "--head", recordings, "-o", tmp_path)
    refused(result, "head must have impulse responses")
    assert not rows_of(tmp_path, "table2")
    write_page(EXPERIMENTS, tmp_path, quick=True)
    assert (tmp_path / "results.md").read_text() == text, (
        "no rows are planned for what cannot be run"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("table7",), ("name must be one of table1", "got 'table7'")),
        (("figure2", "--jobs", 0), ("jobs must be at least 1, got 0",)),
        (("figure2", "--share", 0), ("share must be above 0", "got 0")),
        (("table1", "--head", "nothing.sofa"), ("head must be an existing file", "nothing.sofa")),
        (("table1", "--head", "nothing"), ("head must be a .sofa file", "'simulated'")),
        (("table2", "--quick", "--speech", "missing"), ("speech must be a folder", "missing")),
    ],
)
def test_bad_input(
    arguments: tuple[object, ...], words: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Bad input gives one sentence with a remedy, and exit code 2."""
    refused(run("reproduce", *arguments, "-o", tmp_path / "out", cwd=tmp_path), *words)


def test_unwritable_folder(run: Run, tmp_path: Path) -> None:
    """A file in place of the folder, and a missing permission, are refused."""
    (tmp_path / "file").write_text("")
    refused(run("reproduce", "figure2", "-o", tmp_path / "file"), "output folder must be writable")
    (tmp_path / "out" / "results.md").mkdir(parents=True)
    refused(run("reproduce", "all", "--draw-only", "-o", tmp_path / "out"), "page must be a file")
    if os.geteuid() == 0:
        return  # root may write anywhere
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    refused(run("reproduce", "figure2", "-o", closed), "output folder must be writable")
