"""Experiments: rows that are never run twice, data sets as the paper has them, tables and toys."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import earatlas as ea
from earatlas.experiments import EXPERIMENTS, Bench, Experiment, current, read_rows, run
from earatlas.experiments.camil import simulated_camil
from earatlas.experiments.data import LAYOUTS, errors_of
from earatlas.experiments.drawing import pack, unpack
from earatlas.experiments.models import METHODS, fitted
from earatlas.experiments.page import write_page
from earatlas.experiments.tables import by_head, pooled, shown, summary, table, where
from earatlas.experiments.talkers import talkers_at, voices_of

QUICK = Bench(quick=True)


@pytest.fixture
def counting() -> tuple[Experiment, list[int]]:
    """An experiment that squares its seed, and the list of the seeds that it was run for."""
    seen: list[int] = []

    def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        seen.append(settings["seed"])
        return {"square": settings["seed"] ** 2}

    def plan(bench: Bench) -> list[dict[str, Any]]:
        return [{"seed": seed} for seed in range(bench.repeats(10, quick=3))]

    return replace(EXPERIMENTS["figure2"], name="toy", plan=plan, measure=measure), seen


def test_finished_rows_are_not_run_again(
    counting: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """The second run measures nothing; a larger plan only what is new; the answers are the same."""
    experiment, seen = counting
    path = tmp_path / "toy.jsonl"
    first, new = run(experiment, Bench(share=0.4), path)
    assert (new, seen) == (4, [0, 1, 2, 3])
    again, new = run(experiment, Bench(share=0.4), path)
    assert (new, again) == (0, first)
    more, new = run(experiment, Bench(share=0.6), path)
    assert new == 2
    assert seen == [0, 1, 2, 3, 4, 5]
    assert [row["result"]["square"] for row in more] == [0, 1, 4, 9, 16, 25]


def test_rows_finish_one_by_one(counting: tuple[Experiment, list[int]], tmp_path: Path) -> None:
    """What was measured before an interruption stays."""
    experiment, seen = counting

    def interrupted(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        if settings["seed"] == 2:
            raise KeyboardInterrupt
        return experiment.measure(bench, settings)

    path = tmp_path / "toy.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(replace(experiment, measure=interrupted), Bench(share=0.4), path)
    assert len(read_rows(path)) == 2
    _, new = run(experiment, Bench(share=0.4), path)
    assert new == 2
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", ["cut", "words", "other"])
def test_a_broken_line_is_reported_and_run_again(
    counting: tuple[Experiment, list[int]], tmp_path: Path, damage: str
) -> None:
    """A line that was cut off, or is no row, costs one row and spoils no other."""
    experiment, _ = counting
    path = tmp_path / "toy.jsonl"
    rows, _ = run(experiment, Bench(share=0.3), path)
    lines = path.read_text().splitlines()
    broken = {"cut": lines[2][:30], "words": "not JSON", "other": '{"experiment": "toy"}'}[damage]
    path.write_text("\n".join([*lines[:2], broken]))  # no line end: what a crash leaves
    with pytest.warns(ea.EaratlasWarning, match=r"got 1 of 3 others .* \(first: line 3\)"):
        again, new = run(experiment, Bench(share=0.3), path)
    assert new == 1
    assert [r["result"] for r in again] == [r["result"] for r in rows]
    assert len(read_rows(path)) == 3, "and the file is whole again"


def test_a_row_is_known_by_what_could_change_it(
    counting: tuple[Experiment, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version, or quick instead of full, is another row and is not rendered with it."""
    experiment, seen = counting
    path = tmp_path / "toy.jsonl"
    run(experiment, Bench(quick=True), path)
    run(experiment, Bench(share=0.3), path)
    monkeypatch.setattr(ea, "__version__", "99.0")
    _, new = run(experiment, Bench(share=0.3), path)
    assert new == 3
    assert len(seen) == 9
    rows = read_rows(path)
    assert len(rows) == 9
    assert len(current(rows, quick=False)) == 3
    assert current(rows, quick=True) == []
    row = rows[0]
    assert {"experiment", "data", "settings", "quick", "version", "result", "seconds"} == set(row)


def test_several_processes_give_the_same_rows(tmp_path: Path) -> None:
    """Whatever the order in which they finish."""
    experiment = EXPERIMENTS["figure2"]
    one, _ = run(experiment, QUICK, tmp_path / "one.jsonl")
    two, new = run(experiment, QUICK, tmp_path / "two.jsonl", jobs=2)
    assert new == 4
    assert [r["result"] for r in one] == [r["result"] for r in two]


def test_a_page_is_drawn_without_running(tmp_path: Path) -> None:
    """From the rows alone, and the same text twice."""
    (tmp_path / "results" / "rows").mkdir(parents=True)
    experiment = EXPERIMENTS["figure2"]
    run(experiment, QUICK, tmp_path / "results" / "rows" / "figure2.jsonl")

    def never(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("nothing is to be run")

    only = {"figure2": replace(experiment, measure=never)}
    first = write_page(only, tmp_path, quick=True).read_text()
    assert first == write_page(only, tmp_path, quick=True).read_text()
    assert experiment.remarks in first
    assert "![" in first
    assert (tmp_path / "results" / "figure2.png").stat().st_size > 10_000


# --- what the paper has ----------------------------------------------------------------------


def test_the_papers_numbers_are_the_plan() -> None:
    """Directions, splits, mixtures and methods at full size, without running anything."""
    bench = Bench()
    assert (bench.about["directions"], len(bench.plane)) == (10_800, 9_660)  # ±160 is 161 azimuths
    known, asked = bench.halves(3)
    assert len(known) == len(asked) == 4_830
    assert not np.intersect1d(known, asked).size
    rows = EXPERIMENTS["table1"].plan(bench)
    assert len(rows) == 10 * len(LAYOUTS) * len(METHODS) == 240
    assert {row["components"] for row in rows} == {64}
    assert len(EXPERIMENTS["table3"].plan(bench)) == 600
    assert {row["degrees"] for row in EXPERIMENTS["figure9"].plan(bench)} >= {5.0, 10.0}
    assert len(bench.training_set("T1")[0]) == 9_660
    T2, outside = bench.training_set("T2")
    assert len(T2) == pytest.approx(1530, rel=0.02)
    assert len(bench.decimated(10.0, 0)[0]) == pytest.approx(384, rel=0.02)
    assert not np.intersect1d(T2, outside).size, "talkers stand outside T2"
    assert {*EXPERIMENTS} == {
        *("table1", "table2", "table3", "figure2", "figure3"),
        *("figure4", "figure5", "figure7", "figure8", "figure9"),
    }


def test_talkers_stand_where_the_paper_puts_them() -> None:
    """Outside T2, apart, two or more on in 60 % of the time, and the same every time."""
    _, asked = QUICK.training_set("T2")
    scene = talkers_at(QUICK, asked, 3, 5, seconds=(1.0, 2.0))
    again = talkers_at(QUICK, asked, 3, 5, seconds=(1.0, 2.0))
    np.testing.assert_array_equal(scene.mixture.samples, again.mixture.samples)
    other = talkers_at(QUICK, asked, 3, 6, seconds=(1.0, 2.0))
    assert not np.array_equal(scene.directions, other.directions)
    ahead = asked[(np.abs(QUICK.plane.directions[asked]) < 25).all(axis=1)]
    for seed in range(5):  # where most pairs are nearer
        x = talkers_at(QUICK, ahead, 2, seed, seconds=(0.2, 0.3)).directions
        assert ea.great_circle_error(x[0], x[1]) >= 15
    assert scene.settings["overlap"] == pytest.approx(0.6, abs=0.02)
    allowed = QUICK.plane.directions[asked]
    for place in scene.directions:
        assert (np.abs(allowed - place).sum(axis=1) < 1e-9).any()


def test_a_folder_of_speech(tmp_path: Path) -> None:
    """Its sound files are the talkers; too few, or none, is said in a sentence."""
    with pytest.raises(ea.InputError, match="speech must be a folder of sound files"):
        voices_of(tmp_path / "nowhere", True)
    for n in range(3):
        with pytest.raises(ea.InputError, match=f"at least 3 sound files, got {n}"):
            voices_of(tmp_path, True)
        ea.Audio(ea.murmur(1.5, seed=n)[None], 16_000).write(tmp_path / f"{n}.wav")
    voices = voices_of(tmp_path, True)
    assert [len(v) for v in voices] == [24_000] * 3
    assert Bench(speech=tmp_path).speech_name == tmp_path.name


@pytest.mark.parametrize("method", METHODS)
def test_methods_map_cues_back(method: str) -> None:
    """Every name is a method: better than guessing on held-out directions, and not perfect."""
    known, asked = QUICK.halves(0)
    x, y = QUICK.plane.directions, QUICK.cues("ILD")
    model = fitted(method, x[known], y[known], 16)
    azimuth, elevation = errors_of(x[asked], model.inverse_map(y[asked]))
    guess = np.abs(x[asked] - x[known].mean(axis=0)).mean(axis=0)
    assert 0.05 < azimuth.mean() < 0.5 * guess[0]
    assert 0.05 < elevation.mean() < 0.7 * guess[1]


def test_errors_go_the_short_way_and_stop_at_the_pole() -> None:
    """An answer of the plane may lie anywhere."""
    azimuth, elevation = errors_of(
        np.array([[-159.0, 50.0], [10.0, 0.0]]), np.array([[175.0, 140.0], [13.0, -1.5]])
    )
    np.testing.assert_allclose(azimuth, [26.0, 3.0])
    np.testing.assert_allclose(elevation, [40.0, 1.5])


def test_the_room_turns_with_the_head() -> None:
    """Without walls the stand-in for CAMIL is the simulated head itself; with them it is not."""
    layout = ea.CueLayout(ild_band_hz=(100.0, 4000.0))
    dry = simulated_camil(12, room=None)
    true = ea.simulated_head(dry.directions).cues(layout)
    np.testing.assert_allclose(dry.cues(layout), true, atol=0.005)  # dB
    pytest.importorskip("pyroomacoustics")
    wet = simulated_camil(12)
    np.testing.assert_array_equal(wet.directions, dry.directions)
    assert 1.0 < np.abs(wet.cues(layout) - true).mean() < 6.0
    power = (wet.responses().samples ** 2).sum(axis=1)
    assert (power[:, 960:].sum(axis=1) < 0.01 * power.sum(axis=1)).all(), "over within the window"


# --- figures ---------------------------------------------------------------------------------


def test_symmetric_neighbours_are_those_that_agree() -> None:
    """Panels c, d hold the edges of a, b that go both ways; the outlier has none."""
    experiment = EXPERIMENTS["figure2"]
    grid, outlier, grid_both, outlier_both = (
        {tuple(edge) for edge in experiment.measure(QUICK, s)["edges"]}
        for s in experiment.plan(QUICK)
    )
    for one, both in ((grid, grid_both), (outlier, outlier_both)):
        assert both == {(a, b) for a, b in one if (b, a) in one}
        assert both != one
    assert any(12 in edge for edge in outlier)
    assert not any(12 in edge for edge in outlier_both)


def test_affine_pieces_fit_the_toy_surface() -> None:
    """Fifteen pieces come near the noise, from which one affine map is far."""
    experiment = EXPERIMENTS["figure5"]
    result = experiment.measure(QUICK, experiment.plan(QUICK)[0])
    assert result["components"] == 15
    assert result["noise"] < result["rms"] < 2.5 * result["noise"]
    assert result["rms_linear"] > 5 * result["noise"]
    assert len(set(result["piece"])) == 15


# --- text ------------------------------------------------------------------------------------


def test_pooled_is_the_summary_of_all(rng: np.random.Generator) -> None:
    """Parts of different sizes; an empty one changes nothing."""
    parts = [rng.normal(3.0, 2.0, n) for n in (3, 50, 7)]
    whole = summary(np.concatenate(parts))
    found = pooled([*map(summary, parts), summary([np.nan])])
    assert found["n"] == whole["n"] == 60
    assert found["mean"] == pytest.approx(whole["mean"], abs=2e-4)
    assert found["std"] == pytest.approx(whole["std"], abs=2e-4)
    assert shown(pooled([])) == shown(None) == ""
    assert shown({"mean": 2.24, "std": 11.6, "n": 3}) == "2.2±12"


def test_tables_and_selections() -> None:
    """Markdown with a rule; rows by setting; of a head that has changed, the last one."""
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    rows = [
        {"data": {"head": name, "fingerprint": f}, "settings": {"seed": n}}
        for n, (name, f) in enumerate([("x", "old"), ("y", "one"), ("x", "new"), ("x", "new")])
    ]
    assert {k: [r["settings"]["seed"] for r in v] for k, v in by_head(rows).items()} == {
        "x": [2, 3],
        "y": [1],
    }
    assert where(rows, seed=1) == [rows[1]]


def test_arrays_in_rows(rng: np.random.Generator) -> None:
    """Packed arrays come back to 1 in 30,000 of their range, and NaN as NaN."""
    values = rng.normal(size=(3, 5, 7))
    values[1, 2] = np.nan
    again = unpack(json.loads(json.dumps(pack(values))))
    np.testing.assert_allclose(again, values, atol=np.nanmax(np.ptp(values[0])) / 5_000)
    np.testing.assert_array_equal(unpack(pack(np.full(4, 2.5))), np.full(4, 2.5))


def test_remarks_are_whole_sentences() -> None:
    """Every experiment says where it differs, in lines that a page can hold."""
    for experiment in EXPERIMENTS.values():
        assert experiment.remarks.endswith(".")
        assert re.match(r"(Table|Figure) \d: ", experiment.title)
        assert max(map(len, experiment.remarks.splitlines())) <= 100
