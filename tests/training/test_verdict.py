"""Tests of the verdict about an atlas."""

from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.cli.verdict_text import verdict_fields, verdict_lines
from earatlas.localization.learned_head import Accuracy
from earatlas.training.verdict import (
    AtlasVerdict,
    LimitationKind,
    Use,
    covered_fraction,
    directions_needed,
)

GOOD = Accuracy(100, 2.0, 3.0, 0.01, 2.0, 2.0)


@pytest.fixture
def good(atlas: ea.Atlas) -> ea.Atlas:
    """Return an atlas without limitations."""
    return replace(atlas, accuracy=GOOD)


def test_an_atlas_of_the_whole_sphere_is_good_for_everything(good: ea.Atlas) -> None:
    """There are no limitations, and the text has one line."""
    assert AtlasVerdict.of(good) == AtlasVerdict(tuple(Use), (), ())
    assert verdict_lines(good) == [f"good for: {', '.join(Use)}"]


@pytest.mark.parametrize(
    ("changes", "about", "kind", "not_for", "words"),
    [
        ({"accuracy": replace(GOOD, median_degrees=48.0)}, {"directions": 50},
         LimitationKind.LARGE_ERRORS, tuple(Use), "Measure about 340 directions"),
        ({"accuracy": replace(GOOD, beyond_30_share=0.4)}, {"directions": 700},
         LimitationKind.CONE_CONFUSIONS, (Use.ALL_DIRECTIONS,), "front and back"),
        ({"accuracy": None}, {"directions": 12},
         LimitationKind.UNTESTED, (), "Measure about 340 directions"),
        ({"reverberant_localizer": None}, {"room_obstacle": "is known by recordings of noise"},
         LimitationKind.NO_ROOM_MODEL, (Use.ROOMS, Use.STREAMS), "is known by recordings of noise"),
        ({}, {"covered_fraction": 0.3},
         LimitationKind.PARTIAL_COVERAGE, (Use.ALL_DIRECTIONS,), "evenly spaced all round"),
        ({}, {"largest_gap": [-64.5, -83.3, 41.9]},
         LimitationKind.GAP, (), "within 42° of one direction (64° right, 83° down, front)"),
        ({}, {"labels": "colatitude"},
         LimitationKind.LABELS, tuple(Use), "azimuth and colatitude"),
    ],
)  # fmt: skip
def test_limitations(
    good: ea.Atlas,
    changes: dict[str, object],
    about: dict[str, object],
    kind: LimitationKind,
    not_for: tuple[Use, ...],
    words: str,
) -> None:
    """Each limitation excludes its uses and says what to do."""
    limited = replace(good, about={**good.about, **about}, **changes)  # type: ignore[arg-type]
    verdict = AtlasVerdict.of(limited)
    assert [limitation.kind for limitation in verdict.limitations] == [kind]
    assert verdict.not_for == not_for
    assert words in verdict_lines(limited)[-1]
    assert verdict_fields(limited)["not_for"] == list(not_for)


def test_an_adapted_atlas_has_not_too_few_directions(good: ea.Atlas) -> None:
    """Its errors are not known, because they were measured before the adaptation."""
    about = {**good.about, "directions": 1250, "adaptation": {"segments": 20}}
    assert AtlasVerdict.of(replace(good, accuracy=None, about=about)).limitations == ()


@pytest.mark.parametrize(
    ("accuracy", "kinds"),
    [
        (replace(GOOD, median_degrees=11.0), []),
        (replace(GOOD, median_degrees=25.0), [LimitationKind.LARGE_ERRORS]),
        (replace(GOOD, beyond_30_share=0.4), [LimitationKind.CONE_CONFUSIONS]),
    ],
)
def test_a_population_is_compared_with_unmeasured_heads(
    accuracy: Accuracy, kinds: list[LimitationKind]
) -> None:
    """Errors of 11 degrees are usual for other heads, and more heads reduce larger ones."""
    people = replace(ea.people_atlas(), accuracy=accuracy)
    verdict = AtlasVerdict.of(people)
    found = [one for one in verdict.limitations if one.kind is not LimitationKind.GAP]
    assert [one.kind for one in found] == kinds
    text = " ".join(verdict_lines(people))
    assert ("Add heads to the 31" in text) == bool(kinds)
    assert "Check the recordings" not in text


def test_the_part_below_people_is_named() -> None:
    """The heads of people were not measured below, which their verdict says."""
    gaps = [x for x in AtlasVerdict.of(ea.people_atlas()).limitations if x.centre is not None]
    assert [gap.kind for gap in gaps] == [LimitationKind.GAP]
    assert gaps[0].centre is not None
    assert gaps[0].centre[1] < -60
    assert 30 < gaps[0].value < 45


def test_covered_fraction() -> None:
    """A hemisphere covers a little more than half of the sphere."""
    sphere = ea.Sphere()
    grid = sphere.grid(10.0)
    assert covered_fraction(sphere, grid, 10.0) == 1.0
    half = grid[np.abs(grid[:, 0]) < 90]
    assert 0.5 < covered_fraction(sphere, half, 10.0) < 0.68
    assert directions_needed(sphere, 0.5) < directions_needed(sphere, 1.0) == 340


def test_learning_stores_what_the_verdict_needs(small_head: ea.Head, cached_learning: None) -> None:
    """A part of the sphere with wrong labels, without rooms."""
    frontal = small_head.subset(np.abs(small_head.directions[:, 0]) < 60)
    wrong = replace(frontal, directions=frontal.directions + np.array([90.0, 0.0]))
    verdict = AtlasVerdict.of(ea.learn(wrong, rooms=False))
    kinds = {limitation.kind for limitation in verdict.limitations}
    expected = {"LABELS", "NO_ROOM_MODEL", "PARTIAL_COVERAGE"}
    assert {kind.name for kind in kinds} >= expected
    assert verdict.good_for == ()


def test_an_unknown_reading_of_labels_is_ignored(good: ea.Atlas) -> None:
    """An atlas of a later version may name a reading that this version does not know."""
    later = replace(good, about={**good.about, "labels": "quaternions"})
    assert AtlasVerdict.of(later).limitations == ()
