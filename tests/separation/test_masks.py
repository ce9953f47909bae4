"""Rendering by masks: the sounds sum to the mixture, and each mask passes its bins."""

import numpy as np
import pytest

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.stft import stft
from earatlas.separation.demixing.masks import apply_masks, binary_masks
from earatlas.separation.demixing.rendering import check_rendering

LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
M = 3


def test_masked_sounds_sum_to_the_mixture() -> None:
    """The sounds of soft and of binary masks sum to the mixture, also at 0 Hz."""
    rng = np.random.default_rng(4)
    sound = rng.normal(size=(2, 101)) + 0.5  # with a DC offset
    spectra = stft(sound, 16, 2)
    masks = np.moveaxis(rng.dirichlet(np.ones(M), (8, spectra.shape[2])), -1, 0)
    for used in (masks, binary_masks(masks)):
        sounds = apply_masks(spectra, used, LAYOUT, 101)
        assert sounds.shape == (M, 2, 101)
        np.testing.assert_allclose(sounds.sum(axis=0), sound, atol=1e-12)


def test_mask_passes_its_bins() -> None:
    """Each source contains the tone of its bins; 0 Hz belongs to the lowest bin."""
    time = np.arange(200) / 16
    low, high = (np.stack([np.cos(2 * np.pi * f * time)] * 2) for f in (2.0, 6.0))
    spectra = stft(low + high + 0.3, 16, 2)
    masks = np.zeros((2, 8, spectra.shape[2]))
    masks[0, :4], masks[1, 4:] = 1, 1  # bins 1-4 and 5-8 Hz
    sounds = apply_masks(spectra, masks, LAYOUT, 200)
    inner = slice(16, -16)  # whole windows
    np.testing.assert_allclose(sounds[0][:, inner], (low + 0.3)[:, inner], atol=1e-9)
    np.testing.assert_allclose(sounds[1][:, inner], high[:, inner], atol=1e-9)


def test_binary_masks_assign_each_bin_to_one_source() -> None:
    """A bin belongs to the most probable source, or to the first of several."""
    masks = np.array([[0.2, 0.5, 1 / 3, 0.0], [0.7, 0.5, 1 / 3, 0.5], [0.1, 0.0, 1 / 3, 0.5]])
    expected = [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]
    np.testing.assert_array_equal(binary_masks(masks), expected)
    deep = binary_masks(masks.reshape(3, 2, 2))
    np.testing.assert_array_equal(deep.reshape(3, 4), expected)


def test_check_rendering() -> None:
    """The error lists the valid renderings."""
    assert check_rendering("soft") == "soft"
    assert check_rendering("binary") == "binary"
    with pytest.raises(InputError, match=r"must be one of spatial, soft, binary, got 'hard'\."):
        check_rendering("hard")
