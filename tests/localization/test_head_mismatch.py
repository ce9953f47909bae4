"""The mismatch between the learned head and the one that made a recording."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned_heads import LearnedHeads

import earatlas as ea
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, detect_onsets
from earatlas.features.reverberation import ReverberationEstimate, ReverberationSettings
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.geometry.angles import apply_front_prior
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import ImpulseResponses
from earatlas.localization.diagnostics import DoubtKind, HeadFit
from earatlas.localization.head_mismatch import (
    DeviatingHeads,
    HeadMismatch,
    MismatchSettings,
    Unit,
    held_out_nats,
)
from earatlas.localization.score_calibration import tempered_posterior
from earatlas.population.population import Listener
from earatlas.ppam.cue_bands import CueBands
from earatlas.ppam.head_deviations import HeadDeviations
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.separation.initialization import Initialization, OnsetDetections
from earatlas.separation.result import Evidence
from earatlas.separation.source_directions import (
    LocatedSource,
    SceneMismatch,
    diagnose_scene,
    locate_static_sources,
)
from earatlas.types import Array


@pytest.fixture(scope="module")
def deviations() -> HeadDeviations:
    """Three components of deviations, the same in all directions, as large as those of people."""
    layout, rng = ea.CueLayout(), np.random.default_rng(4)
    bands = CueBands.of(layout)
    level = bands.mean((layout.cue_kinds == "ild").astype(float))
    scale = np.where(level > 0.5, 3.0, 0.2)
    loadings = rng.normal(size=(len(bands), 3)) * scale[:, None] / np.sqrt(3)
    centres = Sphere().grid(20.0)
    residual = np.tile(0.1 * bands.expand(scale) ** 2, (len(centres), 1))
    return HeadDeviations(layout, centres, bands, np.tile(loadings, (len(centres), 1, 1)), residual)


def mismatch_of(
    atlas: ea.Atlas, deviations: HeadDeviations, unit: Unit = Unit.OTHER
) -> HeadMismatch:
    """Return the mismatch of an atlas with given deviations."""
    assert atlas.reverberant_localizer is not None
    heads = DeviatingHeads(atlas.model, atlas.calibration, deviations, unit)
    return HeadMismatch(heads, atlas.reverberant_localizer)


def effective(atlas: ea.Atlas, *cues: Array) -> CueStatistics:
    """Return the effective statistics (M, D) of M vectors of cues."""
    sounds = CueStatistics.stack([CueStatistics.from_vector(one) for one in cues])
    return atlas.calibration.effective_statistics(sounds, atlas.model.noise)


@pytest.mark.parametrize("true", [0.0, 0.3, 1.0])
def test_evidence_finds_the_magnitude(deviations: HeadDeviations, true: float) -> None:
    """Cues that deviate by α in the modelled way have the largest evidence near α."""
    atlas = ea.example_atlas()
    mismatch, rng = mismatch_of(atlas, deviations), np.random.default_rng(1)
    found = []
    for direction in ([30.0, 10.0], [-70.0, 0.0], [150.0, 20.0]):
        z = rng.normal(size=3)
        own = atlas.model.forward_map(np.array([direction]))[0]
        shift = deviations.bands.expand(deviations.loadings[0] @ z)
        sound = effective(atlas, own + np.sqrt(2) * true * shift)
        found.append(mismatch.heads.most_probable(sound).magnitude)
    low, high = {0.0: (0.08, 0.08), 0.3: (0.15, 0.6), 1.0: (0.6, 1.5)}[true]
    assert low <= np.median(found) <= high


def test_unit_is_the_prior_of_the_magnitude(deviations: HeadDeviations) -> None:
    """The same unit deviates by 0.3 at most, even if the cues are those of another head."""
    atlas = ea.example_atlas()
    cues = atlas.model.forward_map(np.array([[40.0, 0.0]]))[0]
    shift = deviations.bands.expand(deviations.loadings[0] @ np.array([1.5, -1.0, 1.0]))
    sound = effective(atlas, cues + np.sqrt(2) * shift)
    same, other = (
        mismatch_of(atlas, deviations, unit).heads.most_probable(sound).magnitude
        for unit in (Unit.SAME, Unit.OTHER)
    )
    assert same == pytest.approx(0.3)
    assert other >= 0.6


def test_noise_and_reverberation_are_not_a_mismatch(deviations: HeadDeviations) -> None:
    """Only clean anechoic recordings of a second and more determine the mismatch."""
    atlas = ea.example_atlas()
    mismatch = mismatch_of(atlas, deviations)
    scene = ea.render_scene(
        ea.simulated_head([[40.0, 10.0]]),
        [ea.synthetic_speech(2.0)],
        [[40.0, 10.0]],
        settings=ea.SceneSettings(snr_db=60.0),
    )
    settings = mismatch.localizer.direct_sound.onset_settings
    onsets = replace(
        detect_onsets(scene.mixture.samples, settings),
        reverberation=ReverberationEstimate(decay_seconds=0.12, cue_variance=20.0),
    )
    assert mismatch.is_possible(2.0, onsets)
    assert not mismatch.is_possible(0.1, onsets)
    assert not mismatch.is_possible(2.0, replace(onsets, frames=0.3 * onsets.frames))
    assert not mismatch.is_possible(2.0, replace(onsets, snr_db=onsets.snr_db - 40))
    noisy = replace(onsets, snr_db=np.full(len(onsets), 12.0))
    assert not noisy.is_clean
    assert mismatch.is_possible(2.0, noisy)  # but another head then requires more evidence
    # Noise makes decays slower; in a room the cues of single frames scatter.
    slow = onsets.with_reverberation(decay_seconds=0.25)
    assert mismatch.is_possible(2.0, slow)
    assert not mismatch.is_possible(2.0, slow.with_reverberation(cue_variance=None))
    assert mismatch.is_possible(2.0, onsets.with_reverberation(cue_variance=None))
    for variance in (200.0, np.nan):
        assert not mismatch.is_possible(2.0, onsets.with_reverberation(cue_variance=variance))
    assert not mismatch.is_possible(2.0, onsets.with_reverberation(decay_seconds=0.4))


def test_cues_of_single_frames_scatter_in_a_room(small_head: ea.Head) -> None:
    """The relative variance of a sound is small without a room, and large in a small one."""
    atlas, direction = ea.example_atlas(), small_head.directions[90]
    sounds = []
    for room in (None, ea.Room(t60_seconds=0.15)):
        settings = ea.SceneSettings(snr_db=20.0)
        scene = ea.render_scene(
            small_head, [ea.synthetic_speech(2.0)], [direction], settings=settings, room=room
        )
        levels = LevelStatistics(atlas.layout)
        levels.push(ea.stft(scene.mixture.samples, atlas.layout.window, atlas.layout.hop))
        sounds.append(levels.statistics())
    silence = CueStatistics(*np.zeros((3, atlas.layout.n_cues)))
    statistics = CueStatistics.stack([*sounds, silence])
    variances = atlas.calibration.relative_variances(statistics)
    assert variances[0] < ReverberationSettings().max_cue_variance < variances[1]
    for sound, variance in zip(sounds, variances, strict=False):
        several = sound.counts > 4
        frame_noise = atlas.calibration.frame_noise
        assert frame_noise is not None
        ratios = (sound.scatter / np.maximum(sound.counts, 1) / frame_noise)[several]
        assert variance == pytest.approx(np.quantile(ratios, 0.9), rel=1e-9)
    assert np.isnan(variances[2])
    unknown = replace(atlas.calibration, frame_noise=None)
    assert np.isnan(unknown.relative_variances(statistics)).all()


def test_noise_requires_more_evidence(deviations: HeadDeviations) -> None:
    """A small deviation is that of the head without noise, and may be that of noise with it."""
    atlas = ea.example_atlas()
    mismatch = mismatch_of(atlas, deviations)
    scene = ea.render_scene(
        ea.simulated_head([[40.0, 10.0]]), [ea.synthetic_speech(2.0)], [[40.0, 10.0]]
    )
    settings = mismatch.localizer.direct_sound.onset_settings
    onsets = detect_onsets(scene.mixture.samples, settings)
    noisy = replace(onsets, snr_db=np.full(len(onsets), 12.0))
    clean = replace(onsets, snr_db=np.full(len(onsets), 30.0))
    cues = atlas.model.forward_map(np.array([[40.0, 0.0]]))[0]
    shift = deviations.bands.expand(deviations.loadings[0] @ np.array([1.5, -1.0, 1.0]))
    gains, found, own = [], [], atlas.localize(scene.mixture).posterior
    for amount in (0.25, 1.5):
        sound = effective(atlas, cues + amount * shift)
        gains.append(mismatch.heads.most_probable(sound).gain_nats)
        found.append([mismatch.posterior(own, sound[0], bins) for bins in (clean, noisy)])
    assert 0 < gains[0] < mismatch.settings.noisy_nats < gains[1]
    assert [[one is None for one in row] for row in found] == [[False, True], [False, False]]


def test_bins_of_several_sources_reveal_a_room(deviations: HeadDeviations) -> None:
    """Several sources decay slowly without a room, but only in a room do their bins scatter."""
    atlas = ea.example_atlas()
    mismatch = mismatch_of(atlas, deviations)
    scene = ea.render_scene(
        ea.simulated_head([[40.0, 10.0]]), [ea.synthetic_speech(2.0)], [[40.0, 10.0]]
    )
    settings = mismatch.localizer.direct_sound.onset_settings
    onsets = replace(
        detect_onsets(scene.mixture.samples, settings),
        reverberation=ReverberationEstimate(decay_seconds=0.25, snr_db=20.0),
    )
    assert not mismatch.is_possible(2.0, onsets.with_reverberation(cue_variance=200.0))

    def possible(ratio: float, bins: OnsetBins, variance: float) -> bool:
        completed = bins.with_reverberation(cue_variance=variance, n_sources=2)
        return mismatch.is_possible(ratio, completed)

    assert possible(2.0, onsets, 200.0)
    assert not possible(2.0, onsets, 400.0)
    fast = replace(onsets, reverberation=ReverberationEstimate(decay_seconds=0.15, snr_db=20.0))
    assert possible(2.0, fast, 400.0)
    assert not possible(2.0, fast, 500.0)
    assert not possible(0.9, onsets, 200.0)  # the head fits: saves the time
    assert not possible(2.0, replace(onsets, frames=0.3 * onsets.frames), 200.0)
    for decay_seconds, snr_db in ((0.4, 20.0), (0.25, 12.0)):
        other = ReverberationEstimate(decay_seconds=decay_seconds, snr_db=snr_db)
        assert not possible(2.0, replace(onsets, reverberation=other), 200.0)


def test_sources_share_the_magnitude(deviations: HeadDeviations) -> None:
    """The evidence of two sources is the sum of theirs, and both have the posterior at one α."""
    atlas, rng = ea.example_atlas(), np.random.default_rng(3)
    mismatch = mismatch_of(atlas, deviations)
    own = atlas.model.forward_map(np.array([[30.0, 10.0], [-70.0, 0.0]]))
    shifts = deviations.bands.expand((deviations.loadings[0] @ rng.normal(size=(3, 2))).T)
    cues = own + np.sqrt(2) * np.array([[0.3], [1.0]]) * shifts
    both = mismatch.heads.most_probable(effective(atlas, *cues))
    alone = [mismatch.heads.most_probable(effective(atlas, one)) for one in cues]
    assert alone[0].magnitude <= both.magnitude <= alone[1].magnitude
    assert alone[0].magnitude < alone[1].magnitude
    assert both.gain_nats < sum(one.gain_nats for one in alone)
    scale = atlas.calibration.temperature / mismatch.settings.temperature
    model = deviations.deviating(atlas.model, both.magnitude)
    for m, one in enumerate(both.cue_posteriors):
        expected = model.posteriors(effective(atlas, cues[m]).scaled(scale))[0]
        np.testing.assert_allclose(one.weights, expected.weights, atol=1e-12)


def test_other_head_in_the_horizontal_plane(learned_heads: LearnedHeads) -> None:
    """Another head than the one on a circle is doubted, has wide radii, and is not a room."""
    azimuths = np.arange(-180.0, 180.0, 10.0)
    atlas = learned_heads.learn(ea.simulated_head(np.stack([azimuths, 0 * azimuths], axis=1)))
    assert atlas.space == ea.Circle()
    doubted = [0, 0]  # the learned head, the larger one
    for direction in ([[35.0, 0.0]], [[-65.0, 0.0]]):
        head = ea.simulated_head(direction)
        responses = head.responses()
        slower = ImpulseResponses(responses.samples, round(responses.rate / 1.2))
        radii = []
        for larger, hearing in enumerate((head, ea.Head("larger", head.directions, slower))):
            scene = ea.render_scene(hearing, [ea.synthetic_speech(3.0, seed=3)], direction)
            found = atlas.localize(scene.mixture)
            kinds = {doubt.word for doubt in found.doubts}
            assert DoubtKind.REVERBERANT not in kinds
            doubted[larger] += DoubtKind.HEAD_MISMATCH in kinds
            radii.append(found.radius_90)
        assert radii[1] > radii[0]
    assert doubted[1] > doubted[0] == 0


def test_undecided_evidence_keeps_half_of_the_own_posterior(deviations: HeadDeviations) -> None:
    """If held-out directions of the head reach the evidence of another head, both may be right."""
    atlas = ea.example_atlas()
    scene = ea.render_scene(
        ea.simulated_head([[40.0, 10.0]]), [ea.synthetic_speech(2.0)], [[40.0, 10.0]]
    )
    settings = atlas.reverberant_localizer.direct_sound.onset_settings  # type: ignore[union-attr]
    onsets = detect_onsets(scene.mixture.samples, settings)
    cues = atlas.model.forward_map(np.array([[-70.0, 0.0]]))[0]
    shift = deviations.bands.expand(deviations.loadings[0] @ np.array([1.5, -1.0, 1.0]))
    sound = effective(atlas, cues + np.sqrt(2) * shift)[0]
    own = atlas.model.posterior(effective(atlas, cues)[0])
    mismatch = mismatch_of(atlas, deviations)
    decided = mismatch.posterior(own, sound, onsets)
    undecided = replace(mismatch, heads=replace(mismatch.heads, own_nats=1e6))
    found = undecided.posterior(own, sound, onsets)
    assert decided is not None
    assert found is not None
    assert decided.magnitude >= 0.6
    assert found.magnitude == 0.3
    near = [np.mean(ea.great_circle_error(p.sample(2000), [-70, 0]) < 3) for p in
            (own, decided.posterior, found.posterior)]  # fmt: skip
    assert near[2] == pytest.approx((near[0] + near[1]) / 2, abs=0.05)
    assert near[0] - near[1] > 0.2


def test_deviations_need_the_same_cues(deviations: HeadDeviations) -> None:
    """Another layout of the cues, a plane, or a model with its own deviations: none."""
    atlas = ea.example_atlas()
    for space in (ea.Cylinder(), ea.Plane()):
        assert not deviations.apply_to(replace(atlas.model, space=space), atlas.layout)
    assert deviations.apply_to(atlas.model, atlas.layout)
    assert not deviations.apply_to(atlas.model, CueLayout(ild_band_hz=(0.0, 4000.0)))
    assert not deviations.apply_to(deviations.deviating(atlas.model, 0.3), atlas.layout)


@pytest.mark.parametrize(("magnitude", "doubted"), [(0.3, False), (0.6, True), (1.5, True)])
def test_magnitude_decides_about_the_doubt(magnitude: float, doubted: bool) -> None:
    """A determined magnitude replaces the tests of residual and onsets."""
    fit = HeadFit.measure(9.0, 1.0, 4.0, mismatch=magnitude)
    assert fit.other_head is doubted
    kinds = [doubt.word for doubt in fit.doubts()] if doubted else []
    assert kinds == [DoubtKind.HEAD_MISMATCH] * doubted


def test_learn_stores_the_unit(tmp_path: object) -> None:
    """`unit` is kept in the file; an unknown one is refused."""
    head = ea.simulated_head([[azimuth, 0.0] for azimuth in range(-90, 91, 20)])
    atlas = ea.learn(head, rooms=False, unit="same")
    file = atlas.save(f"{tmp_path}/same.atlas")
    assert ea.Atlas.load(file).about["unit"] == "same"
    assert "unit" not in ea.learn(head, rooms=False).about
    with pytest.raises(ea.InputError, match="unit must be 'same', 'other' or 'person', got 'twin'"):
        ea.learn(head, unit="twin")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_sources", "magnitude", "gain_nats", "doubted"),
    [(2, 1.0, 41, True), (2, 1.0, 39, False), (3, 1.0, 49, False), (3, 1, 51, True),
     (2, 0.3, 90, False)],
)  # fmt: skip
def test_evidence_of_all_sources_decides(
    deviations: HeadDeviations, n_sources: int, magnitude: float, gain_nats: float, doubted: bool
) -> None:
    """Errors of the masks give another head some evidence, more so with more sources."""
    atlas = ea.example_atlas()
    scene = ea.render_scene(
        ea.simulated_head([[40.0, 10.0]]), [ea.synthetic_speech(2.0)], [[40.0, 10.0]]
    )
    assert atlas.reverberant_localizer is not None
    settings = atlas.reverberant_localizer.direct_sound.onset_settings
    onsets = replace(
        detect_onsets(scene.mixture.samples, settings),
        reverberation=ReverberationEstimate(decay_seconds=0.25 if doubted else 0.19),
    )
    posterior = atlas.localize(scene.mixture).posterior
    located = [LocatedSource.static(posterior, Evidence(3.0, 300, 2.0, 1.0))] * n_sources
    cues = atlas.model.forward_map(np.array([[30.0, 10.0]]))[0]
    model = mismatch_of(atlas, deviations)
    found = model.heads.most_probable(effective(atlas, *[cues] * n_sources))
    mismatch = SceneMismatch(model, replace(found, magnitude=magnitude, gain_nats=gain_nats))
    diagnosis = diagnose_scene(atlas, located, onsets, 3.0, mismatch)
    kinds = [doubt.word for doubt in diagnosis.doubts()]
    assert kinds == [DoubtKind.HEAD_MISMATCH] * doubted
    assert mismatch.other_head is doubted


def test_sources_of_an_unknown_listener_have_the_posterior_of_localize() -> None:
    """With the atlas of people, deviations of the listener are integrated out for each source."""
    atlas, head = ea.people_atlas(), ea.simulated_head([[-60.0, 0.0], [40.0, 10.0]])
    voices = [ea.synthetic_speech(1.0, seed=m) for m in range(2)]
    mixture = ea.render_scene(head, voices, head.directions).mixture
    spectra = ea.stft(mixture.samples, atlas.layout.window, atlas.layout.hop)
    start = Initialization(atlas.separator, atlas.separator.coherent_bins(spectra, -60.0))
    fit = start.source_fit(start.at_directions(head.directions), OnsetDetections((), None))
    fit = replace(fit, residual_ratios=np.zeros(2))
    calibration = atlas.calibration.relaxed(fit.residual_factor)
    expected = [calibration.blur(one) for one in atlas.model.posteriors(fit.effective)]
    located = locate_static_sources(atlas, fit, (), None)
    for source, own in zip(located, expected, strict=True):
        points = ea.Sphere().grid(20.0)
        np.testing.assert_allclose(
            source.posterior.log_density(points), apply_front_prior(own).log_density(points)
        )


@pytest.mark.parametrize(("deviation", "other"), [(0.5, False), (2.5, True)])
def test_population_knows_heads_of_another_kind(deviation: float, other: bool) -> None:
    """Cues that deviate by more than people do are those of another kind of head."""
    atlas, rng = ea.people_atlas(), np.random.default_rng(5)
    model, mismatch = atlas.model, atlas.mismatch
    assert isinstance(model, ListenerPPAM)
    assert mismatch is not None
    k = int(Sphere().distance(model.centres, [60.0, 10.0]).argmin())
    z = rng.normal(size=model.loadings.shape[2])
    cues = model.b[k] + model.bands.expand(model.loadings[k] @ z)
    cues = cues + deviation * np.sqrt(model.residual[k]) * rng.normal(size=len(cues))
    found = mismatch.heads.most_probable(effective(atlas, cues))
    assert found.magnitude == float(other)


def test_posterior_of_a_population_contains_another_kind_of_head() -> None:
    """It is the mixture of both posteriors by a constant weight; a doubt needs evidence."""
    atlas, direction = ea.people_atlas(), [60.0, 10.0]
    scene = ea.render_scene(ea.simulated_head([direction]), [ea.synthetic_speech(2.0)], [direction])
    mismatch = atlas.mismatch
    assert mismatch is not None
    onsets = detect_onsets(scene.mixture.samples, mismatch.localizer.direct_sound.onset_settings)
    levels = LevelStatistics(atlas.layout)
    levels.push(ea.stft(scene.mixture.samples, atlas.layout.window, atlas.layout.hop))
    batch = atlas.calibration.calibrated_posteriors(
        atlas.model, CueStatistics.stack([levels.statistics()])
    )
    (own,) = batch.posteriors(np.arange(1))
    own = apply_front_prior(own)
    found = mismatch.heads.most_probable(batch.effective)
    mixed = mismatch.posterior(own, batch.effective[0], onsets)
    assert mixed is not None
    assert np.isnan(mixed.magnitude) == (found.gain_nats < mismatch.settings.clean_nats)
    strongest = onsets.by_frequency().strongest(10**6)
    likelihood = mismatch.localizer.direct_sound.log_likelihood(strongest)
    other = tempered_posterior(Sphere(), likelihood, mismatch.settings.onset_betas[1], 3.0)
    other = apply_front_prior(other.blurred([0.0, 3.0], [0.8, 0.2]))
    points, p = Sphere().grid(20.0), mismatch.settings.other_weight
    assert 0.01 < p < 0.1  # otherwise 90 % of the probability are never those of a member
    expected = (1 - p) * np.exp(own.log_density(points)) + p * np.exp(other.log_density(points))
    found_density = np.exp(mixed.posterior.log_density(points))
    # Components of weights below 1e-9 are left out of the mixture.
    np.testing.assert_allclose(found_density, expected, rtol=1e-6, atol=1e-12)


def test_adapted_listener_belongs_to_the_population() -> None:
    """Adaptation tests it with many recordings, so single ones are not tested again."""
    atlas = ea.people_atlas()
    J = atlas.population.n_coordinates
    assert atlas.mismatch is not None
    assert atlas.for_listener(Listener(np.zeros(J), 0.1 * np.eye(J))).mismatch is None


def test_another_head_needs_more_evidence_than_the_own_head_reaches(
    deviations: HeadDeviations,
) -> None:
    """Between sparse directions the own head deviates, too: the posterior is wide, no doubt."""
    atlas = ea.example_atlas()
    cues = atlas.model.forward_map(np.array([[40.0, 0.0]]))[0]
    shift = deviations.bands.expand(deviations.loadings[0] @ np.array([1.5, -1.0, 1.0]))
    sound = effective(atlas, cues + np.sqrt(2) * shift)
    every = MismatchSettings(held_out_charts=1000)
    heads = replace(mismatch_of(atlas, deviations).heads, settings=every)
    found = heads.most_probable(sound)
    nats = heads.other_head_nats(sound[0])
    assert found.magnitude >= 0.6
    assert 0 < nats <= found.gain_nats
    np.testing.assert_allclose(found.other_head_nats, nats, rtol=1e-6)
    assert not heads.fits(sound[0])
    for share, least, magnitude, fits in (
        (0.9, 0.0, found.magnitude, False), (1.1, 0.0, 0.3, False),  # limits of a doubt
        (0.0, 0.9, found.magnitude, False), (0.0, 1.1, 0.3, False),
        (2.9, 0.0, 0.3, False), (3.1, 0.0, 0.3, True),  # a fit requires less evidence
    ):  # fmt: skip
        settings = replace(every, doubt_nats=least * nats)
        limited = replace(heads, own_nats=share * nats, settings=settings)
        assert limited.certain_magnitude(found) == magnitude
        assert limited.fits(sound[0]) is fits
        assert limited.most_probable(sound).magnitude == found.magnitude


def test_held_out_sounds_limit_the_evidence(deviations: HeadDeviations) -> None:
    """The limit is the quantile over held-out sounds, each compared with its own refit."""
    atlas, rng = ea.example_atlas(), np.random.default_rng(6)
    directions = Sphere().grid(30.0)[:12]
    own = atlas.model.forward_map(directions)
    shifts = deviations.bands.expand((deviations.loadings[0] @ rng.normal(size=(3, 12))).T)
    cues = own + np.linspace(0, 1.5, 12)[:, None] * shifts
    sounds = CueStatistics.stack([CueStatistics.from_vector(one) for one in cues])
    refits = [atlas.model, replace(atlas.model, noise=2 * atlas.model.noise)] * 6
    nats = []
    for n in range(12):
        heads = replace(mismatch_of(atlas, deviations).heads, model=refits[n])
        one = atlas.calibration.effective_statistics(sounds[n], refits[n].noise)
        nats.append(heads.other_head_nats(one))
    found = held_out_nats(refits, sounds, atlas.calibration, deviations)
    np.testing.assert_allclose(found, np.quantile(nats, 0.9))
    assert found > 1
    few = MismatchSettings(held_out_sounds=1)
    assert held_out_nats(refits, sounds, atlas.calibration, deviations, few) == 0


def test_the_file_keeps_the_limit_of_a_sparse_head(small_head: ea.Head, tmp_path: Path) -> None:
    """Held-out directions of a sparse head reach some evidence of another head."""
    rows = Sphere().thin(small_head.directions, 30.0)
    sparse = ea.learn(small_head.subset(rows), rooms=False)
    assert sparse.about["held_out_nats"] > 0
    copy = ea.Atlas.load(sparse.save(tmp_path / "sparse.atlas"))
    assert copy.deviating_heads is not None
    assert copy.deviating_heads.own_nats == sparse.about["held_out_nats"]


@pytest.mark.parametrize(("decay_seconds", "used"), [(0.15, False), (0.5, True)])
def test_onsets_decide_in_a_room_that_the_anechoic_model_fits(
    decay_seconds: float, used: bool
) -> None:
    """The broad model of an unknown listener fits reverberation, but knows nothing of rooms."""
    atlas, direction = ea.people_atlas(), [60.0, 10.0]
    scene = ea.render_scene(ea.simulated_head([direction]), [ea.synthetic_speech(2.0)], [direction])
    localizer = atlas.reverberant_localizer
    assert localizer is not None
    settings = localizer.direct_sound.onset_settings
    onsets = replace(
        detect_onsets(scene.mixture.samples, settings),
        reverberation=ReverberationEstimate(decay_seconds=decay_seconds),
    )
    anechoic = apply_front_prior(atlas.localize(scene.mixture).posterior)
    ((posterior, nats),) = localizer.combine(
        np.array([0.7]), lambda rows: [anechoic] * len(rows), [onsets]
    )
    points = Sphere().grid(20.0)
    if used:
        strongest = onsets.by_frequency().strongest(settings.most_bins)
        likelihood = localizer.direct_sound.log_likelihood(strongest)
        expected = localizer.score_calibration.posterior(Sphere(), likelihood)
        assert nats == pytest.approx(float(likelihood.features[0]))
    else:
        expected = anechoic
        assert np.isnan(nats)
    np.testing.assert_allclose(posterior.log_density(points), expected.log_density(points))
