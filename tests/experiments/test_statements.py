"""Claims of the paper: verdicts of made-up rows, and the formulas of the paper's estimates."""

from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.experiments import EXPERIMENTS
from earatlas.experiments.statements import STATEMENTS, statements_table
from earatlas.experiments.table2 import MISSING, _sparse_cues
from earatlas.experiments.table3 import _evaluate
from earatlas.experiments.tables import summarize
from earatlas.experiments.vessl_as_published import paper_map
from earatlas.geometry.direction_posterior import DirectionPosterior


def mixtures(head: str, gains: list[float]) -> list[dict[str, Any]]:
    """Return rows of Table 3 in which VESSL has these gains in SDR over MESSL-G."""
    return [
        {
            "data": {"head": head},
            "settings": {"sources": 2, "seed": seed},
            "result": {
                "methods": {
                    "VESSL(T1)": {"SDR": summarize([3.0 + gain])},
                    "MESSL-G": {"SDR": summarize([3.0])},
                }
            },
        }
        for seed, gain in enumerate(gains)
    ]


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([2.0, 2.2, 1.8, 2.1], "yes: +2.0 [1.8, 2.3] dB, n = 4"),
        ([-2.0, -2.2, -1.8, -2.1], "no: -2.0 [-2.3, -1.8] dB, n = 4"),
        ([2.0, -2.0, 1.0, -0.5], "undecided: +0.1 [-2.7, 2.9] dB, n = 4"),
        ([0.5, 0.3], "undecided: +0.4 dB, n = 2"),
    ],
)
def test_verdicts_follow_the_intervals(gains: list[float], verdict: str) -> None:
    """A claim holds if the interval is positive; two mixtures have none."""
    assert verdict in statements_table({"table3": mixtures("ku100", gains)})


def test_one_split_decides() -> None:
    """A split has many test directions, so that one of them is enough for a verdict."""
    error = {method: summarize([value]) for method, value in (("PPAM", 1.0), ("SIR-2", 9.0))}
    rows = [
        {
            "data": {"head": "ku100"},
            "settings": {"method": method, "cue": "ILPD", "seed": 0},
            "result": {"azimuth": errors, "elevation": errors},
        }
        for method, errors in error.items()
    ]
    assert "yes: +8.0 °, n = 1" in statements_table({"table1": rows})


def test_rooms_and_anechoic_heads_are_summarized_separately() -> None:
    """A claim may hold in the room only, or for some of the anechoic heads."""
    better, worse = [2.0, 2.2, 1.8], [-2.0, -2.2, -1.8]
    rows = [*mixtures("ku100", worse), *mixtures("simulated-room", better)]
    lines = statements_table({"table3": rows}).splitlines()
    line = next(text for text in lines if "2 talkers: VESSL has a higher SDR" in text)
    assert [cell.strip() for cell in line.split("|")[2:4]] == ["**does not hold**", "**holds**"]
    rows += mixtures("simulated", better)
    assert "| holds for 1, does not hold for 1 |" in statements_table({"table3": rows})
    assert statements_table({}) == ""


def test_claims_about_every_condition_count_them() -> None:
    """One sparsity above the line refutes the claim; seeds are averaged."""
    errors = {(4.0, 0): 1.0, (4.0, 1): 2.5, (8.0, 0): 5.0}
    rows = [
        {
            "data": {"head": "ku100"},
            "settings": {"method": "PPAM", "degrees": degrees, "seed": seed},
            "result": {"azimuth": summarize([error]), "elevation": summarize([error])},
        }
        for (degrees, seed), error in errors.items()
    ]
    assert "no: 1 of 2 sparsities" in statements_table({"figure9": rows})
    assert {statement.experiment for statement in STATEMENTS} <= {*EXPERIMENTS}


def test_paper_map_rule_ignores_the_other_charts() -> None:
    """Two charts together are the mode, but a narrower single chart has the largest peak."""
    posterior = DirectionPosterior(
        ea.Plane(),
        centres=np.array([[0.0, 0.0], [0.5, 0.0], [40.0, 10.0]]),
        weights=np.array([0.35, 0.35, 0.3]),
        means=np.array([[1.0, 2.0], [0.5, 2.0], [-1.0, 3.0]]),
        covariances=np.array([4.0 * np.eye(2), 4.0 * np.eye(2), 2.5 * np.eye(2)]),
    )
    np.testing.assert_allclose(paper_map(posterior), [39.0, 13.0])
    np.testing.assert_allclose(posterior.best, [1.0, 2.0])


def test_threshold_leaves_the_share_of_the_paper_unobserved() -> None:
    """At least 89.6 % of the bins are missing, and hardly more."""
    voice = ea.synthetic_speech(2.0, seed=4)
    scene = ea.render_scene(ea.simulated_head([[30.0, 10.0]]), [voice], [[30.0, 10.0]])
    missing = 1 - _sparse_cues(scene.mixture).observed_share
    assert MISSING <= missing < MISSING + 0.02


def test_silent_estimates_are_left_out_and_counted() -> None:
    """A binary mask without any bin has no SDR; the other source keeps its own."""
    voices = [ea.synthetic_speech(1.0, seed=m) for m in range(2)]
    directions = [[30.0, 10.0], [-50.0, 0.0]]
    scene = ea.render_scene(ea.simulated_head(directions), voices, directions)
    silenced = scene.images * np.array([1.0, 0.0])[:, None, None]
    found = _evaluate(scene, {"lost": silenced, "whole": scene.images}, {"lost": scene.directions})
    whole, lost = found["whole"], found["lost"]
    assert (whole["lost"], lost["lost"]) == (0, 1)
    assert (whole["SDR"]["n"], lost["SDR"]["n"]) == (4, 2), "both ears of each source"
    assert lost["azimuth"]["mean"] == 0
    assert "azimuth" not in whole
    assert lost["SDR"]["mean"] > 20
