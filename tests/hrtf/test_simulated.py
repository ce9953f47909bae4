"""Simulated head: comparison with slow formulas, symmetries, and its cues."""

import cmath
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.special import eval_legendre, hankel2, jv

from earatlas.errors import InputError
from earatlas.hrtf.simulated import (
    LEFT_EAR,
    RIGHT_EAR,
    SPEED_OF_SOUND,
    Ear,
    Scatterer,
    SimulatedHeadSettings,
    camil_directions,
    simulated_responses,
    sphere_transfer,
)
from earatlas.types import Array, Spectra

RATE = 48_000
HEAD_RADIUS_M = SimulatedHeadSettings().radius_m
BARE_EARS = (Ear(90.0, 0.0), Ear(-90.0, 0.0))
# Responses have 240 samples, so spectra at these frequencies are exact. All are below the fade at
# 0.8 times half the sampling rate.
BIN_HZ = np.array([200.0, 1000.0, 3400.0, 8000.0, 19_000.0])


def unit(directions: ArrayLike) -> Array:
    """Convert degrees to unit vectors (N, 3): x front, y left, z up."""
    azimuth, elevation = np.deg2rad(np.asarray(directions, dtype=float)).T
    return np.stack(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ],
        axis=-1,
    )


def spectra(responses: Array, frequencies: ArrayLike, rate: float = RATE) -> Spectra:
    """Return transfer functions (N, 2, F) at any frequencies in Hz."""
    angles = 2.0 * np.pi * np.outer(np.arange(responses.shape[-1]) / rate, np.asarray(frequencies))
    flat = responses.reshape(-1, responses.shape[-1])
    values = flat @ np.cos(angles) - 1j * (flat @ np.sin(angles))
    return values.reshape(*responses.shape[:-1], -1)


def cues(directions: ArrayLike, **options: Any) -> Array:
    """Return cues (N, 730): ILD of 512 bins in dB, then cosine and sine of 109 phases."""
    left, right = np.moveaxis(
        spectra(simulated_responses(directions, **options), 15.625 * np.arange(1, 513)), 1, 0
    )
    ratio = right / left
    phase = (ratio / np.abs(ratio))[:, 19:128]
    return np.concatenate([20.0 * np.log10(np.abs(ratio)), phase.real, phase.imag], axis=1)


def nearest_errors(known: tuple[Array, Array], queries: tuple[Array, Array]) -> Array:
    """Return great-circle errors in degrees of a nearest-neighbour search in cue space.

    `known` and `queries` are (directions, cues) pairs.
    """
    (known_directions, a), (query_directions, b) = known, queries
    nearest = ((a**2).sum(axis=1) - 2.0 * b @ a.T).argmin(axis=1)
    cosines = (unit(known_directions)[nearest] * unit(query_directions)).sum(axis=1)
    errors: Array = np.rad2deg(np.arccos(np.clip(cosines, -1.0, 1.0)))
    return errors


def fibonacci_lattice(count: int) -> Array:
    """Return directions that cover the sphere uniformly."""
    i = np.arange(count)
    elevation = np.rad2deg(np.arcsin(1.0 - (2.0 * i + 1.0) / count))
    return np.stack([(i * 180.0 * (3.0 - 5.0**0.5)) % 360.0 - 180.0, elevation], axis=1)


def interaural_delay_ms(direction: Sequence[float], **options: Any) -> float:
    """Return the delay of the right ear in ms: the peak of the cross-correlation."""
    left, right = np.fft.rfft(simulated_responses([direction], **options)[0], 1024)
    correlation = np.fft.fftshift(np.fft.irfft(right * left.conj(), 16 * 1024))
    return 1e3 * (correlation.argmax() - 8 * 1024) / (16 * RATE)


def slow_sphere(cosine: float, x: float) -> complex:
    """Sum incident and scattered wave on the sphere, from the boundary condition."""
    total = 0.0j
    for m in range(math.ceil(1.5 * x) + 25):
        scale = math.sqrt(math.pi / (2.0 * x))
        j, j_next = scale * jv(m + 0.5, x), scale * jv(m + 1.5, x)
        h, h_next = scale * hankel2(m + 0.5, x), scale * hankel2(m + 1.5, x)
        j_slope, h_slope = m / x * j - j_next, m / x * h - h_next
        wave = 1j**m * (2 * m + 1) * eval_legendre(m, cosine)
        total += wave * (j - j_slope / h_slope * h)
    return total


def test_sphere_transfer_matches_the_series() -> None:
    """The matrix product equals the sum of incident and scattered wave, term by term."""
    cosines = np.array([1.0, 0.61, 0.0, -0.35, -0.93, -1.0])
    x = np.array([0.05, 0.7, 1.3, 6.1, 17.9, 38.4])
    frequencies = x * SPEED_OF_SOUND / (2.0 * np.pi * HEAD_RADIUS_M)
    slow = np.array([[slow_sphere(c, value) for value in x] for c in cosines])
    np.testing.assert_allclose(sphere_transfer(cosines, frequencies), slow, rtol=1e-9)


def test_sphere_at_low_frequency() -> None:
    """H = 1 + 1.5 j x cos(incidence) + O(x²): the sphere increases delays by half."""
    cosines = np.array([1.0, 0.4, -0.8])
    x = 1e-3
    low = x * SPEED_OF_SOUND / (2.0 * np.pi * HEAD_RADIUS_M)
    # The high frequency needs orders for which y_m overflows at low frequencies.
    frequencies = np.array([0.0, 1e-4 * low, low, 90_000.0])
    transfer = sphere_transfer(cosines, frequencies)
    assert np.isfinite(transfer).all()
    np.testing.assert_array_equal(transfer[:, 0], 1.0)
    np.testing.assert_allclose(transfer[:, 1], 1.0, atol=1e-6)
    np.testing.assert_allclose(transfer[:, 2], 1.0 + 1.5j * x * cosines, atol=2.0 * x**2)


def test_pressure_doubles_on_the_facing_side() -> None:
    """At high frequencies the facing point has +6 dB, and the opposite one is in shadow."""
    facing, side, shadow = np.abs(sphere_transfer(np.array([1.0, 0.0, -0.9]), np.array([20e3])))
    assert facing == pytest.approx(2.0, rel=0.03)
    assert shadow < 0.1 * facing
    assert shadow < side < facing


def test_head_without_scatterers_is_a_delayed_sphere() -> None:
    """Each ear has the transfer function of the sphere with a delay of 1 ms."""
    directions = [[37.0, 21.0], [-160.0, -48.0], [98.0, -10.0]]
    ears = (Ear(98.0, -10.0), Ear(-104.0, -5.0))
    found = spectra(simulated_responses(directions, ears=ears), BIN_HZ)
    for channel, ear in enumerate([[98.0, -10.0], [-104.0, -5.0]]):
        expected = sphere_transfer(unit(directions) @ unit([ear])[0], BIN_HZ)
        expected = expected * np.exp(-2j * np.pi * BIN_HZ * 1e-3)
        np.testing.assert_allclose(found[:, channel], expected, rtol=1e-9)


def test_echoes_of_the_scatterers() -> None:
    """Each scatterer adds the sound that reaches the ear through its position."""
    directions = [[20.0, 35.0], [-130.0, -60.0], [75.0, 5.0]]
    scatterers = (
        Scatterer((-0.02, 0.01, 0.005), gain=0.5, radius_m=0.02),
        Scatterer((0.01, 0.05, -0.14), gain=-0.3, radius_m=0.06),
    )
    bare, full = Ear(95.0, -7.0), Ear(95.0, -7.0, scatterers)
    found = spectra(simulated_responses(directions, ears=(full, bare)), BIN_HZ)
    alone = spectra(simulated_responses(directions, ears=(bare, full)), BIN_HZ)
    at_ear = HEAD_RADIUS_M * unit([[95.0, -7.0]])[0]
    for n, s in enumerate(unit(directions)):
        for i, frequency in enumerate(BIN_HZ):
            total = 1.0
            for scatterer in scatterers:
                p = np.array(scatterer.offset_m)
                reach = math.sqrt(p @ p)
                detour = (-(at_ear + p) @ s + reach - (-at_ear @ s)) / SPEED_OF_SOUND
                corner = SPEED_OF_SOUND / (2.0 * math.pi * scatterer.radius_m)
                high_pass = 1j * frequency / (corner + 1j * frequency)
                gain = scatterer.gain * (1.0 - math.cos(math.acos(p @ s / reach))) / 2.0
                total += gain * high_pass * cmath.exp(-2j * math.pi * frequency * detour)
            assert found[n, 0, i] / alone[n, 0, i] == pytest.approx(total, rel=1e-9)
            assert alone[n, 1, i] / found[n, 1, i] == pytest.approx(total, rel=1e-9)


def test_near_ear_is_earlier_and_louder() -> None:
    """A lateral source reaches the near ear about 0.65 ms earlier, and louder."""
    for azimuth, sign in ((90.0, 1.0), (-90.0, -1.0)):
        assert 0.55 < sign * interaural_delay_ms([azimuth, 0.0]) < 0.75
        left, right = (simulated_responses([[azimuth, 0.0]])[0] ** 2).sum(axis=1)
        assert sign * 10.0 * math.log10(left / right) > 3.0
    assert abs(interaural_delay_ms([0.0, 0.0])) < 0.1


@pytest.mark.parametrize("azimuth", [20.0, 50.0, 90.0])
def test_delay_follows_woodworth(azimuth: float) -> None:
    """The path difference is a (θ + sin θ) at high frequencies and 3 a sin θ at low ones."""
    theta = math.radians(azimuth)
    travel_ms = 1e3 * HEAD_RADIUS_M / SPEED_OF_SOUND
    woodworth = travel_ms * (theta + math.sin(theta))
    assert interaural_delay_ms([azimuth, 0.0], ears=BARE_EARS) == pytest.approx(woodworth, rel=0.03)
    low = np.array([50.0])
    left, right = spectra(simulated_responses([[azimuth, 0.0]], ears=BARE_EARS), low)[0, :, 0]
    delay_ms = -np.angle(right / left) / (2.0 * np.pi * 50.0) * 1e3
    assert delay_ms == pytest.approx(3.0 * travel_ms * math.sin(theta), rel=0.01)


def test_responses_are_complete() -> None:
    """There is no energy before the sound arrives, and no wrap-around at the end."""
    energy = simulated_responses(fibonacci_lattice(400)) ** 2
    total = energy.sum(axis=-1)
    assert (energy[:, :, :15].sum(axis=-1) / total).max() < 1e-5
    assert (energy[:, :, 192:].sum(axis=-1) / total).max() < 10**-6.5
    np.testing.assert_array_equal(energy[:, :, 240:], 0.0)


def test_scatterers_resolve_mirrored_directions() -> None:
    """Only scatterers distinguish front from back and up from down."""
    directions = np.array([[30.0, 20.0], [-70.0, 45.0], [10.0, -35.0], [-15.0, 25.0]])
    behind = np.stack([180.0 - directions[:, 0], directions[:, 1]], axis=1)
    below = directions * [1.0, -1.0]
    bare = cues(directions, ears=BARE_EARS)
    full = cues(directions)
    for mirrored in (behind, below):
        np.testing.assert_allclose(cues(mirrored, ears=BARE_EARS), bare, atol=1e-8)
        difference_db = (cues(mirrored) - full)[:, :512]
        assert np.sqrt((difference_db**2).mean(axis=1)).min() > 1.5


def test_mirrored_ears_swap_the_channels() -> None:
    """A mirrored head with mirrored directions has swapped channels."""

    def mirrored(ear: Ear) -> Ear:
        scatterers = tuple(
            dataclasses.replace(one, offset_m=(one.offset_m[0], -one.offset_m[1], one.offset_m[2]))
            for one in ear.scatterers
        )
        return Ear(-ear.azimuth_degrees, ear.elevation_degrees, scatterers)

    directions = np.array([[33.0, 12.0], [-140.0, -50.0], [5.0, 80.0]])
    swapped = simulated_responses(
        directions * [-1.0, 1.0], ears=(mirrored(RIGHT_EAR), mirrored(LEFT_EAR))
    )
    np.testing.assert_allclose(swapped[:, ::-1], simulated_responses(directions), atol=1e-12)


def test_responses_are_smooth_at_the_seam_and_the_poles() -> None:
    """-180 equals 180, a pole has the same response at all azimuths, and both are smooth."""
    same = simulated_responses([[180.0, 15.0], [-180.0, 15.0]])
    np.testing.assert_allclose(same[1:], same[:1], atol=1e-12)
    for end in (90.0, -90.0):
        same = simulated_responses([[0.0, end], [77.0, end], [-123.0, end]])
        np.testing.assert_allclose(same[1:], same[:1].repeat(2, axis=0), atol=1e-12)
    # With a kink or a jump, second differences would be as large as first differences.
    seam = [[179.6, 15.0], [179.8, 15.0], [180.0, 15.0], [-179.8, 15.0], [-179.6, 15.0]]
    pole = [[40.0, 89.6], [40.0, 89.8], [0.0, 90.0], [-140.0, 89.8], [-140.0, 89.6]]
    for path in (seam, pole):
        first = np.diff(simulated_responses(path), axis=0)
        second = np.diff(first, axis=0)
        assert np.linalg.norm(second, axis=(1, 2)).max() < 0.2 * np.linalg.norm(first[0])


def test_responses_are_deterministic() -> None:
    """Two calls agree exactly; other directions and more taps change nothing."""
    directions = fibonacci_lattice(50)
    first = simulated_responses(directions)
    np.testing.assert_array_equal(simulated_responses(directions), first)
    np.testing.assert_allclose(simulated_responses(directions[17:18]), first[17:18], atol=1e-13)
    longer = simulated_responses(directions, taps=700)
    np.testing.assert_array_equal(longer[:, :, :256], first)
    np.testing.assert_array_equal(longer[:, :, 256:], 0.0)


# At the lowest rate the fade begins directly above the cues and has the longest ringing.
@pytest.mark.parametrize(("rate", "atol"), [(20_000, 0.03), (44_100, 0.002), (96_000, 0.002)])
def test_spectra_do_not_depend_on_the_rate(rate: int, atol: float) -> None:
    """Up to 8 kHz, the spectra of both ears agree at all sampling rates."""
    directions, f = fibonacci_lattice(40), 15.625 * np.arange(1, 513)
    expected = spectra(simulated_responses(directions), f)
    found = spectra(simulated_responses(directions, rate=rate, taps=480), f, rate)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=atol)


def test_camil_grid() -> None:
    """The grid has 180 azimuths in (-180, 180] by 60 elevations, without duplicates."""
    grid = camil_directions()
    assert grid.shape == (10_800, 2)
    assert len(np.unique(grid, axis=0)) == 10_800
    np.testing.assert_array_equal(np.unique(grid[:, 0]), np.arange(-178, 181, 2))
    np.testing.assert_array_equal(np.unique(grid[:, 1]), np.arange(-59, 60, 2))


def test_cues_are_plausible() -> None:
    """The ILD is within 30 dB, a few dB on the median plane, and similar for neighbours."""
    ild = cues(fibonacci_lattice(1000))[:, :512]
    assert 20.0 < np.abs(ild).max() < 30.0
    elevations = np.arange(-60.0, 91.0, 5.0)
    plane = np.stack([np.zeros_like(elevations), elevations], axis=1)
    assert 2.0 < np.sqrt((cues(plane)[:, :512] ** 2).mean()) < 5.0
    meridian = np.stack([np.full(60, 40.0), np.arange(-59.0, 60.0, 2.0)], axis=1)
    circle = np.stack([np.arange(-180.0, 180.0, 2.0), np.full(180, 10.0)], axis=1)
    for path in (meridian, circle):
        steps = np.diff(cues(path)[:, :512], axis=0)
        assert np.sqrt((steps**2).mean()) < 1.0
        assert np.abs(steps).max() < 8.0


def test_nearest_cues_find_the_direction_on_the_papers_grid() -> None:
    """Half of the grid locates the other half, but not for a bare sphere."""
    shuffled = np.random.default_rng(3).permutation(camil_directions())
    known, queries = shuffled[:5400], shuffled[5400:6000]
    errors = nearest_errors((known, cues(known)), (queries, cues(queries)))
    assert np.median(errors) < 3.0
    assert (errors > 30.0).mean() < 0.005
    # The halves have no common direction, and the closest pair is 1.03 degrees apart.
    assert errors.min() > 1.0
    some = known[:1500]
    bare = nearest_errors(
        (some, cues(some, ears=BARE_EARS)), (queries, cues(queries, ears=BARE_EARS))
    )
    assert np.median(bare) > 10.0
    assert (bare > 30.0).mean() > 0.3


def test_nearest_cues_find_the_direction_on_the_sphere() -> None:
    """A lattice locates random directions, and half of the lattice locates the other half."""
    lattice = fibonacci_lattice(2578)
    lattice_cues = cues(lattice)
    generator = np.random.default_rng(4)
    azimuths = generator.uniform(-180.0, 180.0, 400)
    elevations = np.rad2deg(np.arcsin(generator.uniform(-1.0, 1.0, 400)))
    queries = np.stack([azimuths, elevations], axis=1)
    errors = nearest_errors((lattice, lattice_cues), (queries, cues(queries)))
    assert 0.1 < np.median(errors) < 3.0
    assert (errors > 30.0).mean() < 0.005
    # In half of the lattice, the median distance to the nearest direction is 3.8 degrees.
    known, rest = np.split(generator.permutation(len(lattice)), 2)
    errors = nearest_errors(
        (lattice[known], lattice_cues[known]), (lattice[rest], lattice_cues[rest])
    )
    assert 3.0 < np.median(errors) < 4.5
    assert (errors > 30.0).mean() < 0.015


@pytest.mark.parametrize(
    ("directions", "message"),
    [
        ([10.0, 20.0], r"must be an array of shape \(N, 2\).*got shape \(2,\)\. Give one"),
        (np.zeros((4, 3)), r"must be an array of shape \(N, 2\).*got shape \(4, 3\)\. Give one"),
        ([[0.0, 0.0], [np.nan, 5.0]], r"directions must be finite, got \[nan, 5.0\] in row 1\."),
        ([[0.0, np.inf]], r"directions must be finite, got \[0.0, inf\] in row 0\."),
        ([[0.0, 0.0], [10.0, -95.0]], r"from -90 to 90 degrees, got -95 in row 1\. Check the"),
        ([[0.0, 0.0], [361.0, 5.0]], r"from -360 to 360 degrees, got 361 in row 1\. Check the"),
    ],
)
def test_invalid_directions_are_rejected(directions: ArrayLike, message: str) -> None:
    """The message states the rule, the value and the remedy."""
    with pytest.raises(InputError, match=message):
        simulated_responses(directions)


def test_invalid_sizes_are_rejected_and_remedies_work() -> None:
    """A low rate, too few taps, and a scatterer at the ear are errors with a remedy."""
    with pytest.raises(InputError, match=r"rate must be at least 20000 Hz.*got 16000\. Use 48000"):
        simulated_responses([[0.0, 0.0]], rate=16_000)
    with pytest.raises(
        InputError, match=r"taps must be at least 480 at 96000 Hz \(5 ms\), got 256"
    ):
        simulated_responses([[0.0, 0.0]], rate=96_000)
    assert simulated_responses([[0.0, 0.0]], rate=96_000, taps=480).shape == (1, 2, 480)
    with pytest.raises(InputError, match=r"offset_m must be away from the ear, got \(0.0, 0.0"):
        Scatterer((0.0, 0.0, 0.0), gain=0.3, radius_m=0.02)
