"""Posteriors of tracks: which head made the sound of several tracks."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.reverberation import ReverberationEstimate
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import apply_front_prior
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.reverberant_localizer import posterior_mixture
from earatlas.parts import SpreadComputation, complete
from earatlas.streaming.track_posteriors import TrackPosteriors, _Fit
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.online_track import OnlineTrack


@pytest.fixture(scope="module")
def posteriors() -> TrackPosteriors:
    """Return the posteriors of the tracks of a stream with the simulated head."""
    head = ea.example_atlas()
    assert head.reverberant_localizer is not None
    return TrackPosteriors(head, head.reverberant_localizer)


@pytest.fixture(scope="module")
def likelihood(posteriors: TrackPosteriors) -> DirectionLogLikelihood:
    """Return the likelihood of the onsets of a talker."""
    place = [[40.0, 0.0]]
    scene = ea.render_scene(ea.simulated_head(place), [ea.synthetic_speech(1.5)], place)
    direct_sound = posteriors._localizer.direct_sound
    detector = OnsetDetector(direct_sound.onset_settings)
    detector.push(scene.mixture.samples)
    detector.finish()
    return direct_sound.log_likelihood(detector.bins())


def fit_of_cues(
    posteriors: TrackPosteriors,
    likelihood: DirectionLogLikelihood,
    *,
    share: float,
    n_tracks: int,
    deviation: float,
) -> tuple[_Fit, _Fit]:
    """Return the fit of a track at (40, 0) with the learned head alone, and with the cues.

    `share` is that of the typical nats per onset, `deviation` that of the cues from those of the
    learned head, in standard deviations of its noise.
    """
    head, calibration = posteriors._head, posteriors._localizer.score_calibration
    means = head.model.forward_map(np.array([[40.0, 0.0]]))[0]
    noise = np.sqrt(head.model.noise) * np.random.default_rng(1).standard_normal(len(means))
    y, Q = means + deviation * noise, np.full(len(means), 300.0)
    cues = CueStatistics(Q, Q * y, Q * (y**2 + head.model.noise), 400.0)
    nats = share * calibration.typical_nats_per_onset
    before = _Fit(calibration.posterior(head.space, likelihood), nats_per_onset=nats)
    return before, complete(posteriors._with_cues_parts(before, likelihood, cues, None, n_tracks))


def test_cues_that_fit_are_those_of_the_learned_head(
    posteriors: TrackPosteriors, likelihood: DirectionLogLikelihood
) -> None:
    """A small residual determines the head, also of several tracks."""
    for n_tracks in (1, 2):
        _, fit = fit_of_cues(posteriors, likelihood, share=0.5, n_tracks=n_tracks, deviation=0.1)
        assert fit.residual_ratio < 0.4
        assert fit.mismatch == 0.08
        assert fit.posterior.radius_90 < 10


def test_onsets_decide_about_the_head_of_several_tracks(
    posteriors: TrackPosteriors, likelihood: DirectionLogLikelihood
) -> None:
    """Cues of several tracks deviate because of the masks; only poor onsets reveal another head."""
    kinds = {"share": 0.9, "n_tracks": 2, "deviation": 20.0}
    before, own = fit_of_cues(posteriors, likelihood, **kinds)  # type: ignore[arg-type]
    assert math.isnan(own.residual_ratio)  # no doubt about the head
    assert own.posterior.radius_90 == pytest.approx(before.posterior.radius_90)
    _, other = fit_of_cues(posteriors, likelihood, **{**kinds, "share": 0.6})  # type: ignore[arg-type]
    assert other.posterior.radius_90 > 2 * own.posterior.radius_90
    _, single = fit_of_cues(posteriors, likelihood, **{**kinds, "n_tracks": 1})  # type: ignore[arg-type]
    assert single.residual_ratio > 1


def test_only_track_in_a_room_has_the_posterior_of_a_recording(
    posteriors: TrackPosteriors,
) -> None:
    """The strongest onsets decide, as far as they are those of the track in the present pose."""
    sound, place = posteriors._localizer.direct_sound, [[40.0, 0.0]]
    scene = ea.render_scene(ea.simulated_head(place), [ea.synthetic_speech(1.5)], place)
    detector = OnsetDetector(sound.onset_settings)
    detector.push(scene.mixture.samples)
    detector.finish()
    bins = detector.bins()
    room = replace(bins, reverberation=ReverberationEstimate(0.4))
    anechoic = replace(bins, reverberation=ReverberationEstimate(0.1))

    def own_onsets(onsets: OnsetBins, n_tracks: int, since: float) -> OnsetBins | None:
        track = cast(OnlineTrack, SimpleNamespace(static_since=since))
        return posteriors._own_onsets(track, onsets, n_tracks)

    everything = own_onsets(room, 1, -math.inf)
    assert everything is not None
    np.testing.assert_array_equal(everything.t, room.t)
    later = own_onsets(room, 1, 0.5)
    assert later is not None
    assert 0 < len(later) < len(room)
    assert later.t.min() * sound.onset_settings.hop > 0.5 * sound.onset_settings.rate
    assert own_onsets(room, 1, 1.6) is None
    assert own_onsets(room, 2, -math.inf) is None
    assert own_onsets(anechoic, 1, -math.inf) is None
    # Its posterior is that of the recording, relative to the room.
    for yaw in (0.0, 30.0):
        likelihood = sound.log_likelihood(bins)
        directions = posteriors._head.space.rotated(likelihood.directions, yaw)
        likelihood = replace(likelihood, directions=directions)
        expected = complete(posteriors._points_parts(likelihood, None, room, 1, yaw))
        found = complete(posteriors._only_track_parts(bins, None, room, yaw))
        np.testing.assert_array_equal(found.vectors, expected.vectors)
        np.testing.assert_array_equal(found.log_densities, expected.log_densities)


def test_onsets_before_a_turn_or_beside_another_track_are_not_used() -> None:
    """The time since when a track is alone in one pose begins again."""
    head = ea.example_atlas()
    assert head.reverberant_localizer is not None
    posteriors = TrackPosteriors(head, head.reverberant_localizer)

    def alone_since(n_tracks: int, now: float, yaw: float) -> float:
        track = SimpleNamespace(moving=True, posterior=None)
        tracker = cast(OnlineTracker, SimpleNamespace(confirmed=[track] * n_tracks))
        posteriors.begin_updates(tracker, {}, None, now, yaw)
        return posteriors._alone_since

    assert alone_since(1, 1.0, 0.0) == -math.inf
    assert alone_since(2, 2.0, 0.0) == 2.0
    assert alone_since(1, 3.0, 0.5) == 2.0
    assert alone_since(1, 4.0, 5.0) == 4.0
    assert alone_since(1, 5.0, 5.0) == 4.0
    assert alone_since(1, 6.0, 5.9) == 4.0
    assert alone_since(1, 7.0, 6.8) == 7.0  # a slow turn: 1.8 degrees since 4 s
    assert alone_since(1, 8.0, 180.0) == 8.0
    assert alone_since(1, 9.0, -179.5) == 8.0


def test_another_head_is_not_known_to_deviate(posteriors: TrackPosteriors) -> None:
    """A decision about one learned head does not hold for the next one."""
    posteriors._other_head = True
    posteriors.use_head(posteriors._head)
    assert not posteriors._other_head


def test_update_does_not_depend_on_later_decisions(
    posteriors: TrackPosteriors, likelihood: DirectionLogLikelihood
) -> None:
    """An update in progress uses the decision about the head at its begin."""
    expected = complete(posteriors._points_parts(likelihood, None, None, 2, 0.0))
    update = SpreadComputation(posteriors._points_parts(likelihood, None, None, 2, 0.0))
    posteriors._other_head = True
    while not update.advance():
        pass
    posteriors._other_head = False
    np.testing.assert_array_equal(update.result.log_densities, expected.log_densities)


def test_one_track_of_a_population_may_be_that_of_another_kind_of_head() -> None:
    """Streams are not more certain than recordings: the other kind has the same weight."""
    atlas, place = ea.people_atlas(), [[40.0, 0.0]]
    localizer, mismatch = atlas.reverberant_localizer, atlas.mismatch
    assert localizer is not None
    assert mismatch is not None
    scene = ea.render_scene(ea.simulated_head(place), [ea.synthetic_speech(1.5)], place)
    detector = OnsetDetector(localizer.direct_sound.onset_settings)
    detector.push(scene.mixture.samples)
    detector.finish()
    likelihood = localizer.direct_sound.log_likelihood(detector.bins())
    fit = complete(TrackPosteriors(atlas, localizer)._fit_parts(likelihood, None, None, 1, 0.0))
    member = localizer.score_calibration.posterior(atlas.space, likelihood)
    other = mismatch.onset_posterior(1.0, likelihood)
    p, points = mismatch.settings.other_weight, ea.Sphere().grid(20.0)
    mixed = posterior_mixture(member, other, 1 - p)
    np.testing.assert_allclose(
        fit.posterior.log_density(points), apply_front_prior(mixed).log_density(points)
    )
    assert fit.posterior.radius_90 > apply_front_prior(member).radius_90
