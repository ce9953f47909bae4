"""Diagnosis of heads: mirrored ears, a single elevation, few directions, coverage."""

import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.diagnosis import coverage_map, diagnose, nearest_neighbour_errors
from earatlas.hrtf.head import Head, ImpulseResponses, MeasuredCues
from earatlas.hrtf.simulated import Ear, camil_directions, simulated_responses


def mirrored_head() -> Head:
    """A head whose right ear mirrors its left one, with directions in mirrored pairs."""
    x = ea.Sphere().grid(15.0)
    x = x[(x[:, 0] > 8) & (x[:, 0] < 172)]
    x = np.concatenate([x, x * [-1, 1], [[0.0, e] for e in range(-60, 90, 15)]])
    ears = (Ear(98.0, -10.0), Ear(-98.0, -10.0))
    return Head("mirrored", x, ImpulseResponses(simulated_responses(x, ears=ears), 48000.0))


def test_complete_head_has_no_warnings(small_head: ea.Head) -> None:
    """The simulated head covers the sphere and has level differences on the median plane."""
    report = ea.diagnose(small_head)
    assert report.warnings == ()
    assert report.largest_gap_degrees < 12
    assert report.space == "sphere"
    assert 1.0 < report.median_plane_ild_db < 8.0


def test_mirrored_head_is_detected() -> None:
    """The ears are mirror images, and the median plane has no level differences."""
    report = ea.diagnose(mirrored_head())
    assert report.mirror_ild_db < 1e-6
    assert report.median_plane_ild_db < 1e-6
    assert any("mirror images" in note for note in report.warnings)
    assert any("elevation and front/back cannot be learned" in note for note in report.warnings)


def test_single_elevation_and_few_directions_are_reported() -> None:
    """The warnings name the single elevation and the number of directions."""
    report = ea.diagnose(ea.simulated_head([[a, 0.0] for a in range(-90, 91, 15)]))
    assert report.space == "circle"
    assert any("one elevation" in note for note in report.warnings)
    assert any("Only 13 directions" in note for note in report.warnings)
    assert report.largest_gap_degrees == pytest.approx(90, abs=3)


@pytest.mark.parametrize("elevation", [-60.0, 0.0, 30.0])
def test_largest_gap_of_a_ring(elevation: float) -> None:
    """A ring with a spacing of 10 degrees has a largest gap of 5 degrees at any elevation."""
    ring = ea.simulated_head([[a, elevation] for a in range(-180, 180, 10)])
    assert ea.diagnose(ring).largest_gap_degrees == pytest.approx(5, abs=0.1)


def test_largest_gap_of_a_missing_cap() -> None:
    """A sphere without directions within 40 degrees of straight below has that gap."""
    x = ea.Sphere().grid(6.0)
    report = ea.diagnose(ea.simulated_head(x[x[:, 1] > -50]))
    assert report.largest_gap_degrees == pytest.approx(40, abs=4)


def test_report_as_json(small_head: ea.Head) -> None:
    """Values that are not available become None."""
    side = small_head.subset(small_head.directions[:, 0] > 20)
    fields = ea.diagnose(side).to_dict()
    assert fields["mirror_ild_db"] is None
    assert fields["directions"] == len(side)


def test_repr_has_rounded_numbers(small_head: ea.Head) -> None:
    """The repr has all attributes, with at most three decimals."""
    report = replace(diagnose(small_head), spacing_degrees=12.34567, azimuth_range=(-1 / 3, 2.0))
    text = repr(report)
    assert "spacing_degrees=12.346, azimuth_range=(-0.333, 2.0), " in text
    assert all(f"{name}=" in text for name in report.to_dict())
    assert not re.search(r"\.\d{4}", text)


def test_coverage_map_of_a_uniform_grid() -> None:
    """A lattice over the sphere has a density near 1, also at the poles."""
    density = coverage_map(ea.simulated_head(ea.Sphere().grid(4.0)))
    assert density.shape == (12, 30)
    assert 0.5 < np.median(density[0]) < 1.6
    assert density[1:-1].min() > 0.3


def test_coverage_map_has_left_on_the_left() -> None:
    """A direction at azimuth 90, elevation 80 is in the upper left quarter."""
    row, column = np.argwhere(coverage_map(ea.simulated_head([[90.0, 80.0]])))[0]
    assert (row, column) == (0, 7)


def test_cues_determine_the_direction() -> None:
    """Nearest neighbours on the paper's grid: the median error is below 3°, 3 % exceed 30°."""
    errors = nearest_neighbour_errors(ea.simulated_head(camil_directions()))
    assert len(errors) == 5400
    assert 0.5 < np.median(errors) < 3.0
    assert np.mean(errors > 30) < 0.03


def test_nearest_neighbour_search_allocates_one_table(rng: np.random.Generator) -> None:
    """The table of N/2 by N/2 distances exists once in memory."""
    n, layout = 3000, ea.CueLayout.low_ild()
    x = ea.Sphere().grid(3.0)[:n]
    head = Head("x", x, MeasuredCues(rng.normal(size=(n, layout.n_cues)), layout))
    tracemalloc.start()
    nearest_neighbour_errors(head, layout=layout)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.7 * (n / 2) ** 2 * 8


def test_nearest_neighbour_search_matches_a_loop(rng: np.random.Generator) -> None:
    """The fast search gives the result of a loop over all pairs."""
    n, layout = 41, ea.CueLayout.low_ild()
    x, y = ea.Sphere().grid(20.0)[:n], rng.normal(size=(n, layout.n_cues))
    head = Head("x", x, MeasuredCues(y, layout))
    order = np.random.default_rng(9).permutation(n)
    known, queries = order[: n // 2], order[n // 2 :]
    found = [known[np.argmin([np.linalg.norm(y[i] - y[k]) for k in known])] for i in queries]
    np.testing.assert_allclose(
        nearest_neighbour_errors(head, seed=9, layout=layout),
        great_circle_error(x[queries], x[found]),
        rtol=1e-9,
    )


def test_memory_is_bounded_for_many_directions() -> None:
    """The spectra and correlations of all directions are not in memory at the same time."""
    random = np.random.default_rng(4)
    x = np.column_stack([random.uniform(-180, 180, 9000), random.uniform(-80, 80, 9000)])
    head = Head("dense", x, ImpulseResponses(random.normal(size=(9000, 2, 64)), 48000.0))
    tracemalloc.start()
    report = diagnose(head)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.directions == 9000
    assert peak_bytes < 150e6  # 246 MB with all of them
