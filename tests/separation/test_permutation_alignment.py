"""Which source is which: the order of two sources is the same at all frequencies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from earatlas.separation.demixing import permutation_alignment
from earatlas.types import Array

HERTZ = 15.625 * np.arange(1.0, 513.0)


def gain_of(alike: Array, sure: Array, s: Array) -> float:
    """J(s) as printed, a loop an index; a band's tie to itself never changes."""
    n = len(sure)
    ties = sum(s[i] * s[j] * alike[i, j] for i in range(n) for j in range(n) if i != j)
    return float(ties + sum(s[i] * sure[i] for i in range(n)))


def two_voices(frames: int = 120, seed: int = 0) -> Array:
    """Powers (2, F, T): each voice has an envelope that drifts slowly over frequency."""
    rng = np.random.default_rng(seed)
    knots = rng.normal(size=(2, 5, frames))
    place = np.log2(1 + HERTZ / 1000)
    weights = np.maximum(1 - np.abs(place[:, None] - np.linspace(0, place[-1], 5)), 0)
    envelopes = np.einsum("fk,mkt->mft", weights, knots)
    powers: Array = np.exp(2 * envelopes) * rng.exponential(size=(2, len(HERTZ), frames))
    return powers


@pytest.mark.parametrize("seed", range(20))
def test_no_run_of_flips_is_better(seed: int) -> None:
    """The answer is a summit for every run of neighbours, and no lower than the start."""
    rng = np.random.default_rng(seed)
    n = 7
    root = rng.normal(size=(n, 3))
    alike, sure = root @ root.T, rng.normal(size=n)
    s = permutation_alignment._best_order(alike, sure)
    reached = gain_of(alike, sure, s)
    assert reached >= gain_of(alike, sure, np.ones(n)) - 1e-9
    for i, j in product(range(n), range(1, n + 1)):
        if i < j:
            other = s.copy()
            other[i:j] *= -1
            assert gain_of(alike, sure, other) <= reached + 1e-9


def test_the_best_of_all_orders() -> None:
    """Where bands agree but for one stretch, that stretch is found: the best of all 2^n."""
    true = np.array([1, 1, -1, -1, -1, 1, 1, 1.0])
    alike = np.outer(true, true) * np.exp(-np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    sure = 0.1 * np.ones(8)
    orders = [np.array(s) for s in product((1.0, -1.0), repeat=8)]
    best = max(orders, key=lambda s: gain_of(alike, sure, s))
    np.testing.assert_array_equal(permutation_alignment._best_order(alike, sure), best)
    np.testing.assert_array_equal(best, true)


@pytest.mark.parametrize("stretch", [slice(130, 512), slice(200, 260), slice(0, 20)])
def test_an_exchanged_stretch_is_found(stretch: slice) -> None:
    """High, middle or low: powers and masks are exchanged there, and masks are unsure there."""
    powers = two_voices()
    masks = powers / powers.sum(axis=0)
    powers[:, stretch] = powers[::-1, stretch]
    masks[:, stretch] = 0.5 + 0.1 * (masks[::-1, stretch] - 0.5)
    true = np.zeros(512, dtype=bool)
    true[stretch] = True
    found = permutation_alignment.exchanged(powers, masks, HERTZ)
    assert np.mean(found == true) > 0.97


def test_fine_ties_find_a_harmonic_between_two_that_are_right() -> None:
    """A bin in three of 4 Hz is exchanged below 400 Hz: bands of 8 Hz hold two or three."""
    powers = two_voices()
    masks = np.full_like(powers, 0.5)
    hertz = 3.90625 * np.arange(1.0, len(HERTZ) + 1)
    true = (np.arange(len(hertz)) % 3 == 1) & (hertz > 100) & (hertz < 400)
    powers[:, true] = powers[::-1, true]
    fine = permutation_alignment.exchanged(powers, masks, hertz, ties=permutation_alignment.FINE)
    coarse = permutation_alignment.exchanged(powers, masks, hertz)
    right = [
        float(np.mean(((found ^ found[0]) == true)[(hertz > 100) & (hertz < 400)]))
        for found in (fine, coarse)
    ]
    assert right[0] > 0.8 > right[1]


def test_far_bands_tell_the_order_across_a_stretch_that_tells_nothing() -> None:
    """Low bands are exchanged, and all up to 2.5 kHz are noise: near ties do not reach across."""
    rng = np.random.default_rng(4)
    envelopes = np.exp(2 * rng.normal(size=(2, 1, 200)))
    powers = envelopes * rng.exponential(size=(2, len(HERTZ), 200))
    low, nothing = HERTZ < 300, (HERTZ >= 300) & (HERTZ < 2500)
    powers[:, low] = powers[::-1, low]
    powers[:, nothing] = rng.exponential(size=(2, int(nothing.sum()), 200))
    masks = powers / powers.sum(axis=0)
    masks[:, HERTZ < 2500] = 0.5 + 0.05 * (masks[:, HERTZ < 2500] - 0.5)  # wrong, and hardly sure
    ties = permutation_alignment.Ties(far=0.03)
    found = permutation_alignment.exchanged(powers, masks, HERTZ, ties=ties)
    assert found[low].all()
    assert not found[HERTZ >= 2500].any()
    assert not permutation_alignment.exchanged(powers, masks, HERTZ)[low].all()


def test_ties_fade_with_the_distance_in_pitch() -> None:
    """exp(-|p_i - p_j| / reach), also far apart."""
    pitch = np.sort(np.random.default_rng(2).uniform(0.1, 3.2, size=9))
    expected = np.exp(-np.abs(pitch[:, None] - pitch) / 0.25)
    np.testing.assert_allclose(permutation_alignment._fading(pitch, 0.25), expected, rtol=1e-9)


def test_a_right_order_is_left_alone() -> None:
    """Nothing changes where masks and powers agree."""
    powers = two_voices(seed=1)
    assert not permutation_alignment.exchanged(powers, powers / powers.sum(axis=0), HERTZ).any()


def test_silence_changes_nothing() -> None:
    """No power at all, or one source only, is no trouble."""
    assert not permutation_alignment.exchanged(
        np.zeros((2, 512, 9)), np.full((2, 512, 9), 0.5), HERTZ
    ).any()
    one = two_voices(frames=9)
    one[1] = 0.0
    assert permutation_alignment.exchanged(one, np.full((2, 512, 9), 0.5), HERTZ).shape == (512,)


def test_what_is_known_of_the_order_keeps_a_stretch_that_sounds_otherwise() -> None:
    """Voices that do at some pitches what the other does elsewhere are not exchanged there."""
    powers, masks = two_voices(), np.full((2, len(HERTZ), 120), 0.5)
    stretch = (HERTZ > 600) & (HERTZ < 800)
    powers[:, stretch] = powers[::-1, stretch]
    fooled = permutation_alignment.exchanged(powers, masks, HERTZ)
    assert fooled[stretch].mean() > 0.9
    told = np.where(HERTZ < 1700, 200.0, 0.0)  # more than all neighbours say
    assert not permutation_alignment.exchanged(powers, masks, HERTZ, told)[stretch].any()


def test_likeness_is_that_of_the_columns_as_they_stand_or_exchanged() -> None:
    """By a loop; the opposite for exchanged columns, nothing where both are expected alike."""
    rng = np.random.default_rng(4)
    A, expected = rng.normal(size=(2, 5, 2, 2)) + 1j * rng.normal(size=(2, 5, 2, 2))
    A, expected = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (A, expected))
    expected[3, :, 0] = expected[3, :, 1]
    g = permutation_alignment.likeness(A, expected)
    for f in range(5):
        own = [[abs(np.vdot(A[f, :, m], expected[f, :, n])) ** 2 for n in (0, 1)] for m in (0, 1)]
        alike = abs(np.vdot(expected[f, :, 0], expected[f, :, 1])) ** 2
        more = own[0][0] + own[1][1] - own[0][1] - own[1][0]
        assert g[f] == pytest.approx(np.clip(0.5 * more / (1 - alike + 0.02), -1, 1))
    assert g[3] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(
        permutation_alignment.likeness(A[..., ::-1], expected), -g, atol=1e-12
    )
    assert permutation_alignment.likeness(expected[:1], expected[:1])[0] > 0.9
