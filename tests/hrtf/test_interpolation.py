"""Interpolated responses: analytic cases, held-out directions, and invalid input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import InputError
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interpolation import InterpolatedResponses, check_covered
from earatlas.types import Array

RATE = 48_000


def pulses(directions: Array, taps: int = 256) -> Array:
    """Return responses (N, 2, taps) that are a delay and a gain, linear in azimuth."""
    azimuth = directions[:, :1]
    delay = np.concatenate([-azimuth, azimuth], axis=1) / 4 + 60  # samples: 5 µs per degree
    level_db = np.concatenate([azimuth, -azimuth], axis=1) / 10
    f = np.arange(taps // 2 + 1) / taps
    low = np.exp(-((f / 0.3) ** 8))  # no energy at half the sampling rate
    spectra = 10 ** (level_db[..., None] / 20) * low * np.exp(-2j * np.pi * f * delay[..., None])
    return np.fft.irfft(spectra, taps)


def grid_head(step: float) -> Head:
    """Return that head, measured on a grid."""
    azimuths, elevations = np.meshgrid(np.arange(-60, 61, step), np.arange(-20, 21, step))
    directions = np.column_stack([azimuths.ravel(), elevations.ravel()])
    return Head("pulses", directions, ImpulseResponses(pulses(directions), RATE))


def signal_to_error_db(true: Array, found: Array) -> Array:
    """Return the signal-to-error ratio of responses (G, 2, taps) in dB."""
    n = min(true.shape[-1], found.shape[-1])
    error = ((true[..., :n] - found[..., :n]) ** 2).sum(axis=(1, 2))
    ratios: Array = 10 * np.log10((true**2).sum(axis=(1, 2)) / error)
    return ratios


def test_delays_and_gains_are_interpolated() -> None:
    """Between pulses that are 20 µs apart there is one pulse, not two halves."""
    head = grid_head(4.0)
    directions = np.array([[2.0, 0.0], [-13.3, 1.9], [41.0, -7.7]])
    between = InterpolatedResponses.of(head, RATE).at(directions)
    ratio = signal_to_error_db(pulses(directions), between)
    known = head.responses().samples
    nearest = known[ea.Sphere().nearest(head.directions, directions)]
    sums = 0.5 * (known[(head.directions == [0, 0]).all(axis=1)][0]
                  + known[(head.directions == [4, 0]).all(axis=1)][0])  # fmt: skip
    assert ratio.min() > 25
    assert ratio.min() > signal_to_error_db(pulses(directions), nearest).max() + 10
    assert ratio[0] > signal_to_error_db(pulses(directions[:1]), sums[None])[0] + 10


def test_held_out_directions_of_the_simulated_head(atlas_head: ea.Head) -> None:
    """At a spacing of 7.7 degrees, interpolation is much better than the nearest neighbour."""
    directions = np.array([[33.0, 14.0], [-71.0, -22.0], [150.0, 40.0], [5.0, 3.0]])
    true = ea.simulated_head(directions).responses().samples
    known = atlas_head.responses()
    found = InterpolatedResponses.of(atlas_head, int(known.rate)).at(directions)
    nearest = known.samples[ea.Sphere().nearest(atlas_head.directions, directions)]
    assert 15 < signal_to_error_db(true, found).mean() < 60
    gain = signal_to_error_db(true, found) - signal_to_error_db(true, nearest)
    assert gain.min() > 2
    assert gain.mean() > 6


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # warning for the KU100
def test_held_out_directions_of_a_measured_head(data: Path) -> None:
    """Held-out directions of the KU100 are far more accurate than nearest neighbours."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    held_out = np.arange(len(head)) % 20 == 0
    known, rest = head.subset(~held_out), head.subset(held_out)
    found = InterpolatedResponses.of(known, RATE).at(rest.directions)
    true = rest.responses().samples
    nearest = known.responses().samples[ea.Sphere().nearest(known.directions, rest.directions)]
    assert 18 < signal_to_error_db(true, found).mean() < 30
    assert signal_to_error_db(true, nearest).mean() < 10


def test_responses_at_another_rate(atlas_head: ea.Head) -> None:
    """At 44.1 kHz, levels below 16 kHz equal those at 48 kHz up to a common gain."""
    wanted = np.array([[33.0, 14.0]])
    f = np.arange(200, 16_000, 100.0)
    levels = []
    for rate in (44_100, 48_000):
        h = InterpolatedResponses.of(atlas_head, rate).at(wanted)[0]
        phase = np.exp(-2j * np.pi * np.outer(np.arange(h.shape[1]), f) / rate)
        levels.append(20 * np.log10(np.abs(h @ phase)))
    difference = levels[0] - levels[1]
    assert np.abs(difference - np.median(difference)).max() < 0.3


def test_directions_that_cannot_be_interpolated() -> None:
    """Too few directions of a head, and directions that it does not cover, are errors."""
    head = grid_head(10.0)
    with pytest.raises(InputError, match=r"head must have at least 3 directions .*, got 2"):
        InterpolatedResponses.of(head.subset(np.arange(2)), RATE)
    check_covered(head, np.array([[55.0, 0.0]]))
    with pytest.raises(InputError, match=r"path must be near measured ones, got \[90.0, 0.0\]"):
        check_covered(head, np.array([[55.0, 0.0], [90.0, 0.0]]), "path")
