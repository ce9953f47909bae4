"""Tests of the plausibility of the directions of a head."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.hrtf.diagnosis import diagnose
from earatlas.hrtf.label_plausibility import LabelReading, label_fit
from earatlas.types import Array


def relabelled(head: ea.Head, directions: Array) -> ea.Head:
    """Return the same responses with other directions."""
    return replace(head, directions=directions)


def upper(head: ea.Head) -> ea.Head:
    """Return the directions whose colatitude is a valid elevation."""
    return head.subset(head.directions[:, 1] >= 0)


def frontal(head: ea.Head) -> ea.Head:
    """Return the directions whose azimuth is a valid elevation."""
    return head.subset(np.abs(head.directions[:, 0]) <= 90)


@pytest.mark.parametrize("name", ["simulated", "ku100", "cipic_021", "leipzig_kemar", "hats"])
def test_right_and_wrong_labels(
    name: str, small_head: ea.Head, request: pytest.FixtureRequest
) -> None:
    """Degrees are plausible; radians, colatitudes and swapped columns are recognized."""
    head = small_head
    if name != "simulated":
        data: Path = request.getfixturevalue("data")
        with warnings.catch_warnings():  # of files that do not pass SOFA verification
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            head = ea.read_sofa(data / "heads" / f"{name}.sofa")
    assert label_fit(head).plausible
    assert label_fit(head).explained > 0.95
    radians = relabelled(head, np.radians(head.directions))
    assert label_fit(radians).reading is LabelReading.RADIANS
    if name == "hats":  # one elevation only
        return
    half = upper(head)
    polar = relabelled(half, np.stack([half.directions[:, 0], 90 - half.directions[:, 1]], axis=1))
    assert label_fit(polar).reading is LabelReading.COLATITUDE
    front = frontal(head)
    assert label_fit(relabelled(front, front.directions[:, ::-1])).reading is LabelReading.SWAPPED


def test_other_wrong_labels_have_no_reading(small_head: ea.Head) -> None:
    """A rotated coordinate system is found, and so are directions in another order."""
    turned = relabelled(small_head, small_head.directions + np.array([90.0, 0.0]))
    assert label_fit(turned).reading is LabelReading.UNKNOWN
    order = np.random.default_rng(3).permutation(len(small_head))
    shuffled = label_fit(relabelled(small_head, small_head.directions[order]))
    assert shuffled.reading is LabelReading.UNKNOWN
    assert shuffled.explained < 0.2


def test_cues_without_responses_are_tested_by_level(small_head: ea.Head) -> None:
    """A head that is known by noise recordings has level differences."""
    from earatlas.hrtf.head import MeasuredCues

    layout = ea.CueLayout()
    head = replace(small_head, ears=MeasuredCues(small_head.cues(layout), layout))
    assert label_fit(head).plausible
    turned = relabelled(head, head.directions + np.array([90.0, 0.0]))
    assert not label_fit(turned).plausible


def test_heads_near_the_median_plane_are_not_tested() -> None:
    """Without lateral directions there is nothing to explain."""
    head = ea.simulated_head([[0.0, e] for e in range(-40, 90, 10)])
    fit = label_fit(head)
    assert fit.plausible
    assert np.isnan(fit.explained)


def test_diagnosis_warns_of_wrong_labels(small_head: ea.Head) -> None:
    """The warning names the reading that fits; converting the labels as it says removes it."""
    radians = relabelled(small_head, np.radians(small_head.directions))
    (warning,) = [w for w in diagnose(radians).warnings if "read as" in w]
    assert "azimuth and elevation in radians" in warning
    converted = relabelled(radians, np.degrees(radians.directions))
    assert not any("read as" in w for w in diagnose(converted).warnings)
