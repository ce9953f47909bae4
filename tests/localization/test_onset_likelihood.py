"""Onset likelihood: templates, density of bins, random reverberation, calibrated posteriors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.features.onset_detector import OnsetDetector, OnsetDetectorSettings
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.interaural_templates import InterauralTemplates, LocalLinearInterpolation
from earatlas.localization.onset_likelihood import (
    N_TABLE_STEPS,
    DirectionLogLikelihood,
    DirectSoundModel,
    bin_class,
    bin_weights,
    stokes,
)
from earatlas.localization.score_calibration import KERNEL_WIDTHS_DEGREES, fit_score_calibration
from earatlas.simulation.random_reverberation import RandomReverberation
from earatlas.training.reverberant import fit_log_densities, sharpness_components

RATE = 16_000


@pytest.fixture(scope="module")
def templates(small_head: ea.Head) -> InterauralTemplates:
    """Templates of the simulated head at 183 directions."""
    return InterauralTemplates.of(small_head, OnsetDetectorSettings().frequencies_hz)


def interpolation_for(known: np.ndarray, wanted: np.ndarray) -> LocalLinearInterpolation:
    """Return the interpolation with the settings for heads."""
    return LocalLinearInterpolation.of(ea.Sphere(), known, wanted, neighbours=6, spacing=15.0)


def test_interpolation_is_exact_for_linear_functions(small_head: ea.Head) -> None:
    """Constants are exact, and functions that are linear in the chart up to the ridge."""
    x = small_head.directions
    wanted = np.array([[40.0, 10.0], [-170.0, -20.0], [3.0, 88.0]])
    at = interpolation_for(x, wanted)
    np.testing.assert_allclose(at.weights.sum(axis=1), 1.0, rtol=1e-6)
    for row, direction in enumerate(wanted):
        u = ea.Sphere().log(direction, x[at.rows[row]])
        np.testing.assert_allclose(at.weights[row] @ u, 0.0, atol=0.5)


def test_templates_equal_the_interaural_ratios(
    small_head: ea.Head, templates: InterauralTemplates
) -> None:
    """At measured directions, level, delay and phase together are R / L."""
    f = templates.frequencies_hz
    ears = small_head.responses()
    n = np.arange(ears.samples.shape[-1]) / ears.rate
    for row in (0, 91, 150):
        identity = LocalLinearInterpolation(np.array([[row]]), np.ones((1, 1)))
        for i in (0, 60, 183):
            left, right = ears.samples[row] @ np.exp(-2j * np.pi * f[i] * n)
            np.testing.assert_allclose(templates.ratios(identity)[0, i], right / left, rtol=1e-9)


def test_templates_between_directions(templates: InterauralTemplates) -> None:
    """Templates fit at new directions, even phases at 7 kHz, unlike interpolated cosines."""
    new = ea.simulated_head([[33.0, 4.0], [-80.0, 25.0], [150.0, -30.0]])
    true = InterauralTemplates.of(new, templates.frequencies_hz)
    own = LocalLinearInterpolation(np.arange(3)[:, None], np.ones((3, 1)))
    found = templates.ratios(interpolation_for(templates.directions, new.directions))
    ratio_errors = found / true.ratios(own)
    low = templates.frequencies_hz < 1500
    assert np.median(np.abs(np.angle(ratio_errors[:, low]))) < 0.15
    assert np.median(np.abs(np.angle(ratio_errors[:, ~low]))) < 0.8
    assert np.median(np.abs(20 * np.log10(np.abs(ratio_errors)))) < 3.0


def test_diffuse_sound_is_uniform_on_the_sphere() -> None:
    """Complex Gaussian pairs have uniform Stokes vectors; a fixed ratio has a single one."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20_000, 2)) + 1j * rng.normal(size=(20_000, 2))
    points = stokes(z)
    np.testing.assert_allclose((points**2).sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(points.T @ points / len(points), np.eye(3) / 3, atol=0.02)
    fixed = stokes(z[:, :1] * np.array([1.0, 0.5j]))
    np.testing.assert_allclose(fixed, np.tile(fixed[0], (len(fixed), 1)), atol=1e-12)


def test_direct_over_diffuse_sound_has_the_model_density() -> None:
    """z = a h + Γ^(1/2) n, whitened: u has the density (1 - b²) / (1 - b u)² / 2."""
    rng = np.random.default_rng(1)
    h, power = np.array([1.0, -0.4 + 0.7j]), 3.0
    gauss = rng.normal(size=(100_000, 3, 2)) @ np.array([1, 1j]) / np.sqrt(2)
    z = np.sqrt(power) * gauss[:, :1] * h + gauss[:, 1:]
    u = stokes(z) @ stokes(h)
    ratio = power * float(np.vdot(h, h).real)
    b = ratio / (2 + ratio)
    edges = np.linspace(-1, 1, 9)
    share = np.histogram(u, edges)[0] / len(u)
    integral = (1 - b**2) / (2 * b) / (1 - b * edges)
    np.testing.assert_allclose(share, np.diff(integral), atol=0.005)


def test_fitted_densities_match_the_simulated_ones() -> None:
    """A sharp and a diffuse class of bins are recovered, and the densities integrate to one."""
    rng = np.random.default_rng(2)
    b = 0.95
    q = rng.random(6000)
    sharp = (1 - (1 - b**2) / (2 * b * q + (1 - b) * 1.0)) / b  # by the inverse of the integral
    cosines = [np.clip(sharp, -1, 1), rng.uniform(-1, 1, 6000)]
    tables = fit_log_densities(cosines, [np.full(6000, 4), np.full(6000, 9)])
    np.testing.assert_allclose(np.exp(tables).mean(axis=1), 1.0, atol=0.1)
    middles = (np.arange(N_TABLE_STEPS) + 0.5) / N_TABLE_STEPS * 2 - 1
    assert np.abs(tables[9][20:-20]).max() < 0.25
    true = np.log(sharpness_components(middles)[:, 5])
    assert np.abs(tables[4] - true)[N_TABLE_STEPS // 2 :].max() < 0.5


def test_random_reverberation_begins_with_the_direct_sound(small_head: ea.Head) -> None:
    """There is only direct sound before 0.7 ms; then the energy decays by 60 dB in T60."""
    h = small_head.responses().at_rate(RATE)
    even = np.full(len(h), 1 / len(h))
    room = RandomReverberation(
        t60_seconds=0.4, volume_cubic_metres=60.0, distance_metres=1.5, drop_db=3.0
    )
    rng = np.random.default_rng(0)
    wet = np.stack([room.response(h, 5, RATE, even, rng) for _ in range(40)])
    np.testing.assert_allclose(wet[:, :, :11], np.tile(h[5][:, :11], (40, 1, 1)), atol=1e-12)
    energy = (wet**2).sum(axis=(0, 1))
    decay = np.log10(energy[800:5600].reshape(-1, 400).sum(axis=1))
    seconds = (np.arange(len(decay)) + 0.5) * 400 / RATE
    assert -6 / np.polyfit(seconds, decay, 1)[0] == pytest.approx(0.4, rel=0.15)


@pytest.fixture(scope="module")
def anechoic_atlas(atlas: ea.Atlas) -> ea.Atlas:
    """The shared atlas without the reverberant localizer."""
    return replace(atlas, reverberant_localizer=None)


def test_log_likelihood_equals_a_loop_over_bins(atlas: ea.Atlas) -> None:
    """L equals its formula, one bin at a time, at evaluated directions."""
    assert atlas.reverberant_localizer is not None
    sound = atlas.reverberant_localizer.direct_sound
    stream = OnsetDetector(OnsetDetectorSettings(most_bins=40))
    stream.push(
        np.stack([ea.synthetic_speech(0.8, seed=1), 0.5 * ea.synthetic_speech(0.8, seed=1)])
    )
    stream.finish()
    bins = stream.bins()
    log_likelihood = sound.log_likelihood(bins)
    weights = bin_weights(bins.f)
    classes = bin_class(bins.rise_db, sound.onset_settings.frequencies_hz[bins.f])
    for p in (0, 7, len(log_likelihood.directions) - 1):
        at = sound.interpolation_for(
            sound.templates.directions, log_likelihood.directions[p : p + 1]
        )
        ratio = sound.templates.ratios(at)[0]
        total = 0.0
        for n, f in enumerate(bins.f):
            there = stokes(sound.whitening[f] @ np.array([1.0, ratio[f]]))
            u = float(stokes(sound.whitening[f] @ bins.z[n]) @ there)
            level = min(int((u + 1) * N_TABLE_STEPS / 2), N_TABLE_STEPS - 1)
            total += weights[n] * sound.log_densities[classes[n], level]
        assert log_likelihood.log_likelihoods[p] == pytest.approx(total, abs=0.15)


def test_batched_log_likelihoods_equal_single_ones(atlas: ea.Atlas) -> None:
    """Overlapping parts, a separate part and a single bin agree to 1e-5 of L."""
    assert atlas.reverberant_localizer is not None
    sound = atlas.reverberant_localizer.direct_sound
    stream = OnsetDetector(OnsetDetectorSettings(most_bins=300))
    stream.push(
        np.stack(
            [ea.synthetic_speech(1.5, seed=1), 0.5 * np.roll(ea.synthetic_speech(1.5, seed=1), 4)]
        )
    )
    stream.finish()
    bins = stream.bins()
    spans = ((0, 90), (40, 130), (50, 100), (140, 190))
    parts = [bins[(bins.t >= first) & (bins.t < last)] for first, last in spans]
    parts.append(bins[np.array([7])])
    assert all(len(part) for part in parts)
    for part, found in zip(parts, sound.log_likelihood_batch(parts), strict=True):
        expected = sound.log_likelihood(part)
        np.testing.assert_array_equal(found.directions, expected.directions)
        np.testing.assert_array_equal(found.sizes, expected.sizes)
        np.testing.assert_allclose(found.features, expected.features, rtol=1e-5)
        scale = np.abs(expected.log_likelihoods).max()
        np.testing.assert_allclose(
            found.log_likelihoods, expected.log_likelihoods, atol=1e-5 * scale
        )


def test_talkers_in_reverberant_rooms_are_localized(
    atlas: ea.Atlas, anechoic_atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """In random reverberation, errors are far smaller than those of the anechoic model."""
    rng = np.random.default_rng(4)
    h = atlas_head.responses().at_rate(RATE)
    even = np.full(len(h), 1 / len(h))
    room = RandomReverberation(
        t60_seconds=0.35, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=6.0
    )
    errors, anechoic_errors, levels = [], [], []
    for n in range(12):
        direction = np.array([[rng.uniform(-180, 180), rng.uniform(-40, 60)]])
        direct = ea.simulated_head(direction).responses().at_rate(RATE)
        wet = room.response(np.concatenate([h, direct]), len(h), RATE, np.append(even, 0.0), rng)
        samples = oaconvolve(ea.synthetic_speech(2.5, seed=n)[None], wet, axes=1)
        result = atlas.localize(ea.Audio(samples, RATE))
        errors.append(float(great_circle_error(direction[0], result.direction)))
        levels.append(result.posterior.credible_level(direction[0], 300))
        anechoic = anechoic_atlas.localize(ea.Audio(samples, RATE))
        anechoic_errors.append(float(great_circle_error(direction[0], anechoic.direction)))
    assert np.median(errors) < 8
    assert np.mean(np.array(errors) > 30) < 0.3
    assert np.median(anechoic_errors) > 2 * np.median(errors)
    assert np.mean(np.array(levels) < 0.9) > 0.6


def test_calibrated_width_matches_the_errors() -> None:
    """Likelihoods with peaks 4 degrees from the truth get widths of about 4 degrees."""
    rng = np.random.default_rng(0)
    space, truths = ea.Sphere(), ea.Sphere().grid(12.0)[:150]
    grid = space.grid(2.0)
    likelihoods = []
    for truth in truths:
        peak = space.exp(truth, rng.normal(scale=4.0, size=2))
        log_likelihoods = -0.5 * (space.distance(grid, peak) / 0.5) ** 2
        sizes, features = np.ones(len(grid)), np.array([1.0, 20.0, 8.0])
        likelihoods.append(DirectionLogLikelihood(grid, log_likelihoods, sizes, features))
    score_calibration = fit_score_calibration(space, likelihoods, truths)
    shares = score_calibration.local_mixture_weights(likelihoods[0].features).sum(axis=0)
    assert np.sqrt(shares @ KERNEL_WIDTHS_DEGREES**2) == pytest.approx(4.0, rel=0.35)
    inside = [
        score_calibration.posterior(space, log_likelihood).credible_level(truth, 300) < 0.9
        for log_likelihood, truth in zip(likelihoods[:60], truths[:60], strict=True)
    ]
    assert 0.75 < np.mean(inside) <= 1.0


def test_anechoic_sound_has_the_anechoic_posterior(
    atlas: ea.Atlas, anechoic_atlas: ea.Atlas
) -> None:
    """Posteriors are equal bit by bit for sound like the training data; streams agree."""
    direction = (63.0, 11.0)
    scene = ea.render_scene(
        ea.simulated_head([direction]), [ea.synthetic_speech(2.0, seed=5)], [direction]
    )
    anechoic, ours = anechoic_atlas.localize(scene.mixture), atlas.localize(scene.mixture)
    np.testing.assert_array_equal(ours.posterior.weights, anechoic.posterior.weights)
    localizer = atlas.localizer(rate=RATE)
    for start in range(0, scene.mixture.samples.shape[1], 3001):
        localizer.push(scene.mixture.samples[:, start : start + 3001])
    np.testing.assert_allclose(localizer.finish().direction, ours.direction, atol=1e-9)


def test_reverberant_localizer_requires_an_anechoic_head(
    atlas: ea.Atlas, small_head: ea.Head
) -> None:
    """Another head and one with reverberant responses are rejected."""
    with pytest.raises(ea.InputError, match="must be the one that the atlas was learned from"):
        atlas.with_rooms(small_head)
    ears = small_head.responses()
    long = np.pad(ears.samples, ((0, 0), (0, 0), (0, 4000)))
    reverberant = replace(small_head, ears=replace(ears, samples=long))
    learned = replace(atlas, about={**atlas.about, "directions": len(small_head)})
    with pytest.raises(ea.InputError, match="reverberant responses"):
        learned.with_rooms(reverberant)


def test_saved_atlas_keeps_the_reverberant_localizer(tmp_path: Path, atlas: ea.Atlas) -> None:
    """All arrays and settings are restored."""
    assert atlas.reverberant_localizer is not None
    back = ea.Atlas.load(atlas.save(tmp_path / "x.atlas"))
    assert back.reverberant_localizer is not None
    for name, array in atlas.reverberant_localizer.to_arrays().items():
        np.testing.assert_array_equal(array, back.reverberant_localizer.to_arrays()[name])
    assert isinstance(back.reverberant_localizer.direct_sound, DirectSoundModel)
    assert (
        back.reverberant_localizer.direct_sound.onset_settings
        == atlas.reverberant_localizer.direct_sound.onset_settings
    )
