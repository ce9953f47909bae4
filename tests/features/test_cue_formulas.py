"""Level and phase differences match their formulas, and all modules compute the same values."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

import earatlas as ea
from earatlas.baselines import messl
from earatlas.baselines.masking import MaskedMixture
from earatlas.baselines.phat import whitened_cross_spectrum
from earatlas.features.layout import level_differences, phase_differences
from earatlas.features.tf_bins import ObservedBins

LAYOUT = ea.CueLayout(window=16, hop=4, ipd_band_hz=(1000.0, 4000.0))


@pytest.fixture
def spectra() -> np.ndarray:
    """Random spectra (2, 9, 5) over 200 dB; one bin is silent in both ears, two in one ear."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(2, 9, 5)) + 1j * rng.normal(size=(2, 9, 5))
    z *= 10.0 ** rng.uniform(-6, 4, (9, 5))
    z[:, 3, 2] = z[0, 4, 1] = z[1, 5, 0] = 0
    return z


def test_differences_match_their_definitions(spectra: np.ndarray) -> None:
    """Bins have 20 log10 |R/L| and exp(j arg R/L); silent bins have 0 dB and 0 rad."""
    left, right = spectra[0].ravel(), spectra[1].ravel()
    cross = right * left.conj()
    level = level_differences(np.abs(left) ** 2, np.abs(right) ** 2)
    cos, sin = phase_differences(cross, np.abs(cross))
    for n, (one, two) in enumerate(zip(left, right, strict=True)):
        if one and two:
            ratio = complex(two / one)
            assert level[n] == pytest.approx(20 * math.log10(abs(ratio)), rel=1e-12, abs=1e-12)
            assert complex(cos[n], sin[n]) == pytest.approx(cmath.rect(1, cmath.phase(ratio)))
        else:
            assert (cos[n], sin[n]) == (1.0, 0.0)
            assert level[n] == 0 if one == two else abs(level[n]) > 1000


def test_all_modules_compute_the_same_cues(spectra: np.ndarray) -> None:
    """Cue vectors, bin lists, MESSL and PHAT agree in bins that are audible in both ears."""
    left, right = spectra[:, 1:]
    active = (left != 0) & (right != 0)
    F, T = left.shape
    vectors = LAYOUT.stack(left.T, right.T).T
    band, n = LAYOUT.ipd_frequencies, len(LAYOUT.ipd_frequencies)
    assert 0 < n < F
    f, t = np.indices((F, T)).reshape(2, -1)
    bins = ObservedBins.at(spectra, LAYOUT, f, t)
    np.testing.assert_array_equal(bins.values[0].reshape(F, T), vectors[:F])
    unit = whitened_cross_spectrum(spectra)
    for part, kind, phases in ((0, "real", bins.values[1]), (1, "imag", bins.values[2])):
        expected = vectors[F + part * n :][:n]
        found = phases.reshape(n, T)
        np.testing.assert_allclose(found[active[band]], expected[active[band]], rtol=1e-14)
        white = getattr(unit, kind)[band]
        np.testing.assert_allclose(white[active[band]], expected[active[band]], rtol=1e-14)
    observed = messl.observe(
        MaskedMixture(ea.Audio(np.ones((2, 16)), LAYOUT.rate), spectra, LAYOUT)
    )
    np.testing.assert_array_equal(observed.level[active], vectors[:F][active].astype(np.float32))
    assert not observed.level[~active].any()
    assert not unit[~active].any(), "silent bins favour no delay"
