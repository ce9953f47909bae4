"""Detected sources: directions, responsibilities, posteriors and number of several sources."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from made_scenes import posterior_at
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.features.recording import Block
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import ObservedBins
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.detected_sources import (
    DetectedSource,
    SourceDetector,
)
from earatlas.localization.onset_likelihood import N_TABLE_STEPS, DirectionLogLikelihood, bin_class
from earatlas.localization.reverberant_localizer import widen_posterior
from earatlas.separation.initialization import (
    InitializationSettings,
    OnsetDetections,
    SourceFit,
)
from earatlas.separation.separator import ObservedBlock
from earatlas.separation.source_directions import OnsetMasks, _match_sources, locate_static_sources
from earatlas.separation.source_masks import SeparatedBlock
from earatlas.separation.source_model import SourcePosterior
from earatlas.separation.vessl import VESSL, VESSLState
from earatlas.simulation.random_reverberation import RandomReverberation

RATE = 16_000
TWO_DIRECTIONS = np.array([[50.0, 10.0], [-70.0, 0.0]])
ROOM = RandomReverberation(
    t60_seconds=0.3, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=6.0
)


@pytest.fixture(scope="module")
def reverberant_atlas(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas with a reverberant localizer."""
    return atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)


def render_reverberant(
    head: ea.Head,
    directions: np.ndarray,
    *,
    seconds: float = 2.5,
    seed: int = 0,
    snr_db: float = 50.0,
) -> np.ndarray:
    """Render talkers (2, n) in these directions, with random reverberation of the head."""
    rng = np.random.default_rng(seed)
    h = head.responses().at_rate(RATE)
    even = np.append(np.full(len(h), 1 / len(h)), 0.0)
    n = int(seconds * RATE)
    samples = np.zeros((2, n))
    for m, direction in enumerate(directions):
        direct = ea.simulated_head(direction[None]).responses().at_rate(RATE)
        wet = ROOM.response(np.concatenate([h, direct]), len(h), RATE, even, rng)
        dry = ea.synthetic_speech(seconds, seed=10 * seed + m)
        image = oaconvolve(dry[None], wet, axes=1)[:, :n]
        samples += image / image.std()
    samples += rng.normal(size=samples.shape) * samples.std() * 10 ** (-snr_db / 20)
    return 0.1 * samples


def detect_onsets(atlas: ea.Atlas, samples: np.ndarray, most: int = 300) -> OnsetBins:
    """Return the strongest onset bins of a recording."""
    assert atlas.reverberant_localizer is not None
    stream = OnsetDetector(
        replace(atlas.reverberant_localizer.direct_sound.onset_settings, most_bins=most)
    )
    stream.push(samples)
    stream.finish()
    return stream.bins()


def test_onsets_have_the_right_frame() -> None:
    """A click at sample 8000 has onsets around frame 62.5, wherever blocks end."""
    samples = np.random.default_rng(0).normal(size=(2, 16_000)) * 1e-4
    samples[:, 8000] = 1.0
    stream = OnsetDetector(OnsetDetectorSettings())
    for start in range(0, 16_000, 777):
        stream.push(samples[:, start : start + 777])
    stream.finish()
    bins = stream.bins()
    strong = bins.rise_db > 20
    assert strong.sum() > 50
    assert set(bins.t[strong]) <= {61, 62, 63, 64}


def test_score_equals_the_formula(reverberant_atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """The score is Σ v log (Σ π g + π_0) / Σ v; responsibilities and evidence are in range."""
    assert reverberant_atlas.reverberant_localizer is not None
    sound, bins = (
        reverberant_atlas.reverberant_localizer.direct_sound,
        detect_onsets(reverberant_atlas, render_reverberant(atlas_head, TWO_DIRECTIONS), 60),
    )
    detector, cells = SourceDetector(sound, bins), [40, 700, 1200]
    fit = detector.mixture.fit_static(cells)
    *weights, diffuse_weight = fit.mixing_weights[:, 0]
    counts = np.bincount(bins.f)
    total = weight = 0.0
    points, observed = sound.points(sound.cells[0][cells]), sound.observed(bins).stokes_points
    classes = bin_class(bins.rise_db, sound.onset_settings.frequencies_hz[bins.f])
    for n, f in enumerate(bins.f):
        v, mixed = 1 / (1 + counts[f]), diffuse_weight
        for j in range(3):
            u = float(observed[n] @ points[f, :, j])
            level = min(int((u + 1) * N_TABLE_STEPS / 2), N_TABLE_STEPS - 1)
            mixed += weights[j] * np.exp(sound.log_densities[classes[n], level])
        total, weight = total + v * np.log(mixed), weight + v
    score = detector.mixture.score(fit, same_cone_nats=0.0)
    assert score == pytest.approx(total / weight, abs=0.02)
    sources = detector.sources(detector.mixture.search(2)[-1])
    responsibilities = np.sum([own.responsibilities for own in sources], axis=0)
    assert responsibilities.min() >= 0
    assert responsibilities.max() < 1  # the diffuse component has a part of every bin
    assert min(own.evidence for own in sources) > 0.1
    assert sum(own.bins for own in sources) == pytest.approx(responsibilities.sum())


def test_talkers_in_reverberant_rooms_are_localized_and_counted(
    reverberant_atlas: ea.Atlas, atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Two talkers that the anechoic model misses are found, and one is counted as one."""
    anechoic_atlas = replace(atlas, reverberant_localizer=None)
    errors: list[float] = []
    anechoic_errors: list[float] = []
    inside: list[bool] = []
    numbers: list[int] = []
    rng = np.random.default_rng(1)
    for n in range(6):
        directions = np.array([[a, rng.uniform(-20, 40)] for a in rng.choice([20, 75, 130, -40, -100], 2, replace=False)])  # fmt: skip  # noqa: E501
        audio = ea.Audio(render_reverberant(atlas_head, directions, seed=n), RATE)
        for own_errors, model in ((errors, reverberant_atlas), (anechoic_errors, anechoic_atlas)):
            found = model.separate(audio, n_sources=2, rendering="soft")
            distances = great_circle_error(directions[:, None], found.directions[None])
            in_order, crossed = distances[[0, 1], [0, 1]], distances[[0, 1], [1, 0]]
            own_errors.extend(in_order if in_order.sum() <= crossed.sum() else crossed)
            if model is reverberant_atlas:
                order = (0, 1) if in_order.sum() <= crossed.sum() else (1, 0)
                inside += [
                    found.sources[m].posterior.credible_level(direction, 300) < 0.9
                    for m, direction in zip(order, directions, strict=True)
                ]
                assert all(source.evidence.direct for source in found.sources)
        numbers.append(len(reverberant_atlas.separate(audio, rendering="soft").sources))
    assert np.mean(np.array(errors) > 20) <= 0.25
    assert np.mean(np.array(anechoic_errors) > 20) > 2 * np.mean(np.array(errors) > 20)
    assert np.mean(inside) > 0.6
    assert np.mean(np.array(numbers) == 2) > 0.6
    alone = ea.Audio(render_reverberant(atlas_head, TWO_DIRECTIONS[:1], seed=3), RATE)
    assert len(reverberant_atlas.separate(alone, rendering="soft").sources) == 1


def test_posteriors_widen_with_noise_and_without_direction(
    reverberant_atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Posteriors widen with noise; diffuse noise and identical channels have no direction."""
    radii = []
    for snr in (30.0, 0.0, -8.0):
        audio = ea.Audio(render_reverberant(atlas_head, TWO_DIRECTIONS, snr_db=snr), RATE)
        found = reverberant_atlas.separate(audio, n_sources=2, rendering="soft")
        radii.append(np.mean([source.radius_90 for source in found.sources]))
    assert radii[0] < radii[1] < radii[2]
    voice = ea.synthetic_speech(2.5, seed=1)
    noise = np.random.default_rng(2).normal(size=(2, 40_000))
    for samples in (0.1 * noise, np.stack([voice, voice])):
        found = reverberant_atlas.separate(ea.Audio(samples, RATE), n_sources=2, rendering="soft")
        assert max(source.radius_90 for source in found.sources) > 15


def test_long_recording_has_the_directions_of_a_short_one(
    tmp_path: Path, reverberant_atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Overlapping blocks and files give the same two directions, each with its evidence."""
    audio = ea.Audio(render_reverberant(atlas_head, TWO_DIRECTIONS, seconds=27.0), RATE)
    soundfile.write(tmp_path / "party.wav", audio.samples.T, RATE, subtype="FLOAT")
    found, _ = reverberant_atlas.separate_file(
        tmp_path / "party.wav", tmp_path / "out", n_sources=2, rendering="soft"
    )
    errors = great_circle_error(TWO_DIRECTIONS[:, None], found.directions[None])
    assert min(errors[0, 0] + errors[1, 1], errors[0, 1] + errors[1, 0]) < 25
    for source in found.sources:
        shown = source.to_dict()["evidence"]
        assert shown["direct"] is True
        assert shown["onset_bins"] > 100
        assert shown["gain"] > 0.1


def test_masks_are_read_at_onsets() -> None:
    """Frames count from the start of a block; the nearest frequency of the mask is used."""
    onset_settings, layout = OnsetDetectorSettings(), ea.CueLayout()
    f = np.array([0, 10, 100])
    onsets = OnsetBins(
        f, np.array([3, 40, 90]), np.ones((3, 2), complex), np.ones(3), np.ones(3), 100.0
    )
    onset_masks = OnsetMasks(layout, onset_settings, onsets, 2)
    rng = np.random.default_rng(0)
    for start, frames in ((0, 50), (40 * 128, 60)):
        masks = rng.random((2, layout.n_frequencies, frames))
        block = Block(np.zeros((2, frames * 128)), start, False)
        nothing = ObservedBins.at(np.zeros((2, 513, 1), complex), layout, f[:0], f[:0])
        observed = ObservedBlock(block, np.zeros((2, 513, frames), complex), nothing)
        onset_masks.add(SeparatedBlock(observed, masks, np.ones((2, 1, 512), complex), f[:1]))
        for n in range(3):
            t = onsets.t[n] - start // 128
            if 0 <= t < frames:
                row = round(onset_settings.frequencies_hz[f[n]] / 15.625) - 1
                np.testing.assert_array_equal(onset_masks.masks[:, n], masks[:, row, t])


def make_detected_source(
    responsibilities: np.ndarray, bins: float = 300.0, evidence: float = 1.0
) -> DetectedSource:
    """Return a source with a maximum of L at (30, 10) and a lower one behind."""
    space = ea.Sphere()
    grid = space.grid(3.0)
    front, back = (space.distance(grid, np.array(p)) for p in ((30.0, 10.0), (150.0, 10.0)))
    L = 60 * np.exp(-0.5 * (front / 5) ** 2) + 54 * np.exp(-0.5 * (back / 5) ** 2)
    log_likelihood = DirectionLogLikelihood(
        grid, L, np.ones(len(grid)), np.array([2.0, 20.0, np.log2(bins)])
    )
    return DetectedSource(
        log_likelihood, np.array([30.0, 10.0]), bins, 2.0, evidence, responsibilities
    )


def test_sources_are_matched_by_their_bins() -> None:
    """A mask belongs to the source with the same onsets, in any order."""
    responsibilities = np.array([[0.9, 0.9, 0.1, 0.0], [0.0, 0.1, 0.9, 0.1], [0.1, 0.0, 0.0, 0.9]])
    masks = responsibilities[[2, 0, 1]]
    bins = OnsetBins(
        np.arange(4), np.arange(4), np.ones((4, 2), complex), np.ones(4), np.ones(4), 9.0
    )
    assert _match_sources(masks, [make_detected_source(row) for row in responsibilities], bins) == [
        2,
        0,
        1,
    ]


def test_posterior_of_one_of_several_uses_the_pair_calibration(atlas: ea.Atlas) -> None:
    """The posterior is wider without that calibration, and for a source without support."""
    assert atlas.reverberant_localizer is not None
    assert atlas.reverberant_localizer.multi_source_calibration is not None
    source = make_detected_source(np.ones(4))
    posterior = atlas.reverberant_localizer.multi_source_posterior(source.log_likelihood)
    oracle = atlas.reverberant_localizer.multi_source_calibration.posterior(
        atlas.space, source.log_likelihood
    )
    points = ea.Sphere().grid(20.0)
    np.testing.assert_allclose(posterior.log_density(points), oracle.log_density(points))
    np.testing.assert_allclose(posterior.best, [30.0, 10.0], atol=2.0)
    uncalibrated = replace(atlas.reverberant_localizer, multi_source_calibration=None)
    assert uncalibrated.multi_source_posterior(source.log_likelihood).radius_90 > 40
    assert widen_posterior(posterior).radius_90 > max(posterior.radius_90, 40)
    np.testing.assert_allclose(widen_posterior(posterior).best, posterior.best, atol=1.0)


def test_only_sources_without_evidence_are_localized_alone(reverberant_atlas: ea.Atlas) -> None:
    """In a room, a source with a little evidence keeps the direction of the mixture."""
    assert reverberant_atlas.reverberant_localizer is not None
    bins, far = (
        detect_onsets(
            reverberant_atlas,
            render_reverberant(ea.simulated_head(ea.Sphere().grid(30.0)), direction[None], seed=m),
        )
        for m, direction in enumerate(TWO_DIRECTIONS)
    )
    bins = replace(bins, snr_db=np.full(len(bins), 30.0))
    onset_settings = reverberant_atlas.reverberant_localizer.direct_sound.onset_settings
    nothing = SourcePosterior(
        posterior_at(ea.Sphere(), (0.0, 70.0)), np.zeros(3), np.zeros(3), 0.0, np.ones(3, bool)
    )
    state = VESSLState(np.full((2, 3), 0.5), np.ones(3), np.full((2, 1), 0.5), (nothing, nothing))
    layout, none = reverberant_atlas.layout, np.zeros(0, dtype=np.intp)
    no_bins = ObservedBins.at(np.zeros((2, 513, 1), complex), layout, none, none)
    alone = reverberant_atlas.reverberant_localizer.direct_sound.log_likelihood(far)
    far_direction = alone.directions[np.argmax(alone.log_likelihoods)]
    for evidence, direction in ((0.1, np.array([30.0, 10.0])), (0.01, far_direction)):
        sources = tuple(
            make_detected_source(np.ones(len(bins)), evidence=evidence) for _ in range(2)
        )
        onset_masks = OnsetMasks(reverberant_atlas.layout, onset_settings, bins, 2)
        fit = SourceFit(
            VESSL(reverberant_atlas.separator.source_model, no_bins),
            state,
            np.array([9.0, 9.0]),
            OnsetDetections(sources, bins),
            InitializationSettings(),
            CueStatistics.stack([CueStatistics.from_vector(np.zeros(3))] * 2),
        )
        for own in locate_static_sources(reverberant_atlas, fit, (far, far), onset_masks):
            assert great_circle_error(own.posterior.best, direction) < 4
