"""Experiments: rows that are never run twice, data sets of the paper, tables and figures."""

import importlib
import json
import re
import shutil
import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import earatlas as ea
from earatlas.code_hash import reached_units
from earatlas.experiments import (
    EXPERIMENTS,
    Bench,
    Experiment,
    current_rows,
    figure_parts,
    read_rows,
    rooms,
    run_experiment,
    table2,
    table3,
)
from earatlas.experiments.array_cache import cached_arrays
from earatlas.experiments.bench import LAYOUTS, azimuth_elevation_errors
from earatlas.experiments.confirmation import check_rows, first_difference
from earatlas.experiments.figure_parts import pack_array, unpack_array
from earatlas.experiments.models import METHODS, fit_method
from earatlas.experiments.page import mark_stale_rows, without_stale_marks, write_page
from earatlas.experiments.rows import DataSetRows, group_by_data_set
from earatlas.experiments.simulated_camil import (
    ALL_CUES,
    RotatedHeadSettings,
    recorded_noise_cues,
    simulated_camil,
)
from earatlas.experiments.tables import (
    fill_template,
    format_mean_std,
    format_medians,
    format_range,
    group_by_head,
    head_labels,
    markdown_table,
    mean_errors,
    merge_parts,
    parse_mean,
    pool,
    rows_of_heads,
    select_rows,
    speech_label,
    summarize,
    summarize_errors,
)
from earatlas.experiments.talkers import (
    SPEECH_SYNTHESIZER,
    SYNTHETIC_SPEECH,
    _espeak_available,
    describe_speech,
    load_voices,
    render_talkers,
)

QUICK = Bench(quick=True)


@pytest.fixture
def counting_experiment() -> tuple[Experiment, list[int]]:
    """Return an experiment that squares its seed, and the list of the seeds that it measured."""
    measured_seeds: list[int] = []

    def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        measured_seeds.append(settings["seed"])
        return {"square": settings["seed"] ** 2}

    def plan(bench: Bench) -> list[dict[str, Any]]:
        return [{"seed": seed} for seed in range(bench.repeats(10, quick=3))]

    return replace(EXPERIMENTS["figure2"], name="toy", plan=plan, measure=measure), measured_seeds


def test_finished_rows_are_not_run_again(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """A second run measures nothing, and a larger plan only the new rows."""
    experiment, measured_seeds = counting_experiment
    path = tmp_path / "toy.jsonl"
    first, new = run_experiment(experiment, Bench(share=0.4), path)
    assert (new, measured_seeds) == (4, [0, 1, 2, 3])
    again, new = run_experiment(experiment, Bench(share=0.4), path)
    assert (new, again) == (0, first)
    more, new = run_experiment(experiment, Bench(share=0.6), path)
    assert new == 2
    assert measured_seeds == [0, 1, 2, 3, 4, 5]
    assert [row["result"]["square"] for row in more] == [0, 1, 4, 9, 16, 25]


def test_rows_finish_one_by_one(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Rows that were measured before an interruption are kept."""
    experiment, measured_seeds = counting_experiment

    def interrupted(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        if settings["seed"] == 2:
            raise KeyboardInterrupt
        return experiment.measure(bench, settings)

    path = tmp_path / "toy.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(replace(experiment, measure=interrupted), Bench(share=0.4), path)
    assert len(read_rows(path)) == 2
    _, new = run_experiment(experiment, Bench(share=0.4), path)
    assert new == 2
    assert measured_seeds == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", ["cut", "words", "other", "no data", "no plan"])
def test_broken_lines_are_reported_and_run_again(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path, damage: str
) -> None:
    """A truncated or invalid line costs one row and affects no other."""
    experiment, _ = counting_experiment
    path = tmp_path / "toy.jsonl"
    rows, _ = run_experiment(experiment, Bench(share=0.3), path)
    lines = path.read_text().splitlines()  # the plan, then the rows
    broken = {
        "cut": lines[3][:30],
        "words": "not JSON",
        "other": '{"experiment": "toy"}',
        "no data": json.dumps({**rows[2], "data": ["toy"]}),
        "no plan": json.dumps({**rows[2], "plan": None}),
    }[damage]
    path.write_text("\n".join([*lines[:3], broken]))  # no line end, as after a crash
    with pytest.warns(ea.EaratlasWarning, match=r"got 1 of 4 other lines .* \(first: line 4\)"):
        again, new = run_experiment(experiment, Bench(share=0.3), path)
    assert new == 1
    assert [r["result"] for r in again] == [r["result"] for r in rows]
    before = path.read_bytes()
    with pytest.warns(ea.EaratlasWarning, match="They are skipped"):
        assert read_rows(path) == again, "the new row is on a line of its own"
    assert path.read_bytes() == before, "and reading never writes"


def test_row_identity_includes_version_and_size(
    counting_experiment: tuple[Experiment, list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another version, or quick instead of full, is another row and is shown separately."""
    experiment, measured_seeds = counting_experiment
    path = tmp_path / "toy.jsonl"
    run_experiment(experiment, Bench(quick=True), path)
    run_experiment(experiment, Bench(share=0.3), path)
    monkeypatch.setattr(ea, "__version__", "99.0")
    _, new = run_experiment(experiment, Bench(share=0.3), path)
    assert new == 3
    assert len(measured_seeds) == 9
    rows = read_rows(path)
    assert len(rows) == 9
    assert len(current_rows(experiment, rows, quick=False)) == 3
    assert current_rows(experiment, rows, quick=True) == []
    assert {*rows[0]} == {
        *("experiment", "revision", "data", "settings", "quick", "version", "result", "seconds"),
        "code",
    }


def test_new_revision_runs_all_rows_again(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Rows without a revision belong to the first one; a new revision measures all rows again."""
    experiment, measured_seeds = counting_experiment
    path = tmp_path / "toy.jsonl"
    rows, _ = run_experiment(experiment, Bench(share=0.3), path)
    old = [{k: v for k, v in row.items() if k != "revision"} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    _, new = run_experiment(experiment, Bench(share=0.3), path)
    assert new == 0
    second = replace(experiment, revision=2)
    _, new = run_experiment(second, Bench(share=0.3), path)
    assert new == 3
    assert len(measured_seeds) == 6
    (part,) = group_by_data_set(second, path, quick=False)
    assert {row["revision"] for row in part.rows} == {2}


def test_stale_rows_are_marked_and_repeated(
    counting_experiment: tuple[Experiment, list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of other code, or without a record of it, are kept, marked, and repeated on demand."""
    monkeypatch.setattr(figure_parts, "save", lambda figure, path: path)
    experiment, measured_seeds = counting_experiment
    experiment = replace(experiment, section=lambda rows, folder: "A table.")
    (tmp_path / "results" / "rows").mkdir(parents=True)
    path = tmp_path / "results" / "rows" / "toy.jsonl"
    rows, _ = run_experiment(experiment, Bench(share=0.3), path)
    fresh = write_page({"toy": experiment}, tmp_path, quick=False).read_text()
    assert "Stale" not in fresh
    old = [rows[0], {**rows[1], "code": "other"}, {k: rows[2][k] for k in rows[2] if k != "code"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    marked = write_page({"toy": experiment}, tmp_path, quick=False).read_text()
    assert "recorded: toy (2 of 3)." in marked.replace("\n", " ")
    assert without_stale_marks(marked) == without_stale_marks(fresh) == fresh
    assert mark_stale_rows(fresh, {"toy": experiment}, tmp_path / "results") == marked
    _, new = run_experiment(experiment, Bench(share=0.3), path)
    assert (new, measured_seeds) == (0, [0, 1, 2])
    again, new = run_experiment(experiment, Bench(share=0.3), path, repeat_stale=True)
    assert (new, measured_seeds) == (2, [0, 1, 2, 1, 2])
    assert [row["code"] for row in again] == [experiment.code({})] * 3
    assert read_rows(path) == again
    assert write_page({"toy": experiment}, tmp_path, quick=False).read_text() == fresh


def test_stale_rows_are_confirmed_if_repetitions_agree(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Some rows of each version and kind are repeated; the others count as measured today."""
    experiment, measured_seeds = counting_experiment
    experiment = replace(experiment, section=lambda rows, folder: "A table.")
    (tmp_path / "results" / "rows").mkdir(parents=True)
    path = tmp_path / "results" / "rows" / "toy.jsonl"
    rows, _ = run_experiment(experiment, Bench(), path)
    plan = path.read_text().splitlines()[0]
    for row in rows[:5]:
        row["code"] = "first"
    for row in rows[5:]:
        row["code"] = "second"
    rows[7]["result"]["square"] += 1  # the second version had other results
    gone = json.loads(plan)
    gone["plan"].append({"number": 3})  # settings of an earlier version, which cannot be repeated
    old = {**rows[0], "settings": {"number": 3}, "result": {"square": 9}}
    path.write_text("\n".join([json.dumps(gone), *map(json.dumps, [*rows, old])]) + "\n")
    measured_seeds.clear()
    checks = check_rows(experiment, Bench(), path, 3)
    assert [(check.rows, check.repeated, check.difference) for check in checks] == [
        (5, 3, None),
        (5, 2, "seed 7: square 50, now 49"),
    ]
    assert measured_seeds == [0, 2, 3, 5, 7]
    after = group_by_data_set(experiment, path, quick=False)[0].rows[:10]
    stale = [row["settings"]["seed"] for row in after if experiment.is_stale(row)]
    confirmed = [row["settings"]["seed"] for row in after if "confirmed" in row]
    assert (stale, confirmed) == ([6, 8, 9], [1, 4])
    page = write_page({"toy": experiment}, tmp_path, quick=False).read_text()
    assert "printed digits: toy (2 of 11)." in page.replace("\n", " ")
    assert "recorded: toy (4 of 11)." in page.replace("\n", " ")
    assert "(11 of 11 rows;" in page.replace("\n", " ")
    assert check_rows(replace(experiment, measure=lambda bench, s: {}), Bench(), path, 1)[0].rows
    with pytest.raises(ea.InputError, match="at least 1 row"):
        check_rows(experiment, Bench(), path, 0)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        (1.0, 1.0229, True),
        (1.0, 1.0231, False),
        (40.0, 40.139, True),
        (-40.0, -40.141, False),
        (float("nan"), float("nan"), True),
        ({"a": [1, None]}, {"a": [1, None]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1}, {"b": 1}, False),
        ("text", "text", True),
        ("text", 1, False),
        ({"mean": 50.0, "std": 6.0}, {"mean": 50.0, "std": 6.18}, True),
        ({"mean": 50.0, "std": 6.0}, {"mean": 50.0, "std": 6.19}, False),
        ({"mean": 1.0, "std": 1.0}, {"mean": 1.0, "std": 1.03}, False),
        (pack_array([0.0, 50.0, 100.0]), pack_array([0.0, 50.1, 100.1]), True),
        (pack_array([0.0, 50.0, 100.0]), pack_array([0.0, 50.5, 100.0]), False),
        (pack_array([0.0, 1.0]), pack_array([[0.0, 1.0]]), False),
    ],
)
def test_results_agree_within_tolerances(first: Any, second: Any, agree: bool) -> None:
    """Numbers agree to 0.02 and three thousandths; names, lengths and shapes must be the same."""
    assert (first_difference(first, second) is None) is agree


def test_every_kind_of_row_is_checked(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Of each method the cheapest row is repeated; one that differs leaves the others confirmed."""
    experiment, measured_seeds = counting_experiment
    path = tmp_path / "toy.jsonl"

    def plan(bench: Bench) -> list[dict[str, Any]]:
        return [{"seed": seed, "method": "ab"[seed % 2]} for seed in range(6)]

    def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        measured_seeds.append(settings["seed"])
        return {"means": [settings["seed"]]}

    experiment = replace(experiment, plan=plan, measure=measure)
    rows, _ = run_experiment(experiment, Bench(), path)
    for seconds, row in zip((3, 3, 1, 2, 2, 1), rows, strict=True):
        row |= {"code": "first", "seconds": seconds}
    rows[5]["result"] = {"means": [1]}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    measured_seeds.clear()
    checks = check_rows(experiment, Bench(), path, 1)
    assert [(check.kind, check.difference) for check in checks] == [
        ("a", None),
        ("b", "seed 5: means[0] 1, now 5"),
    ]
    assert measured_seeds == [2, 5]


def test_only_the_newest_plan_is_shown(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Rows of an older plan stay in the file, and missing rows are counted."""
    experiment, _ = counting_experiment
    path = tmp_path / "toy.jsonl"
    run_experiment(experiment, Bench(share=0.6), path)
    run_experiment(experiment, Bench(share=0.4), path)
    run_experiment(experiment, Bench(share=0.4), path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(line["plan"]) for line in lines if "plan" in line] == [6, 4], "no plan twice"
    (part,) = group_by_data_set(experiment, path, quick=False)
    assert (len(part.rows), len(part.plan), len(read_rows(path))) == (4, 4, 6)

    def stopped(bench: Bench, settings: dict[str, Any], at: int) -> dict[str, Any]:
        if settings["seed"] == at:
            raise KeyboardInterrupt
        return experiment.measure(bench, settings)

    for at, expected in ((6, (4, 4)), (7, (7, 9))):  # a plan counts from its first row on
        with pytest.raises(KeyboardInterrupt):
            run_experiment(
                replace(experiment, measure=partial(stopped, at=at)), Bench(share=0.9), path
            )
        (part,) = group_by_data_set(experiment, path, quick=False)
        assert (len(part.rows), len(part.plan)) == expected
    old = [line for line in path.read_text().splitlines(True) if '"plan"' not in line]
    path.write_text("".join(old))
    (part,) = group_by_data_set(experiment, path, quick=False)
    assert (len(part.rows), len(part.plan)) == (7, 7), "a file without plans is shown as it is"


def test_heads_of_the_same_name_are_separate_data_sets(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """Two files of one name are two data sets; a changed built-in head is one."""
    path = tmp_path / "toy.jsonl"
    rows, _ = run_experiment(counting_experiment[0], Bench(share=0.1), path)
    for name, parts in (("mine", 2), ("simulated", 1)):
        data = [{"head": name, "directions": 9, "fingerprint": f} for f in ("one", "two")]
        path.write_text("".join(json.dumps({**rows[0], "data": d}) + "\n" for d in data))
        found = group_by_data_set(counting_experiment[0], path, quick=False)
        assert [part.data for part in found] == data[-parts:]


def test_several_processes_give_the_same_rows(tmp_path: Path) -> None:
    """The rows do not depend on the order of completion."""
    experiment = EXPERIMENTS["figure2"]
    one, _ = run_experiment(experiment, QUICK, tmp_path / "one.jsonl")
    two, new = run_experiment(experiment, QUICK, tmp_path / "two.jsonl", jobs=2)
    assert new == 4
    assert [r["result"] for r in one] == [r["result"] for r in two]


def test_page_is_drawn_without_measuring(tmp_path: Path) -> None:
    """The page is drawn from the rows alone, and is the same twice."""
    (tmp_path / "results" / "rows").mkdir(parents=True)
    experiment = EXPERIMENTS["figure2"]
    run_experiment(experiment, QUICK, tmp_path / "results" / "rows" / "figure2.jsonl")

    def never(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("nothing may be measured")

    experiments = {"figure2": replace(experiment, measure=never)}
    first = write_page(experiments, tmp_path, quick=True).read_text()
    assert first == write_page(experiments, tmp_path, quick=True).read_text()
    assert experiment.description in first
    assert experiment.findings is not None
    assert experiment.findings([]) not in first, "findings belong to the full size"
    assert "rows so far" not in first
    assert "![" in first
    assert (tmp_path / "results" / "figure2.png").stat().st_size > 10_000
    path = tmp_path / "results" / "rows" / "figure2.jsonl"
    path.write_text("".join(path.read_text().splitlines(True)[:-1]))
    assert (
        "\n\ntoy: 3 of 4 rows so far.\n\n"
        in write_page(experiments, tmp_path, quick=True).read_text()
    )


def test_findings_require_all_their_heads() -> None:
    """Findings are shown if all heads that they mention cover their plans at full size."""
    experiment = replace(
        EXPERIMENTS["table1"],
        findings=lambda rows: f"So: {[row['seed'] for row in rows]}.",
        findings_on=("ku100", "simulated"),
    )
    sets = [
        DataSetRows({"head": name}, [{"seed": n, "settings": {"seed": n}}], [{"seed": n}])
        for n, name in enumerate(("simulated", "mine", "ku100"))
    ]
    assert experiment.findings_for(sets, quick=False) == "So: [0, 2]."
    assert experiment.findings_for(sets, quick=True) == ""
    assert experiment.findings_for(sets[:2], quick=False) == ""
    longer = replace(sets[2], plan=[{"seed": 2}, {"seed": 3}])
    assert experiment.findings_for([*sets[:2], longer], quick=False) == "So: [0, 2]."
    assert not longer.finished, "repetitions may be missing"
    other = replace(sets[2], plan=[{"seed": 2}, {"method": "other", "seed": 2}])
    assert experiment.findings_for([*sets[:2], other], quick=False) == "", "but no method"


ROWS = Path(__file__).parents[2] / "docs" / "results" / "rows"
OTHER = (None, "the paper's", "PPAM, ours, K = N/10", "MPLR, plain")  # methods
WITH_FIGURES = ("table1", "table3", "figure3", "figure4", "figure8", "figure9", "rooms")


@cache
def rows_in_docs(name: str) -> list[dict[str, Any]]:
    """Return the rows of the page in the repository for the heads that its findings mention."""
    if not ROWS.is_dir():
        pytest.skip("docs/results is missing")
    experiment = EXPERIMENTS[name]
    sets = group_by_data_set(experiment, ROWS / f"{name}.jsonl", quick=False)
    rows = merge_parts(row for own in sets for row in own.rows)
    return rows_of_heads(rows, *experiment.findings_on)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_findings_templates_contain_no_numbers(name: str) -> None:
    """Templates contain digits only in names, so that no number can contradict the rows."""
    module = importlib.import_module(f"earatlas.experiments.{name}")
    template = getattr(module, "FINDINGS", "")
    names = r"\{\w+(:[^}]*)?\}|ku100|cipic_021|\bT[12]\b"
    assert not re.search(r"\d", re.sub(names, "", template))
    assert bool(re.search(r"\{", template)) == (name in (*WITH_FIGURES, "table2"))


@pytest.mark.parametrize("name", WITH_FIGURES)
def test_findings_follow_their_rows(name: str) -> None:
    """Other results give another text, so that all numbers come from the rows."""

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


def test_claims_of_the_findings_hold() -> None:
    """The comparisons that the findings state hold in the rows of the repository."""
    rows = rows_in_docs("table1")
    for head in ("ku100", "cipic_003", "cipic_021", "simulated"):
        own = rows_of_heads(rows, head)
        for cue in LAYOUTS:
            found = {m: sum(mean_errors(own, cue=cue, method=m)) for m in METHODS}
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
    for own in group_by_head(front).values():
        errors = [row["result"]["errors"] for row in own]
        names = {name for methods in errors for name in methods}
        found = {m: pool(e[m]["azimuth"] for e in errors if m in e)["mean"] for m in names}
        assert max(found["PPAM(T1)"], found["PPAM(T2)"], found["ours(T2)"]) < found["PHAT"]
    by_head = group_by_head(rows)
    for head, method, angle, less in (
        *(("simulated-room", m, a, True) for m in ("PPAM(T1)", "PPAM(T2)") for a in (0, 1)),
        *(("simulated", m, 1, False) for m in ("PPAM(T1)", "PPAM(T2)")),
    ):
        what = ("azimuth", "elevation")[angle]
        pooled = pool(row["result"]["errors"][method][what] for row in by_head[head])["mean"]
        assert (pooled < parse_mean(table2.PAPER[method][angle])) is less
    room = {
        m: sum(pool(row["result"]["errors"][m][a] for row in by_head["simulated-room"])["mean"]
               for a in ("azimuth", "elevation"))
        for m in ("PPAM(T2)", "ours(T2)")
    }  # fmt: skip
    assert room["ours(T2)"] > room["PPAM(T2)"]
    rows = rows_in_docs("table3")
    for head, own in group_by_head(rows).items():
        for M in (2, 3):
            methods = [row["result"]["methods"] for row in select_rows(own, sources=M)]
            for what in ("SDR", "STIR"):
                names = {name for found in methods for name in found if what in found[name]}
                found = {m: pool(r[m][what] for r in methods if m in r)["mean"] for m in names}
                ranking = ["MESSL-G", "VESSL(T1)"]
                if head == "simulated-room":
                    ranking.reverse()  # as in the paper
                    azimuth = pool(r["VESSL(T1)"]["azimuth"] for r in methods if "VESSL(T1)" in r)[
                        "mean"
                    ]
                    assert azimuth < parse_mean(table3.PAPER[M]["VESSL(T1)"][0])
                assert found["ours(T2), masks"] > found[ranking[0]] > found[ranking[1]]
                assert M == 3 or head == "simulated-room" or found["ours(T2)"] > found["oracle"]
    for own in group_by_head(rows_in_docs("rooms")).values():
        for case in (*rooms.ROOMS, rooms.TWO):
            some = select_rows(own, **case.settings)
            reverberant, anechoic = (rooms._Statistics.of(some, atlas) for atlas in rooms.ATLASES)
            assert 2 * reverberant.errors.mean() < anechoic.errors.mean()
            assert anechoic.within(0.9) < 85 < reverberant.within(0.9), (
                "the regions are too small without the reverberant model"
            )


@pytest.mark.usefixtures("unsaved_figures")
def test_page_in_the_repository_matches_its_rows(tmp_path: Path) -> None:
    """docs/results.md equals the page of docs/results/rows, except for marks of stale rows."""
    docs = Path(__file__).parents[2] / "docs"
    if not (docs / "results" / "rows").is_dir() or not (docs / "results.md").is_file():
        pytest.skip("docs/results is missing")
    shutil.copytree(docs / "results" / "rows", tmp_path / "results" / "rows")
    drawn = write_page(EXPERIMENTS, tmp_path, quick=False).read_text(encoding="utf-8")
    in_docs = (docs / "results.md").read_text(encoding="utf-8")
    # The marks change with every change of the code; the site makes them anew.
    assert without_stale_marks(drawn) == without_stale_marks(in_docs)


# --- data sets of the paper ------------------------------------------------------------------


def test_plans_have_their_full_sizes() -> None:
    """Directions are those of the paper, repetitions as planned; nothing is measured."""
    bench = Bench()
    assert (bench.description["directions"], len(bench.planar_head)) == (
        10_800,
        9_660,
    )  # 161 azimuths
    train, test = bench.train_test_split(3)
    assert len(train) == len(test) == 4_830
    assert not np.intersect1d(train, test).size
    rows = EXPERIMENTS["table1"].plan(bench)
    assert len(rows) == 3 * len(LAYOUTS) * len(METHODS) == 72
    assert {row["components"] for row in rows} == {64}
    assert len(EXPERIMENTS["table2"].plan(bench)) == 2 * 200, "two parts per recording"
    assert len(EXPERIMENTS["table3"].plan(bench)) == 3 * 100, "three parts per mixture"
    assert {row["degrees"] for row in EXPERIMENTS["figure9"].plan(bench)} >= {5.0, 10.0}
    assert len(bench.training_set("T1")[0]) == 9_660
    T2, outside = bench.training_set("T2")
    assert len(T2) == pytest.approx(1530, rel=0.02)
    assert len(bench.random_subset(10.0, 0)[0]) == pytest.approx(384, rel=0.02)
    assert not np.intersect1d(T2, outside).size, "talkers must be outside T2"
    assert {*EXPERIMENTS} == {
        *("table1", "table2", "table3", "figure2", "figure3"),
        *("figure4", "figure5", "figure7", "figure8", "figure9"),
        "rooms",
    }


def test_talkers_are_placed_as_in_the_paper() -> None:
    """Talkers are outside T2, separated, overlap in 60 % of the time, and are reproducible."""
    _, test = QUICK.training_set("T2")
    scene = render_talkers(QUICK, test, 3, 5, seconds=(1.0, 2.0))
    again = render_talkers(QUICK, test, 3, 5, seconds=(1.0, 2.0))
    np.testing.assert_array_equal(scene.mixture.samples, again.mixture.samples)
    other = render_talkers(QUICK, test, 3, 6, seconds=(1.0, 2.0))
    assert not np.array_equal(scene.directions, other.directions)
    ahead = test[(np.abs(QUICK.planar_head.directions[test]) < 25).all(axis=1)]
    for seed in range(5):  # most pairs are closer here
        x = render_talkers(QUICK, ahead, 2, seed, seconds=(0.2, 0.3)).directions
        assert ea.great_circle_error(x[0], x[1]) >= 15
    assert scene.settings["overlap"] == pytest.approx(0.6, abs=0.02)
    allowed = QUICK.planar_head.directions[test]
    for direction in scene.directions:
        assert (np.abs(allowed - direction).sum(axis=1) < 1e-9).any()


def test_speech_from_a_folder(tmp_path: Path) -> None:
    """The sound files of a folder are the talkers; too few files raise an InputError."""
    with pytest.raises(ea.InputError, match="speech must be a folder of sound files"):
        load_voices(tmp_path / "missing", True)
    for n in range(3):
        with pytest.raises(ea.InputError, match=f"at least 3 sound files, got {n}"):
            load_voices(tmp_path, True)
        ea.Audio(ea.synthetic_speech(1.5, seed=n)[None], 16_000).write(tmp_path / f"{n}.wav")
    voices = load_voices(tmp_path, True)
    assert [len(v) for v in voices] == [24_000] * 3
    description = describe_speech(tmp_path)
    assert description["speech"] == tmp_path.name
    assert EXPERIMENTS["table2"].data(replace(QUICK, speech=tmp_path)) == {
        **QUICK.description,
        **description,
    }
    (tmp_path / "notes.txt").write_text("no talker")
    assert describe_speech(tmp_path) == description
    ea.Audio(ea.synthetic_speech(1.6, seed=0)[None], 16_000).write(tmp_path / "0.wav")
    assert describe_speech(tmp_path)["files"] != description["files"], "another size"
    assert speech_label({"data": description}) == f"talkers of the folder `{tmp_path.name}`"


def test_built_in_speech_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """espeak-ng voices and synthetic speech are different data sets."""

    def missing(*_: object, **__: object) -> None:
        raise ea.InputError("no espeak-ng")

    _espeak_available.cache_clear()
    monkeypatch.setattr("earatlas.experiments.talkers.speak", lambda *_, **__: np.zeros(9))
    assert describe_speech(None) == {"speech": SPEECH_SYNTHESIZER}
    _espeak_available.cache_clear()
    monkeypatch.setattr("earatlas.experiments.talkers.speak", missing)
    assert describe_speech(None) == {"speech": SYNTHETIC_SPEECH}
    assert len(load_voices.__wrapped__(None, True)) == 3
    assert speech_label({"data": {"speech": SYNTHETIC_SPEECH}}) == "built-in synthetic speech"
    _espeak_available.cache_clear()


@pytest.mark.parametrize("method", METHODS)
def test_methods_recover_directions(method: str) -> None:
    """Every method is better than guessing on test directions, and not perfect."""
    train, test = QUICK.train_test_split(0)
    x, y = QUICK.planar_head.directions, QUICK.cues("ILD")
    model = fit_method(method, x[train], y[train], 16)
    azimuth, elevation = azimuth_elevation_errors(x[test], model.inverse_map(y[test]))
    guess = np.abs(x[test] - x[train].mean(axis=0)).mean(axis=0)
    assert 0.05 < azimuth.mean() < 0.5 * guess[0]
    assert 0.05 < elevation.mean() < 0.7 * guess[1]


def test_errors_wrap_and_clip_at_the_pole() -> None:
    """Estimates on the plane may lie outside the sphere."""
    azimuth, elevation = azimuth_elevation_errors(
        np.array([[-159.0, 50.0], [10.0, 0.0]]), np.array([[175.0, 140.0], [13.0, -1.5]])
    )
    np.testing.assert_allclose(azimuth, [26.0, 3.0])
    np.testing.assert_allclose(elevation, [40.0, 1.5])


def test_reflections_rotate_with_the_head() -> None:
    """Without a room the result equals the simulated head; with a room it does not."""
    # Fewer harmonics than for the paper's recordings, which represent less high frequencies
    coarse = RotatedHeadSettings(order=20, lattice_degrees=8.0)
    dry = simulated_camil(12, room=None, settings=coarse)
    head = ea.simulated_head(dry.directions)
    for highest_hz, tolerance_db in ((2000.0, 0.005), (4000.0, 0.3)):
        layout = ea.CueLayout(ild_band_hz=(100.0, highest_hz))
        true = head.cues(layout)
        np.testing.assert_allclose(dry.cues(layout), true, atol=tolerance_db)
    pytest.importorskip("pyroomacoustics")
    wet = simulated_camil(12, settings=coarse)
    every_cue = wet.cues(ALL_CUES)
    for own in (layout, *LAYOUTS.values()):
        selected = every_cue[:, own.indices_in(ALL_CUES)]
        np.testing.assert_allclose(wet.cues(own), selected, rtol=1e-12, err_msg="one computation")
    np.testing.assert_array_equal(wet.directions, dry.directions)
    assert 1.0 < np.abs(wet.cues(layout) - true).mean() < 6.0
    power = (wet.responses().samples ** 2).sum(axis=1)
    assert (power[:, 960:].sum(axis=1) < 0.01 * power.sum(axis=1)).all(), (
        "decayed within the window"
    )


def test_arrays_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are read from the cache folder, made again if damaged, and made without a folder."""
    monkeypatch.setenv("EARATLAS_CACHE", str(tmp_path / "cache"))
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}

    for expected in (1, 1):
        np.testing.assert_array_equal(cached_arrays("one", make)["a"], make()["a"])
        made.pop()
        assert len(made) == expected
    (file,) = (tmp_path / "cache").glob("*.npz")
    file.write_bytes(file.read_bytes()[:100])
    np.testing.assert_array_equal(cached_arrays("one", make)["a"], make()["a"])
    assert len(made) == 3, "the damaged file is replaced"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EARATLAS_CACHE", str(tmp_path / "file"))
    assert cached_arrays("one", make)["a"].shape == (2, 3)


def test_fingerprints_do_not_depend_on_the_last_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding errors of another machine keep the fingerprint; other values change it."""
    head = ea.simulated_head(ea.Plane().grid(20.0))
    ears = head.responses()

    def fingerprint(error: float, shift: int = 0) -> str:
        noise = np.random.default_rng(1).normal(size=ears.samples.shape)
        samples = np.roll(ears.samples, shift, axis=-1) * (1 + error * noise)
        own = replace(head, ears=replace(ears, samples=samples))
        monkeypatch.setattr("earatlas.experiments.bench._full_head", lambda *_: own)
        return str(Bench().description["fingerprint"])

    assert fingerprint(0.0) == fingerprint(1e-14) == "7b4e6b8b", "the same on all machines"
    assert fingerprint(0.0, shift=1) != fingerprint(0.0)


# --- rooms -----------------------------------------------------------------------------------


def test_rooms_without_pyroomacoustics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random reverberation is used, recorded in the rows, and has the requested T60."""
    with_extra = rooms.plan(QUICK)
    monkeypatch.setitem(sys.modules, "pyroomacoustics", None)
    monkeypatch.setattr(rooms, "find_spec", lambda name: None)
    plan = rooms.plan(QUICK)
    assert {row["walls"] for row in plan} == {"", rooms.RANDOM_REVERBERATION}
    assert [row for row in plan if not row["walls"]] == [
        row for row in with_extra if not row["walls"]
    ]
    alone, dry, two = (
        {**case.settings, "seed": 1, "walls": walls}
        for case, walls in (
            (rooms.ROOMS[1], rooms.RANDOM_REVERBERATION),
            (rooms.Case(), ""),
            (rooms.TWO, rooms.RANDOM_REVERBERATION),
        )
    )
    assert all(settings in plan for settings in (alone, dry, two))
    reverberant, again, anechoic = (rooms._scene(QUICK, row) for row in (alone, alone, dry))
    np.testing.assert_array_equal(reverberant.mixture.samples, again.mixture.samples)
    np.testing.assert_array_equal(reverberant.directions, anechoic.directions)
    assert reverberant.is_reverberant
    assert not anechoic.is_reverberant
    longer = reverberant.mixture.seconds - anechoic.mixture.seconds
    assert longer == pytest.approx(0.3, abs=0.02)
    share = (reverberant.images - reverberant.early).std() / reverberant.images.std()
    assert 0.1 < share < 0.9, "share of the late reverberation"
    both = rooms._scene(QUICK, two).directions
    assert ea.great_circle_error(*both) >= 15


def test_rooms_with_pyroomacoustics() -> None:
    """The same talker in a shoebox room has another row and another signal."""
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics is an extra")
    alone = {**rooms.ROOMS[1].settings, "seed": 1, "walls": rooms.SHOEBOX}
    assert alone in rooms.plan(QUICK)
    shoebox, own = (
        rooms._scene(QUICK, {**alone, "walls": w})
        for w in (rooms.SHOEBOX, rooms.RANDOM_REVERBERATION)
    )
    np.testing.assert_array_equal(shoebox.directions, own.directions)
    early = [(s.early**2).sum() / (s.images**2).sum() for s in (shoebox, own)]
    assert early[0] == pytest.approx(early[1], abs=0.15), "equally reverberant"
    assert early[0] != early[1]


def test_room_statistics_of_a_small_example() -> None:
    """Medians and shares are computed over all sources; fewer than three are not printed."""
    answer = {"errors": [1.0, 25.0], "levels": [0.4, 0.95], "radii": [3.0, 5.0]}
    rows = [{"result": {rooms.REVERBERANT: answer}}] * 2
    own = rooms._Statistics.of([*rows, {"result": {rooms.REVERBERANT: {
        "errors": [40.0], "levels": [0.7], "radii": [9.0]}}}], rooms.REVERBERANT)  # fmt: skip
    assert own.cells == ["5", "25.0", "60 %", "20 %", "40 %", "60 %", "5.0"]
    few = rooms._Statistics.of(rows[:1], rooms.REVERBERANT)
    assert few.cells == ["2", "", "", "", "", "", ""]


# --- figures ---------------------------------------------------------------------------------


def test_symmetric_neighbours_are_mutual_neighbours() -> None:
    """Panels c and d have the mutual edges of a and b; the outlier has none."""
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


def test_affine_components_fit_the_surface() -> None:
    """Fifteen components fit well, those of k-means less, and one affine map does not."""
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
    """Missing or additional rows do not change the letters of the panels."""
    monkeypatch.setattr(figure_parts, "save", lambda figure, path: path)
    experiment = EXPERIMENTS["figure2"]
    rows, _ = run_experiment(experiment, QUICK, tmp_path / "rows.jsonl")
    whole = experiment.section(rows, tmp_path)
    half = experiment.section(rows[2:], tmp_path)
    assert whole.split("(c) ")[1] == half.split("(c) ")[1]
    assert "(a)" not in half
    more = {**rows[0], "settings": {**rows[0]["settings"], "seed": 2}}
    assert experiment.section([*rows, more], tmp_path) == whole


# --- text ------------------------------------------------------------------------------------


def test_pooled_summary_equals_the_summary_of_all_values(rng: np.random.Generator) -> None:
    """Parts of different sizes are pooled; an empty part changes nothing."""
    parts = [rng.normal(3.0, 2.0, n) for n in (3, 50, 7)]
    whole = summarize(np.concatenate(parts))
    found = pool([*map(summarize, parts), summarize([np.nan])])
    assert found["n"] == whole["n"] == 60
    assert found["mean"] == pytest.approx(whole["mean"], abs=2e-4)
    assert found["std"] == pytest.approx(whole["std"], abs=2e-4)
    assert format_mean_std(pool([])) == format_mean_std(None) == ""
    assert format_mean_std({"mean": 2.24, "std": 11.6, "n": 3}) == "2.2±12"
    assert format_mean_std({"mean": 2.24, "std": 11.6, "n": 2}) == "", "too few"
    interval = {"mean": 2.24, "std": 11.6, "n": 9, "low": 0.44, "high": 12.3}
    assert format_mean_std(interval) == "2.2±12 [0.4, 12]"


def test_confidence_intervals_contain_the_mean_in_19_of_20_cases() -> None:
    """Values of one repetition are dependent, and the repetitions have different sizes."""
    rng = np.random.default_rng(5)
    contained = []
    for _ in range(400):
        parts = [3.0 + rng.normal() + 0.5 * rng.normal(size=2 + n % 2) for n in range(8)]
        pooled = pool(map(summarize, parts))
        contained.append(pooled["low"] < 3.0 < pooled["high"])
    assert 0.92 < np.mean(contained) < 0.98
    assert "low" not in pool([summarize([1.0, 2.0, 3.0])] * 2), "too few repetitions"


def test_pooled_medians(rng: np.random.Generator) -> None:
    """Few values are pooled exactly, many to a twentieth of their ranks."""
    few = [rng.gamma(1.0, 20.0, n) for n in (1, 2, 1, 3, 20)]
    every = np.concatenate(few)
    found = pool([*map(summarize_errors, few), summarize_errors([np.nan])])
    assert found["median"] == pytest.approx(np.median(every), abs=2e-3)
    assert found["beyond_30"] == pytest.approx((every > 30).mean(), abs=1e-4)
    assert 0.1 < found["beyond_30"] < 0.5
    many = [rng.gamma(shape, 10.0, n) for shape, n in ((1.0, 3000), (3.0, 500))]
    every, found = np.concatenate(many), pool(map(summarize_errors, many))
    for name, share in (("lower_quartile", 0.25), ("median", 0.5), ("upper_quartile", 0.75)):
        assert (every < found[name]).mean() == pytest.approx(share, abs=0.025)
    assert "median" not in pool([summarize_errors([1.0, 2.0, 3.0]), summarize([1.0])]), "older rows"
    part = summarize_errors([1.0, 2.0, 40.0])
    assert format_medians(part, summarize_errors([1.0, 1.5, 12.0])) == ["2.0 / 1.5", "33 % / 0 %"]
    assert format_medians(part, summarize_errors([1.0])) == ["2.0", "33 %"]


def test_tables_and_selections() -> None:
    """Tables are Markdown; rows are selected by settings and data set in any order."""
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    rows = [
        {"data": {"head": name, "fingerprint": f}, "settings": {"seed": n}}
        for n, (name, f) in enumerate([("x", "old"), ("y", "one"), ("x", "new"), ("x", "new")])
    ]
    wanted = {"x, fingerprint new": [2, 3], "x, fingerprint old": [0], "y": [1]}
    for some in (rows, rows[::-1]):
        found = {k: [r["settings"]["seed"] for r in v] for k, v in group_by_head(some).items()}
        assert found == wanted
        assert list(found) == list(wanted)
    assert select_rows(rows, seed=1) == [rows[1]]


def test_head_labels_distinguish_data_sets() -> None:
    """Labels distinguish two folders of speech, also of the same name."""
    one = {"head": "x", "fingerprint": "f", "speech": "a", "files": "1"}
    assert head_labels([one, {**one, "head": "y", "speech": "b"}]) == ["x", "y"]
    assert head_labels([one, {**one, "speech": "b", "files": "2"}]) == ["x, with a", "x, with b"]
    assert head_labels([one, {**one, "files": "2"}]) == ["x, files 1", "x, files 2"]
    assert head_labels([one, {**one, "fingerprint": "g"}]) == [
        "x, fingerprint f",
        "x, fingerprint g",
    ]


def test_arrays_round_trip_through_rows(rng: np.random.Generator) -> None:
    """Packed arrays are accurate to 1 in 30,000 of their range, and NaN is kept."""
    values = rng.normal(size=(3, 5, 7))
    values[1, 2] = np.nan
    again = unpack_array(json.loads(json.dumps(pack_array(values))))
    np.testing.assert_allclose(again, values, atol=np.nanmax(np.ptp(values[0])) / 5_000)
    np.testing.assert_array_equal(unpack_array(pack_array(np.full(4, 2.5))), np.full(4, 2.5))


def test_texts_are_complete_sentences() -> None:
    """Every experiment has a title and texts that end with a period and fit the page."""
    for name, experiment in EXPERIMENTS.items():
        assert re.match(r"(Table \d|Figure \d|Rooms): ", experiment.title)
        assert experiment.description
        assert (experiment.findings is not None) == bool(experiment.findings_on)
        found = experiment.findings(rows_in_docs(name)) if experiment.findings else "."
        for text in (experiment.description, found):
            assert text.endswith(".")
            assert max(map(len, text.splitlines())) <= 100


def test_templates_are_filled_and_wrapped() -> None:
    """List items stay list items, and inserted values may be longer than their names."""
    template = "- One of\n  {n} points.\n- Two " + "words " * 20 + "and {more}."
    text = fill_template(template, n=7, more="more " * 10 + "yet")
    lines = text.splitlines()
    assert lines[0] == "- One of 7 points."
    assert lines[1].startswith("- Two words")
    assert lines[2].startswith("  words")
    assert max(map(len, lines)) <= 100
    assert fill_template("A\nparagraph.") == "A paragraph."
    assert format_range([3.4, 1.2, 2.0], "{:.0f}°") == "1° to 3°"
    assert format_range([2.9, 3.1], "{:.0f}°") == "3°"
    assert parse_mean("4.7±11") == 4.7


def test_parts_of_a_repetition_are_merged_and_stale_by_themselves() -> None:
    """Methods of one mixture are measured in parts, each with a hash of its own code."""
    data = {"head": "mine"}
    rows = [
        {
            "data": data,
            "settings": {"seed": seed, "part": part},
            "result": {"methods": {part: seed}},
        }
        for seed in (0, 1)
        for part in ("VESSL", "ours")
    ]
    merged = merge_parts(rows)
    assert [row["settings"] for row in merged] == [{"seed": 0}, {"seed": 1}]
    assert merged[1]["result"]["methods"] == {"VESSL": 1, "ours": 1}
    experiment = EXPERIMENTS["table3"]
    codes = {part: experiment.code({"part": part}) for part in table3.PARTS}
    assert len({*codes.values()}) == 3
    assert experiment.is_stale({"settings": {"part": "ours"}, "code": codes["VESSL"]})
    assert not experiment.is_stale({"settings": {"part": "ours"}, "code": codes["ours"]})
    reached = reached_units(table3.measure_baselines)
    assert not [name for name in reached if name.startswith("earatlas.separation.vessl")]


def test_a_portion_of_a_plan_has_its_first_repetitions(
    counting_experiment: tuple[Experiment, list[int]], tmp_path: Path
) -> None:
    """A portion measures the beginning of the plan, and the rest later; the plan is complete."""
    experiment, measured_seeds = counting_experiment
    path = tmp_path / "toy.jsonl"
    rows, new = run_experiment(experiment, Bench(), path, portion=0.25)
    assert (len(rows), new, measured_seeds) == (3, 3, [0, 1, 2])
    (part,) = group_by_data_set(experiment, path, quick=False)
    assert (len(part.rows), len(part.plan)) == (3, 10)
    _, new = run_experiment(experiment, Bench(), path)
    assert (new, measured_seeds) == (7, [*range(10)])


def test_every_direction_of_the_room_has_noise_of_its_own() -> None:
    """Equal responses have different cues, because their recordings differ, with a small error."""
    responses = np.zeros((2, 2, 64))
    responses[:, 0, 3], responses[:, 1, 5] = 1.0, 0.5
    settings = RotatedHeadSettings(noise_seconds=0.5, snr_db=40.0)
    cues = recorded_noise_cues(responses, settings)
    ild = cues[:, ALL_CUES.cue_kinds == "ild"]
    assert 0.01 < np.abs(ild[0] - ild[1]).mean() < 1.0
    assert ild.mean() == pytest.approx(-6.02, abs=0.1)
    np.testing.assert_array_equal(recorded_noise_cues(responses, settings), cues)
    assert (Bench("simulated-room").snr_db, Bench("ku100.sofa").snr_db) == (30.0, 60.0)
