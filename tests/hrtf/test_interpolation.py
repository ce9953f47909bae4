"""Responses between measured directions: known cases, held-out directions, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import InputError
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interpolation import ResponsesBetween, check_near
from earatlas.types import Array

RATE = 48_000


def pulses(directions: Array, taps: int = 256) -> Array:
    """Responses (N, 2, taps) of a head that is only a delay and a gain, linear in azimuth."""
    azimuth = directions[:, :1]
    late = np.concatenate([-azimuth, azimuth], axis=1) / 4 + 60  # samples: 5 µs a degree
    level_db = np.concatenate([azimuth, -azimuth], axis=1) / 10
    f = np.arange(taps // 2 + 1) / taps
    low = np.exp(-((f / 0.3) ** 8))  # a pulse without sound at half the rate
    spectra = 10 ** (level_db[..., None] / 20) * low * np.exp(-2j * np.pi * f * late[..., None])
    return np.fft.irfft(spectra, taps)


def grid_head(step: float) -> Head:
    """That head, measured on a grid."""
    azimuths, elevations = np.meshgrid(np.arange(-60, 61, step), np.arange(-20, 21, step))
    directions = np.column_stack([azimuths.ravel(), elevations.ravel()])
    return Head("pulses", directions, ImpulseResponses(pulses(directions), RATE))


def error_db(true: Array, found: Array) -> Array:
    """Signal over error of responses (G, 2, taps), in dB."""
    n = min(true.shape[-1], found.shape[-1])
    wrong = ((true[..., :n] - found[..., :n]) ** 2).sum(axis=(1, 2))
    ratios: Array = 10 * np.log10((true**2).sum(axis=(1, 2)) / wrong)
    return ratios


def test_delays_and_gains_are_interpolated() -> None:
    """Pulses that are 20 µs apart: between them is one pulse, not two halves."""
    head = grid_head(4.0)
    wished = np.array([[2.0, 0.0], [-13.3, 1.9], [41.0, -7.7]])
    between = ResponsesBetween.of(head, RATE).at(wished)
    ratio = error_db(pulses(wished), between)
    known = head.responses().samples
    nearest = known[ea.Sphere().nearest(head.directions, wished)]
    sums = 0.5 * (known[(head.directions == [0, 0]).all(axis=1)][0]
                  + known[(head.directions == [4, 0]).all(axis=1)][0])  # fmt: skip
    assert ratio.min() > 25
    assert ratio.min() > error_db(pulses(wished), nearest).max() + 10
    assert ratio[0] > error_db(pulses(wished[:1]), sums[None])[0] + 10


def test_left_out_directions_of_the_simulated_head(atlas_head: ea.Head) -> None:
    """Directions 7.7 degrees apart: far better than the nearest one, and not the truth itself."""
    wished = np.array([[33.0, 14.0], [-71.0, -22.0], [150.0, 40.0], [5.0, 3.0]])
    true = ea.simulated_head(wished).responses().samples
    known = atlas_head.responses()
    found = ResponsesBetween.of(atlas_head, int(known.rate)).at(wished)
    nearest = known.samples[ea.Sphere().nearest(atlas_head.directions, wished)]
    assert 15 < error_db(true, found).mean() < 60
    gain = error_db(true, found) - error_db(true, nearest)
    assert gain.min() > 2
    assert gain.mean() > 6


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # of the KU100
def test_left_out_directions_of_a_measured_head(data: Path) -> None:
    """The KU100 without every 20th direction."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    out = np.arange(len(head)) % 20 == 0
    known, wished = head.subset(~out), head.subset(out)
    found = ResponsesBetween.of(known, RATE).at(wished.directions)
    true = wished.responses().samples
    nearest = known.responses().samples[ea.Sphere().nearest(known.directions, wished.directions)]
    assert 18 < error_db(true, found).mean() < 30
    assert error_db(true, nearest).mean() < 10


def test_another_rate_is_the_same_response(atlas_head: ea.Head) -> None:
    """At 44.1 kHz, levels below 16 kHz are those at 48 kHz, but for one gain."""
    wished = np.array([[33.0, 14.0]])
    f = np.arange(200, 16_000, 100.0)
    levels = []
    for rate in (44_100, 48_000):
        h = ResponsesBetween.of(atlas_head, rate).at(wished)[0]
        turn = np.exp(-2j * np.pi * np.outer(np.arange(h.shape[1]), f) / rate)
        levels.append(20 * np.log10(np.abs(h @ turn)))
    difference = levels[0] - levels[1]
    assert np.abs(difference - np.median(difference)).max() < 0.3


def test_what_lies_between_nothing_is_refused() -> None:
    """Too few directions, and those that the head does not cover."""
    head = grid_head(10.0)
    with pytest.raises(InputError, match=r"head must have at least 3 directions .*, got 2"):
        ResponsesBetween.of(head.subset(np.arange(2)), RATE)
    check_near(head, np.array([[55.0, 0.0]]))
    with pytest.raises(InputError, match=r"path must be near measured ones, got \[90.0, 0.0\]"):
        check_near(head, np.array([[55.0, 0.0], [90.0, 0.0]]), "path")
