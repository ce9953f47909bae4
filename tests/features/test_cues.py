"""Cue layouts, the formulas of the cues, and their invariants."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import oaconvolve

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_blocks
from earatlas.features.cues import (
    audio_cues,
    cue_blocks,
    mean_cues,
    peak_power,
    recording_cues,
    response_cues,
    spectra_cues,
)
from earatlas.features.impulse_responses import transfer_functions
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import stft

SMALL = CueLayout(rate=8000, window=64, hop=16, ild_band_hz=(0, 4000), ipd_band_hz=(300, 2000))


def test_default_layout() -> None:
    """The default layout has F = 512, ILD at bins 1 to 512, IPD at bins 20 to 128, D = 730."""
    layout = CueLayout()
    assert (layout.n_frequencies, layout.n_cues) == (512, 730)
    np.testing.assert_array_equal(layout.ild_frequencies + 1, np.arange(1, 513))
    np.testing.assert_array_equal(layout.ipd_frequencies + 1, np.arange(20, 129))
    assert layout.frequencies_hz[layout.ipd_frequencies[0]] == 312.5
    assert layout.frequencies_hz[layout.ipd_frequencies[-1]] == 2000.0


def test_low_and_high_bands_of_the_paper() -> None:
    """Low and high bands share no bin and together contain all; low IPD starts above 300 Hz."""
    low, high = CueLayout.low_ild(), CueLayout.high_ild()
    assert (low.n_cues, high.n_cues) == (128, 384)
    assert low.n_cues + high.n_cues == 512
    assert not set(low.ild_frequencies) & set(high.ild_frequencies)
    assert CueLayout.low_ipd().n_cues == 2 * 109
    assert CueLayout.high_ipd().n_cues == 2 * 384


def test_layout_round_trip_through_json() -> None:
    """from_dict(to_dict()) is the same layout, with or without a band."""
    for layout in (CueLayout(), CueLayout.high_ipd(), SMALL):
        assert CueLayout.from_dict(layout.to_dict()) == layout


def test_indices_in_select_the_same_cues(rng: np.random.Generator) -> None:
    """The cues of a narrower layout are those of the wide one at `indices_in`."""
    h = rng.normal(size=(3, 2, 30))
    wide = response_cues(h, 16000)
    for layout in (CueLayout.low_ild(), CueLayout.low_ipd()):
        part = wide[:, layout.indices_in(CueLayout())]
        np.testing.assert_allclose(part, response_cues(h, 16000, layout), rtol=1e-12)
    with pytest.raises(InputError, match="lie within"):
        CueLayout.high_ipd().indices_in(CueLayout())


def test_cues_match_their_definition(rng: np.random.Generator) -> None:
    """α = 20 log10 |R/L| and φ = exp(j arg(R/L)) for each cue (slow loop)."""
    spectra = rng.normal(size=(2, 33, 5)) + 1j * rng.normal(size=(2, 33, 5))
    cues = spectra_cues(spectra, SMALL)
    for d, (f, kind) in enumerate(zip(SMALL.cue_frequencies, SMALL.cue_kinds, strict=True)):
        for t in range(5):
            ratio = spectra[1, f + 1, t] / spectra[0, f + 1, t]
            expected = {
                "ild": 20 * np.log10(abs(ratio)),
                "ipd_cos": np.cos(np.angle(ratio)),
                "ipd_sin": np.sin(np.angle(ratio)),
            }[str(kind)]
            assert cues.values[d, t] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_cues_are_invariant_to_gain(rng: np.random.Generator) -> None:
    """Neither the level nor the sign of a source changes its cues."""
    x = rng.normal(size=(2, 4000))
    a, b = audio_cues(Audio(x, 8000), SMALL), audio_cues(Audio(-0.01 * x, 8000), SMALL)
    np.testing.assert_allclose(a.values, b.values, atol=1e-9)
    np.testing.assert_array_equal(a.observed, b.observed)


def test_swapping_the_ears_mirrors_the_cues(rng: np.random.Generator) -> None:
    """Swapping the ears changes the sign of the ILD and the sine, but not of the cosine."""
    x = rng.normal(size=(2, 4000))
    a, b = audio_cues(Audio(x, 8000), SMALL), audio_cues(Audio(x[::-1], 8000), SMALL)
    sign = np.where(SMALL.cue_kinds == "ipd_cos", 1.0, -1.0)
    np.testing.assert_allclose(b.values, sign[:, None] * a.values, atol=1e-9)


def test_ild_is_positive_if_the_right_ear_is_louder(rng: np.random.Generator) -> None:
    """If the right channel has twice the amplitude, the ILD is +6.02 dB at all bins."""
    x = rng.normal(size=4000)
    cues = audio_cues(Audio(np.stack([x, 2 * x]), 8000), SMALL)
    np.testing.assert_allclose(
        cues.values[: len(SMALL.ild_frequencies)], 20 * np.log10(2), atol=1e-9
    )


def test_observed_needs_both_ears_and_both_thresholds() -> None:
    """χ = 1 only where the weaker ear reaches the higher of the two floors."""
    spectra = np.full((2, 33, 4), 16.0 + 0.0j)  # 0 dB re a full-scale sine
    spectra[0, :, 1] *= 10 ** (-30 / 20)
    spectra[1, :, 2] *= 10 ** (-50 / 20)
    spectra[:, :, 3] *= 10 ** (-50 / 20)
    layout = CueLayout(rate=8000, window=64, hop=16, ild_band_hz=(0, 4000))
    observed = spectra_cues(spectra, layout, threshold=Threshold(-40, -100)).observed
    np.testing.assert_array_equal(observed.all(axis=0), [True, True, False, False])
    observed = spectra_cues(spectra, layout, threshold=Threshold(-60, -20)).observed
    np.testing.assert_array_equal(observed.all(axis=0), [True, False, False, False])
    assert not spectra_cues(0 * spectra, layout).observed.any()


def test_full_scale_sine_is_0_db() -> None:
    """A full-scale sine is the reference of thresholds and of `peak_power`."""
    x = np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000)
    peak = peak_power([Audio(np.stack([x, 0.1 * x]), 8000)], SMALL)
    assert 10 * np.log10(peak) == pytest.approx(0.0, abs=0.01)


def test_cues_of_blocks_equal_those_of_the_recording(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """The concatenated cues of blocks equal the cues of the recording."""
    x = 0.1 * rng.normal(size=(2, 30_000)) * np.linspace(0, 1, 30_000) ** 8
    soundfile.write(tmp_path / "x.wav", x.T, 16000, "DOUBLE")
    whole = audio_cues(Audio(x, 16000))
    assert 0.05 < whole.observed_share < 0.95

    progress_seconds = []
    parts = list(
        recording_cues(tmp_path / "x.wav", progress=lambda s, _: progress_seconds.append(s))
    )
    assert progress_seconds[-1] == pytest.approx(2 * 30_000 / 16_000)
    peak = peak_power(read_blocks(tmp_path / "x.wav", block_seconds=0.11), CueLayout())
    pieces = cue_blocks(read_blocks(tmp_path / "x.wav", block_seconds=0.11), peak=peak)
    np.testing.assert_allclose(
        np.concatenate([p.values for p in pieces], 1)[whole.cue_observed],
        whole.values[whole.cue_observed],
        atol=1e-9,
    )
    joined = np.concatenate([p.values for p in parts], 1)
    observed = whole.cue_observed
    np.testing.assert_allclose(joined[observed], whole.values[observed], atol=1e-9)
    np.testing.assert_array_equal(np.concatenate([p.observed for p in parts], 1), whole.observed)


def test_transfer_functions_match_their_definition(rng: np.random.Generator) -> None:
    """They equal the Fourier sum, also at frequencies that are not bins of an FFT."""
    h, f = rng.normal(size=(3, 2, 7)), np.array([100.0, 333.3])
    got = transfer_functions(h, 1000.0, f)
    for k in range(2):
        expected = sum(h[..., j] * np.exp(-2j * np.pi * f[k] * j / 1000.0) for j in range(7))
        np.testing.assert_allclose(got[..., k], expected, rtol=1e-12)


def test_response_cues_do_not_depend_on_the_rate(rng: np.random.Generator) -> None:
    """A pure interaural delay and gain has the analytic cues at any sampling rate."""
    for rate, delay in ((16000, 4), (48000, 12)):  # 0.25 ms
        h = np.zeros((1, 2, 20))
        h[0, 0, 0], h[0, 1, delay] = 1.0, 0.5
        y = response_cues(h, rate)[0]
        f = CueLayout().frequencies_hz
        np.testing.assert_allclose(y[:512], 20 * np.log10(0.5), atol=1e-9)
        np.testing.assert_allclose(y[512:621], np.cos(-2 * np.pi * f[19:128] * 0.25e-3), atol=1e-9)
        np.testing.assert_allclose(y[621:], np.sin(-2 * np.pi * f[19:128] * 0.25e-3), atol=1e-9)


def test_mean_cues_of_noise_approach_response_cues(rng: np.random.Generator) -> None:
    """The mean cues of filtered white noise are those of the impulse response."""
    h = rng.normal(size=(2, 40)) * np.exp(-np.arange(40) / 8)
    filtered = oaconvolve(rng.normal(size=(1, 160_000)), h, axes=1)
    difference = mean_cues(Audio(filtered, 16000)) - response_cues(h[None], 16000)[0]
    assert np.median(np.abs(difference[:512])) < 0.1  # dB; more in the response's notches
    assert np.median(np.abs(difference[512:])) < 0.01
    assert np.abs(difference).max() > 1e-6  # estimated, not copied


def test_long_responses_are_measured_with_noise(rng: np.random.Generator) -> None:
    """A response longer than the window is convolved with noise and has similar cues."""
    h = rng.normal(size=(1, 2, 40)) * np.exp(-np.arange(40) / 8)
    long = np.pad(h, ((0, 0), (0, 0), (0, 3000)))
    difference = response_cues(long, 16000) - response_cues(h, 16000)
    assert 1e-6 < np.sqrt(np.mean(difference[:, :512] ** 2)) < 0.6
    np.testing.assert_array_equal(response_cues(long, 16000), response_cues(long, 16000))


def test_reverberant_response_as_long_as_the_window(rng: np.random.Generator) -> None:
    """A response that decays over most of the window is measured with noise, too."""
    layout = CueLayout()
    decay = np.exp(-np.arange(layout.window) / 250)
    room = rng.normal(size=(1, 2, layout.window)) * decay
    noise = rng.normal(size=4 * 16000)
    filtered = np.stack([np.convolve(noise, ear)[layout.window : 3 * 16000] for ear in room[0]])
    by_noise = mean_cues(Audio(filtered, 16000), layout)
    level = layout.cue_kinds == "ild"
    error = np.sqrt(np.mean((response_cues(room, 16000) - by_noise)[0, level] ** 2))
    left, right = np.moveaxis(transfer_functions(room, 16000, layout.frequencies_hz), 1, 0)
    spectrum_error = np.sqrt(np.mean((layout.stack(left, right) - by_noise)[0, level] ** 2))
    assert error < 1.0
    assert spectrum_error > 2.5


def test_silence_around_the_noise_is_ignored(rng: np.random.Generator) -> None:
    """If the noise is on for half of a recording, the background does not change its cues."""
    x = rng.normal(size=(1, 16_000)) * [[1.0], [3.0]]
    whole = 1e-3 * rng.normal(size=(2, 32_000))
    whole[:, 8_000:24_000] += x
    difference = mean_cues(Audio(whole, 16000)) - mean_cues(Audio(x, 16000))
    assert np.sqrt(np.mean(difference[:512] ** 2)) < 0.1


def test_long_responses_at_another_rate(rng: np.random.Generator) -> None:
    """A long response at 48 kHz is resampled and convolved with noise; its onset is skipped."""
    h = np.zeros((1, 2, 9000))
    h[0, 0, 600], h[0, 1, 612] = 1.0, 0.5  # 0.25 ms later, and 6 dB weaker
    y = response_cues(h, 48_000)[0]
    f = CueLayout().frequencies_hz
    np.testing.assert_allclose(y[:450], 20 * np.log10(0.5), atol=0.25)
    np.testing.assert_allclose(y[512:621], np.cos(2 * np.pi * f[19:128] * 0.25e-3), atol=0.02)


def test_observed_mask_of_cues_in_a_narrow_layout(rng: np.random.Generator) -> None:
    """The mask of each cue is that of its bin, also if no band starts at the first bin."""
    layout = CueLayout(8000, 64, 16, ild_band_hz=(1000, 3000), ipd_band_hz=(500, 1500))
    spectra = rng.normal(size=(2, 33, 5)) + 1j * rng.normal(size=(2, 33, 5))
    spectra[:, ::3] *= 1e-6
    cues = spectra_cues(spectra, layout)
    for d, f in enumerate(layout.cue_frequencies):
        np.testing.assert_array_equal(cues.cue_observed[d], cues.observed[f])
        assert cues.cue_observed[d].all() == ((f + 1) % 3 != 0)
    np.testing.assert_array_equal(np.isnan(cues.ild), ~cues.observed[layout.ild_frequencies])


def test_unobserved_bins_do_not_enter_the_mean() -> None:
    """Frames in which a bin is silent do not change its mean."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 16_000)) * [[1.0], [2.0]]
    x[:, 12_000:] = 0
    x[0, 12_000:] = rng.normal(size=4_000)  # one ear alone: no interaural cue
    y = mean_cues(Audio(x, 16000))
    assert np.median(np.abs(y[:512] - 20 * np.log10(2))) < 0.5


def test_resampled_noise_has_cues_up_to_8_khz(rng: np.random.Generator) -> None:
    """Noise recorded at 48 kHz has cues up to 8 kHz, where the resampler attenuates it."""
    x = 0.1 * rng.normal(size=(1, 96_000))
    y = mean_cues(Audio(np.concatenate([x, 2 * x]), 48000))
    np.testing.assert_allclose(y[:510], 20 * np.log10(2), atol=1e-3)


def test_display_values_are_nan_where_unobserved(rng: np.random.Generator) -> None:
    """`ild` and `ipd` are NaN exactly where χ = 0."""
    spectra = rng.normal(size=(2, 33, 5)) + 1j * rng.normal(size=(2, 33, 5))
    spectra[:, :, 2] = 0
    cues = spectra_cues(spectra, SMALL)
    np.testing.assert_array_equal(np.isnan(cues.ild), ~cues.observed[SMALL.ild_frequencies])
    np.testing.assert_array_equal(np.isnan(cues.ipd), ~cues.observed[SMALL.ipd_frequencies])
    assert cues.observed_share == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: audio_cues(Audio(np.zeros((1, 5000)), 16000)), "two channels"),
        (lambda: audio_cues(Audio(np.ones((2, 500)), 16000)), "at least one window"),
        (lambda: mean_cues(Audio(np.ones((2, 9000)), 8000)), "recording at 8000 Hz"),
        (lambda: mean_cues(Audio(np.zeros((2, 9000)), 16000)), "silent"),
        (lambda: audio_cues(Audio(np.full((2, 9000), np.nan), 16000)), "finite"),
        (lambda: list(cue_blocks([Audio(np.ones((2, 9000)), 48000)], peak=1.0)), "read_blocks"),
        (lambda: response_cues(np.zeros((2, 5)), 16000), "(N, 2, taps)"),
        (lambda: response_cues(np.zeros((1, 2, 5)), 16000), "pass every frequency"),
        (lambda: response_cues(np.ones((1, 2, 5)), 8000), "twice the highest frequency"),
        (lambda: CueLayout(window=1023), "even"),
        (lambda: Threshold(relative_db=float("nan")), "between -1000 and 0"),
        (lambda: Threshold(relative_db=30.0), "between -1000 and 0"),
        (lambda: CueLayout(hop=1000), "half the window"),
        (lambda: CueLayout(ild_band_hz=(0, 9000)), "below half"),
        (lambda: CueLayout(ild_band_hz=None, ipd_band_hz=None), "Widen"),
    ],
)
def test_invalid_input_is_rejected(call: object, words: str) -> None:
    """The error states what is wrong."""
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert words in str(caught.value)


def test_audio_cues_are_spectra_cues_of_the_stft(rng: np.random.Generator) -> None:
    """audio_cues equals spectra_cues of stft at the rate of the layout."""
    x = rng.normal(size=(2, 4000))
    expected = spectra_cues(stft(x, 64, 16), SMALL)
    np.testing.assert_array_equal(audio_cues(Audio(x, 8000), SMALL).values, expected.values)
