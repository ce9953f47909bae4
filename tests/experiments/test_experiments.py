"""Experiments: rows that are never run twice, data sets as the paper has them, tables and toys."""

import importlib
import json
import re
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import earatlas as ea
from earatlas.experiments import (
    EXPERIMENTS,
    Bench,
    Experiment,
    current,
    figure_parts,
    read_rows,
    rooms,
    run,
)
from earatlas.experiments import simulated_camil as camil_module
from earatlas.experiments.bench import LAYOUTS, errors_of
from earatlas.experiments.figure_parts import pack, unpack
from earatlas.experiments.models import METHODS, fit_method
from earatlas.experiments.page import write_page
from earatlas.experiments.rows import DataSetRows, by_data_set
from earatlas.experiments.simulated_camil import simulated_camil
from earatlas.experiments.tables import (
    by_head,
    error_summary,
    means,
    medians,
    names_of,
    of_head,
    pooled,
    printed,
    said_by,
    shown,
    span,
    summary,
    table,
    told,
    where,
)
from earatlas.experiments.talkers import (
    ESPEAK,
    MURMURS,
    _espeak_works,
    speech_about,
    talkers_at,
    voices_of,
)

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


@pytest.mark.parametrize("damage", ["cut", "words", "other", "no data", "no plan"])
def test_a_broken_line_is_reported_and_run_again(
    counting: tuple[Experiment, list[int]], tmp_path: Path, damage: str
) -> None:
    """A line that was cut off, or is no row, costs one row and spoils no other."""
    experiment, _ = counting
    path = tmp_path / "toy.jsonl"
    rows, _ = run(experiment, Bench(share=0.3), path)
    lines = path.read_text().splitlines()  # the plan, then the rows
    broken = {
        "cut": lines[3][:30],
        "words": "not JSON",
        "other": '{"experiment": "toy"}',
        "no data": json.dumps({**rows[2], "data": ["toy"]}),
        "no plan": json.dumps({**rows[2], "plan": None}),
    }[damage]
    path.write_text("\n".join([*lines[:3], broken]))  # no line end: what a crash leaves
    with pytest.warns(ea.EaratlasWarning, match=r"got 1 of 4 others .* \(first: line 4\)"):
        again, new = run(experiment, Bench(share=0.3), path)
    assert new == 1
    assert [r["result"] for r in again] == [r["result"] for r in rows]
    before = path.read_bytes()
    with pytest.warns(ea.EaratlasWarning, match="They are skipped"):
        assert read_rows(path) == again, "the new row is on a line of its own"
    assert path.read_bytes() == before, "and reading never writes"


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
    assert len(current(experiment, rows, quick=False)) == 3
    assert current(experiment, rows, quick=True) == []
    assert {*rows[0]} == {
        *("experiment", "revision", "data", "settings", "quick", "version", "result", "seconds")
    }


def test_a_revision_is_another_experiment(
    counting: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Rows from before there were revisions are those of the first; a new one runs all again."""
    experiment, seen = counting
    path = tmp_path / "toy.jsonl"
    rows, _ = run(experiment, Bench(share=0.3), path)
    old = [{k: v for k, v in row.items() if k != "revision"} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    _, new = run(experiment, Bench(share=0.3), path)
    assert new == 0
    second = replace(experiment, revision=2)
    _, new = run(second, Bench(share=0.3), path)
    assert new == 3
    assert len(seen) == 6
    (part,) = by_data_set(second, path, quick=False)
    assert {row["revision"] for row in part.rows} == {2}


def test_only_the_newest_plan_is_shown(
    counting: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Rows of an older plan stay in the file; those that are missing are counted."""
    experiment, _ = counting
    path = tmp_path / "toy.jsonl"
    run(experiment, Bench(share=0.6), path)
    run(experiment, Bench(share=0.4), path)
    run(experiment, Bench(share=0.4), path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(line["plan"]) for line in lines if "plan" in line] == [6, 4], "no plan twice"
    (part,) = by_data_set(experiment, path, quick=False)
    assert (len(part.rows), part.planned, len(read_rows(path))) == (4, 4, 6)

    def stopped(bench: Bench, settings: dict[str, Any], at: int) -> dict[str, Any]:
        if settings["seed"] == at:
            raise KeyboardInterrupt
        return experiment.measure(bench, settings)

    for at, there in ((6, (4, 4)), (7, (7, 9))):  # a plan counts from its first row on
        with pytest.raises(KeyboardInterrupt):
            run(replace(experiment, measure=partial(stopped, at=at)), Bench(share=0.9), path)
        (part,) = by_data_set(experiment, path, quick=False)
        assert (len(part.rows), part.planned) == there
    old = [line for line in path.read_text().splitlines(True) if '"plan"' not in line]
    path.write_text("".join(old))
    (part,) = by_data_set(experiment, path, quick=False)
    assert (len(part.rows), part.planned) == (7, 7), "a file without plans is shown as it is"


def test_a_head_of_ones_own_is_beside_its_namesake(
    counting: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Two files of one name are two data sets; a built-in head that has changed is one."""
    path = tmp_path / "toy.jsonl"
    rows, _ = run(counting[0], Bench(share=0.1), path)
    for name, parts in (("mine", 2), ("simulated", 1)):
        data = [{"head": name, "directions": 9, "fingerprint": f} for f in ("one", "two")]
        path.write_text("".join(json.dumps({**rows[0], "data": d}) + "\n" for d in data))
        found = by_data_set(counting[0], path, quick=False)
        assert [part.data for part in found] == data[-parts:]


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
    assert experiment.about in first
    assert experiment.findings is not None
    assert experiment.findings([]) not in first, "which are those of the full size"
    assert "rows so far" not in first
    assert "![" in first
    assert (tmp_path / "results" / "figure2.png").stat().st_size > 10_000
    path = tmp_path / "results" / "rows" / "figure2.jsonl"
    path.write_text("".join(path.read_text().splitlines(True)[:-1]))
    assert "\n\ntoy: 3 of 4 rows so far.\n\n" in write_page(only, tmp_path, quick=True).read_text()


def test_findings_are_told_where_they_were_found() -> None:
    """All heads that they speak of, finished and at full size; other heads are not asked."""
    experiment = replace(
        EXPERIMENTS["table1"],
        findings=lambda rows: f"So: {[row['seed'] for row in rows]}.",
        findings_on=("ku100", "simulated"),
    )
    sets = [
        DataSetRows({"head": name}, [{"seed": n}], planned=1)
        for n, name in enumerate(("simulated", "mine", "ku100"))
    ]
    assert experiment.findings_for(sets, quick=False) == "So: [0, 2]."
    assert experiment.findings_for(sets, quick=True) == ""
    assert experiment.findings_for(sets[:2], quick=False) == ""
    assert experiment.findings_for([*sets[:2], replace(sets[2], planned=2)], quick=False) == ""


ROWS = Path(__file__).parents[2] / "docs" / "results" / "rows"
OTHER = (None, "the paper's", "PPAM, ours, K = N/10", "MPLR, plain")  # methods
WITH_FIGURES = ("table1", "table3", "figure3", "figure4", "figure8", "figure9", "rooms")


def rows_in_docs(name: str) -> list[dict[str, Any]]:
    """What the page of the repository shows of the heads that its findings speak of."""
    if not ROWS.is_dir():
        pytest.skip("docs/results is not here")
    experiment = EXPERIMENTS[name]
    sets = by_data_set(experiment, ROWS / f"{name}.jsonl", quick=False)
    return of_head([row for own in sets for row in own.rows], *experiment.findings_on)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_figure_is_typed_into_findings(name: str) -> None:
    """A template has names with digits in them, and no number that a row could contradict."""
    module = importlib.import_module(f"earatlas.experiments.{name}")
    template = getattr(module, "FINDINGS", "")
    names = r"\{\w+(:[^}]*)?\}|ku100|cipic_021|\bT[12]\b"
    assert not re.search(r"\d", re.sub(names, "", template))
    assert bool(re.search(r"\{", template)) == (name in (*WITH_FIGURES, "table2"))


@pytest.mark.parametrize("name", WITH_FIGURES)
def test_findings_follow_their_rows(name: str) -> None:
    """Other results make another text: nothing in it is from memory."""

    def doubled(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: doubled(v, k) for k, v in value.items()}
        wanted = key in {"mean", "points", "errors", "trustworthiness", "spacing_degrees"}
        return np.multiply(value, 2.0).tolist() if wanted else value

    experiment, rows = EXPERIMENTS[name], rows_in_docs(name)
    assert experiment.findings is not None
    text = experiment.findings(rows)
    assert "{" not in text
    assert "None" not in text
    others = [
        {**row, "result": doubled(row["result"])} if row["settings"].get("method") in OTHER else row
        for row in rows
    ]
    assert experiment.findings(others) != text


def test_what_the_findings_of_the_tables_claim() -> None:
    """Who is ahead of whom, in the rows of the repository."""
    rows = rows_in_docs("table1")
    for head in ("ku100", "cipic_003", "cipic_021", "simulated"):
        own = of_head(rows, head)
        for cue in LAYOUTS:
            found = {m: sum(means(own, cue=cue, method=m)) for m in METHODS}
            assert 2 * max(found["PPAM"], found["MPLR, plain"]) < min(
                found["SIR-1"], found["SIR-2"]
            )
            best = min(found, key=lambda m: found[m])
            if head == "ku100" and cue != "IPD":
                assert best == "PPAM, ours, K = N/10"
            if "cipic" in head:
                assert best != "PPAM, ours, K = N/10"
    rows = rows_in_docs("table2")
    front = [row for row in rows if row["result"]["frontal"]]
    for own in by_head(front).values():
        errors = [row["result"]["errors"] for row in own]
        found = {m: pooled(e[m]["azimuth"] for e in errors)["mean"] for m in errors[0]}
        assert max(found["PPAM(T1)"], found["PPAM(T2)"], found["ours(T2)"]) < found["PHAT"]
    rows = rows_in_docs("table3")
    for own in by_head(rows).values():
        for M in (2, 3):
            methods = [row["result"]["methods"] for row in where(own, sources=M)]
            for what in ("SDR", "STIR"):
                found = {m: pooled(r[m][what] for r in methods)["mean"] for m in methods[0]}
                assert found["ours(T2), masks"] > found["MESSL-G"] > found["VESSL(T1)"]
                assert found["MESSL-G"] > found["VESSL(T2)"]
                assert M == 3 or found["ours(T2)"] > found["oracle"]
    for own in by_head(rows_in_docs("rooms")).values():
        for case in (*rooms.ROOMS, rooms.TWO):
            some = where(own, **case.settings)
            ready, opened = (rooms._Figures.of(some, atlas) for atlas in rooms.ATLASES)
            assert 2 * ready.errors.mean() < opened.errors.mean()
            assert opened.within(0.9) < 70 < ready.within(0.9), "false and sure; neither"


def test_the_page_in_the_repository_is_that_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/results.md is what `--draw-only` makes of docs/results/rows; pictures are not made."""
    docs = Path(__file__).parents[2] / "docs"
    if not (docs / "results" / "rows").is_dir() or not (docs / "results.md").is_file():
        pytest.skip("docs/results is not here")
    shutil.copytree(docs / "results" / "rows", tmp_path / "results" / "rows")
    monkeypatch.setattr(figure_parts, "save", lambda figure, path: path)
    drawn = write_page(EXPERIMENTS, tmp_path, quick=False).read_text(encoding="utf-8")
    assert drawn == (docs / "results.md").read_text(encoding="utf-8")


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
        "rooms",
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
        ea.Audio(ea.synthetic_speech(1.5, seed=n)[None], 16_000).write(tmp_path / f"{n}.wav")
    voices = voices_of(tmp_path, True)
    assert [len(v) for v in voices] == [24_000] * 3
    about = speech_about(tmp_path)
    assert about["speech"] == tmp_path.name
    assert EXPERIMENTS["table2"].data(replace(QUICK, speech=tmp_path)) == {**QUICK.about, **about}
    (tmp_path / "notes.txt").write_text("no talker")
    assert speech_about(tmp_path) == about
    ea.Audio(ea.synthetic_speech(1.6, seed=0)[None], 16_000).write(tmp_path / "0.wav")
    assert speech_about(tmp_path)["files"] != about["files"], "another size"
    assert said_by({"data": about}) == f"talkers of the folder `{tmp_path.name}`"


def test_built_in_talkers_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Voices of espeak-ng, or murmurs without it: not the same data set."""

    def missing(*_: object, **__: object) -> None:
        raise ea.InputError("no espeak-ng")

    _espeak_works.cache_clear()
    monkeypatch.setattr("earatlas.experiments.talkers.speak", lambda *_, **__: np.zeros(9))
    assert speech_about(None) == {"speech": ESPEAK}
    _espeak_works.cache_clear()
    monkeypatch.setattr("earatlas.experiments.talkers.speak", missing)
    assert speech_about(None) == {"speech": MURMURS}
    assert len(voices_of.__wrapped__(None, True)) == 3
    assert said_by({"data": {"speech": MURMURS}}) == "built-in murmurs"
    _espeak_works.cache_clear()


@pytest.mark.parametrize("method", METHODS)
def test_methods_map_cues_back(method: str) -> None:
    """Every name is a method: better than guessing on held-out directions, and not perfect."""
    known, asked = QUICK.halves(0)
    x, y = QUICK.plane.directions, QUICK.cues("ILD")
    model = fit_method(method, x[known], y[known], 16)
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


def test_the_room_turns_with_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without walls the stand-in for CAMIL is the simulated head itself; with them it is not."""
    layout = ea.CueLayout(ild_band_hz=(100.0, 4000.0))
    dry = simulated_camil(12, room=None)
    true = ea.simulated_head(dry.directions).cues(layout)
    np.testing.assert_allclose(dry.cues(layout), true, atol=0.005)  # dB
    pytest.importorskip("pyroomacoustics")
    monkeypatch.setattr(
        simulated_camil, "_ORDER", 20
    )  # a tenth of the time, and all that 4 kHz needs
    monkeypatch.setattr(camil_module, "_LATTICE_DEGREES", 8.0)
    np.testing.assert_allclose(simulated_camil(12, room=None).cues(layout), true, atol=0.3)
    wet = simulated_camil(12)
    np.testing.assert_array_equal(wet.directions, dry.directions)
    assert 1.0 < np.abs(wet.cues(layout) - true).mean() < 6.0
    power = (wet.responses().samples ** 2).sum(axis=1)
    assert (power[:, 960:].sum(axis=1) < 0.01 * power.sum(axis=1)).all(), "over within the window"


# --- rooms -----------------------------------------------------------------------------------


def test_rooms_without_pyroomacoustics(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made from the head, the rows say so, and they ring as long as they should."""
    with_extra = rooms.plan(QUICK)
    monkeypatch.setitem(sys.modules, "pyroomacoustics", None)
    monkeypatch.setattr(rooms, "find_spec", lambda name: None)
    plan = rooms.plan(QUICK)
    assert {row["walls"] for row in plan} == {"", rooms.OWN}
    assert [row for row in plan if not row["walls"]] == [
        row for row in with_extra if not row["walls"]
    ]
    alone, dry, two = (
        {**case.settings, "seed": 1, "walls": walls}
        for case, walls in ((rooms.ROOMS[1], rooms.OWN), (rooms.Case(), ""), (rooms.TWO, rooms.OWN))
    )
    assert all(settings in plan for settings in (alone, dry, two))
    room, again, opened = (rooms._scene(QUICK, row) for row in (alone, alone, dry))
    np.testing.assert_array_equal(room.mixture.samples, again.mixture.samples)
    np.testing.assert_array_equal(room.directions, opened.directions)
    assert room.is_reverberant
    assert not opened.is_reverberant
    longer = room.mixture.seconds - opened.mixture.seconds
    assert longer == pytest.approx(0.3, abs=0.02)
    share = (room.images - room.early).std() / room.images.std()
    assert 0.1 < share < 0.9, "what is later than 50 ms"
    both = rooms._scene(QUICK, two).directions
    assert ea.great_circle_error(*both) >= 15


def test_rooms_with_pyroomacoustics() -> None:
    """The same talker at the same place, among walls: another row, and another sound."""
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics is an extra")
    alone = {**rooms.ROOMS[1].settings, "seed": 1, "walls": rooms.SHOEBOX}
    assert alone in rooms.plan(QUICK)
    shoebox, own = (rooms._scene(QUICK, {**alone, "walls": w}) for w in (rooms.SHOEBOX, rooms.OWN))
    np.testing.assert_array_equal(shoebox.directions, own.directions)
    early = [(s.early**2).sum() / (s.images**2).sum() for s in (shoebox, own)]
    assert early[0] == pytest.approx(early[1], abs=0.15), "as reverberant"
    assert early[0] != early[1]


def test_figures_of_rooms_by_hand() -> None:
    """Medians and shares of all sources of some rows; nothing is printed of fewer than three."""
    answer = {"errors": [1.0, 25.0], "levels": [0.4, 0.95], "radii": [3.0, 5.0]}
    rows = [{"result": {rooms.READY: answer}}] * 2
    own = rooms._Figures.of([*rows, {"result": {rooms.READY: {
        "errors": [40.0], "levels": [0.7], "radii": [9.0]}}}], rooms.READY)  # fmt: skip
    assert own.cells == ["5", "25.0", "60 %", "20 %", "40 %", "60 %", "5.0"]
    few = rooms._Figures.of(rows[:1], rooms.READY)
    assert few.cells == ["2", "", "", "", "", "", ""]


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
    """Fifteen pieces come near, those of k-means less so, and one affine map does not."""
    experiment = EXPERIMENTS["figure5"]
    result = experiment.measure(QUICK, experiment.plan(QUICK)[0])
    assert result["components"] == 15
    ours, kmeans, one = (result["ways"][n] for n in ("PPAM", "k-means on x", "one affine map"))
    assert 0.5 * result["noise"] < ours["rms"] < 0.95 * kmeans["rms"]
    assert kmeans["rms"] < 0.3 * one["rms"]
    assert ours["size_and_curvature"] < -0.3
    assert one["largest_to_smallest"] == 1.0
    assert len(set(result["piece"])) == 15
    sizes = np.bincount(result["piece"])
    assert ours["largest_to_smallest"] == pytest.approx(sizes.max() / sizes.min(), abs=0.01)


def test_panels_keep_their_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows, or one row too many, letters none of them anew."""
    monkeypatch.setattr(figure_parts, "save", lambda figure, path: path)
    experiment = EXPERIMENTS["figure2"]
    rows, _ = run(experiment, QUICK, tmp_path / "rows.jsonl")
    whole = experiment.section(rows, tmp_path)
    half = experiment.section(rows[2:], tmp_path)
    assert whole.split("(c) ")[1] == half.split("(c) ")[1]
    assert "(a)" not in half
    more = {**rows[0], "settings": {**rows[0]["settings"], "seed": 2}}
    assert experiment.section([*rows, more], tmp_path) == whole


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
    assert shown({"mean": 2.24, "std": 11.6, "n": 2}) == "", "too few"


def test_medians_of_all(rng: np.random.Generator) -> None:
    """Few values are pooled as they are; of many, to a twentieth of their ranks."""
    few = [rng.gamma(1.0, 20.0, n) for n in (1, 2, 1, 3, 20)]
    every = np.concatenate(few)
    found = pooled([*map(error_summary, few), error_summary([np.nan])])
    assert found["median"] == pytest.approx(np.median(every), abs=2e-3)
    assert found["beyond_30"] == pytest.approx((every > 30).mean(), abs=1e-4)
    assert 0.1 < found["beyond_30"] < 0.5
    many = [rng.gamma(shape, 10.0, n) for shape, n in ((1.0, 3000), (3.0, 500))]
    every, found = np.concatenate(many), pooled(map(error_summary, many))
    for name, share in (("lower_quartile", 0.25), ("median", 0.5), ("upper_quartile", 0.75)):
        assert (every < found[name]).mean() == pytest.approx(share, abs=0.025)
    assert "median" not in pooled([error_summary([1.0, 2.0, 3.0]), summary([1.0])]), "older rows"
    part = error_summary([1.0, 2.0, 40.0])
    assert medians(part, error_summary([1.0, 1.5, 12.0])) == ["2.0 / 1.5", "33 % / 0 %"]
    assert medians(part, error_summary([1.0])) == ["2.0", "33 %"]


def test_tables_and_selections() -> None:
    """Markdown with a rule; rows by setting and data set, whatever their order."""
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    rows = [
        {"data": {"head": name, "fingerprint": f}, "settings": {"seed": n}}
        for n, (name, f) in enumerate([("x", "old"), ("y", "one"), ("x", "new"), ("x", "new")])
    ]
    wanted = {"x, fingerprint new": [2, 3], "x, fingerprint old": [0], "y": [1]}
    for some in (rows, rows[::-1]):
        found = {k: [r["settings"]["seed"] for r in v] for k, v in by_head(some).items()}
        assert found == wanted
        assert list(found) == list(wanted)
    assert where(rows, seed=1) == [rows[1]]


def test_names_that_tell_data_sets_apart() -> None:
    """A head with two folders of speech, or two folders of one name."""
    one = {"head": "x", "fingerprint": "f", "speech": "a", "files": "1"}
    assert names_of([one, {**one, "head": "y", "speech": "b"}]) == ["x", "y"]
    assert names_of([one, {**one, "speech": "b", "files": "2"}]) == ["x, with a", "x, with b"]
    assert names_of([one, {**one, "files": "2"}]) == ["x, files 1", "x, files 2"]
    assert names_of([one, {**one, "fingerprint": "g"}]) == ["x, fingerprint f", "x, fingerprint g"]


def test_arrays_in_rows(rng: np.random.Generator) -> None:
    """Packed arrays come back to 1 in 30,000 of their range, and NaN as NaN."""
    values = rng.normal(size=(3, 5, 7))
    values[1, 2] = np.nan
    again = unpack(json.loads(json.dumps(pack(values))))
    np.testing.assert_allclose(again, values, atol=np.nanmax(np.ptp(values[0])) / 5_000)
    np.testing.assert_array_equal(unpack(pack(np.full(4, 2.5))), np.full(4, 2.5))


def test_remarks_are_whole_sentences() -> None:
    """Every experiment says where it differs, in lines that a page can hold."""
    for name, experiment in EXPERIMENTS.items():
        assert re.match(r"(Table \d|Figure \d|Rooms): ", experiment.title)
        assert experiment.about
        assert (experiment.findings is not None) == bool(experiment.findings_on)
        found = experiment.findings(rows_in_docs(name)) if experiment.findings else "."
        for text in (experiment.about, found):
            assert text.endswith(".")
            assert max(map(len, text.splitlines())) <= 100


def test_a_template_is_filled_and_wrapped() -> None:
    """Points stay points; what is put in may be longer than its name."""
    template = "- One of\n  {n} points.\n- Two " + "words " * 20 + "and {more}."
    text = told(template, n=7, more="more " * 10 + "yet")
    lines = text.splitlines()
    assert lines[0] == "- One of 7 points."
    assert lines[1].startswith("- Two words")
    assert lines[2].startswith("  words")
    assert max(map(len, lines)) <= 100
    assert told("A\nparagraph.") == "A paragraph."
    assert span([3.4, 1.2, 2.0], "{:.0f}°") == "1° to 3°"
    assert span([2.9, 3.1], "{:.0f}°") == "3°"
    assert printed("4.7±11") == 4.7
