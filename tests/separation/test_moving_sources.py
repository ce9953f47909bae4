"""Moving sources: a moving talker is one source, and the signals sum to the mixture."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import soundfile

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.features.impulse_responses import transfer_functions
from earatlas.features.reverberation import DecayEstimator
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.interaural_templates import InterauralTemplates, LocalLinearInterpolation
from earatlas.separation.bin_assignment import CueDensities
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.time_varying import interaural_ratios_at, separate_moving
from earatlas.separation.result import Scene
from earatlas.separation.source_masks import TrajectoryAssignment

RATE = 16_000
TRAJECTORY = ea.Trajectory((0, 5), ((60, 5), (-40, 5)))
STATIC_DIRECTION = (-75.0, 0.0)


@pytest.fixture(scope="module")
def moving_scene(atlas_head: ea.Head) -> ea.SimulatedScene:
    """Return 5 s of one talker who moves at 20 degrees per second and one static talker."""
    voices = [ea.synthetic_speech(5.0, seed=m) for m in (4, 5)]
    return ea.render_scene(atlas_head, voices, [TRAJECTORY, STATIC_DIRECTION])


@pytest.fixture(scope="module")
def found(atlas: Atlas, moving_scene: ea.SimulatedScene) -> Scene:
    """Return the separated scene."""
    return atlas.separate(moving_scene.mixture)


def sdr(true: np.ndarray, found: np.ndarray) -> float:
    """Return the signal-to-distortion ratio of both ears, in dB."""
    return float(10 * np.log10((true**2).sum() / ((true - found) ** 2).sum()))


def test_moving_and_static_talker(found: Scene, moving_scene: ea.SimulatedScene) -> None:
    """Two sources are found, one moving along its trajectory and one static, and separated."""
    assert len(found.sources) == 2
    assert sorted(source.moves for source in found.sources) == [False, True]
    moving, static = sorted(found.sources, key=lambda source: not source.moves)
    track = moving.track
    errors = great_circle_error(TRAJECTORY.at(track.seconds), track.directions)[track.active]
    assert 0.1 < np.median(errors) < 5.0
    assert np.mean(errors <= track.radius_90[track.active]) > 0.8
    assert np.ptp(track.directions[track.active, 0]) > 70
    static_directions = static.track.directions[static.track.active]
    assert np.ptp(static_directions, axis=0).max() == 0.0
    assert great_circle_error(np.array(STATIC_DIRECTION), static_directions[0]) < 8.0
    for image, source in zip(moving_scene.images, (moving, static), strict=True):
        assert 8.0 < sdr(image, source.audio.samples) < 40.0


def test_signals_of_moving_sources_sum_to_the_mixture(
    found: Scene, moving_scene: ea.SimulatedScene
) -> None:
    """Signals and masks sum up, the free energy increases, and JSON states the motion."""
    total = sum(source.audio.samples for source in found.sources)
    np.testing.assert_allclose(total, moving_scene.mixture.samples, atol=1e-10)
    np.testing.assert_allclose(found.masks.sum(axis=0), 1.0, atol=1e-6)
    assert np.diff(found.free_energies).min() > 0
    plain = [source.to_dict() for source in found.sources]
    assert [row["moves"] for row in plain] == [source.moves for source in found.sources]
    assert all(source.evidence.direct for source in found.sources)
    assert [row["evidence"]["misfit"] for row in plain] == [None, None]  # it is not known
    assert found.doubts == ()


def test_reverberation_and_noise_raise_doubts_about_moving_sources(
    atlas: Atlas, moving_scene: ea.SimulatedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doubts about the recording do not depend on whether its sources move."""
    samples = moving_scene.mixture.samples
    noise = 0.5 * samples.std() * np.random.default_rng(5).normal(size=samples.shape)
    noisy = atlas.separate(ea.Audio(samples + noise, RATE), n_sources=2, rendering="soft")
    assert any(source.moves for source in noisy.sources)
    assert [doubt.word for doubt in noisy.doubts] == ["noisy"]
    monkeypatch.setattr(DecayEstimator, "seconds", lambda _: 0.3)
    reverberant = atlas.separate(moving_scene.mixture, n_sources=2, rendering="soft")
    assert any(source.moves for source in reverberant.sources)
    assert [doubt.word for doubt in reverberant.doubts] == ["reverberant"]


def test_single_moving_talker_is_one_source(atlas: Atlas, moving_scene: ea.SimulatedScene) -> None:
    """The signal of a single moving source is the recording."""
    alone = ea.Audio(moving_scene.images[0], RATE)
    scene = atlas.separate(alone)
    assert len(scene.sources) == 1
    assert scene.sources[0].moves
    np.testing.assert_array_equal(scene.sources[0].audio.samples, alone.samples)
    posterior = scene.sources[0].posterior
    assert posterior.credible_area(0.9) > 600  # the posterior covers the whole trajectory


@pytest.mark.parametrize("rendering", ["spatial", "soft"])
def test_moving_sources_at_any_rate(
    atlas: Atlas, moving_scene: ea.SimulatedScene, rendering: Rendering
) -> None:
    """The signals have the length and rate of the recording and sum to it."""
    wide = moving_scene.mixture.at_rate(44_100)
    scene = atlas.separate(wide, n_sources=2, rendering=rendering)
    assert any(source.moves for source in scene.sources)
    total = sum(source.audio.samples for source in scene.sources)
    np.testing.assert_allclose(total, wide.samples, atol=1e-9)


def test_static_sources_are_not_affected(
    atlas: Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For static sources the trajectory search has no effect on the result."""
    voices = [ea.synthetic_speech(2.5, seed=m) for m in (1, 2)]
    scene = ea.render_scene(atlas_head, voices, [(55.0, 10.0), (-40.0, -5.0)])
    found = atlas.separate(scene.mixture)
    monkeypatch.setattr("earatlas.separation.pipeline.find_moving_trajectories", lambda *_: [])
    before = atlas.separate(scene.mixture)
    assert not any(source.moves for source in found.sources)
    for a, b in zip(found.sources, before.sources, strict=True):
        np.testing.assert_array_equal(a.audio.samples, b.audio.samples)
        np.testing.assert_array_equal(a.direction, b.direction)


def test_assignment_uses_the_cues_of_each_step(
    atlas: Atlas, moving_scene: ea.SimulatedScene
) -> None:
    """The first assignment equals the formula, bin by bin."""
    separator = atlas.separator
    layout, model = separator.layout, separator.source_model
    spectra = stft(moving_scene.mixture.samples[:, :RATE], layout.window, layout.hop)
    bins = separator.coherent_bins(spectra, -60.0)
    bins = bins.subset(np.arange(0, len(bins), len(bins) // 150))
    starts = np.array([0, 50, 90])
    directions = np.array([[[60.0, 5], [50, 5], [40, 5]], [STATIC_DIRECTION] * 3])
    assignment = TrajectoryAssignment(separator, bins, directions, starts)
    weights = np.random.default_rng(0).dirichlet((2, 3), len(assignment._vessl.cells)).T
    q, total = assignment._assign(model.noise, weights)
    np.testing.assert_allclose(q.sum(axis=0), 1.0)
    expected = 0.0
    for n in range(len(bins)):
        step = int((bins.t[n] >= starts).sum()) - 1
        moments = model.expected(directions[:, step])
        densities = CueDensities.from_moments(*moments, model.noise)
        logs = densities.of_bins(bins.subset(np.array([n])))[:, 0]
        logs += np.log(weights[:, assignment._vessl.cell[n]])
        expected += float(np.logaddexp(*logs))
        np.testing.assert_allclose(q[0, n], np.exp(logs[0] - np.logaddexp(*logs)), rtol=1e-9)
    assert total == pytest.approx(expected, rel=1e-9)


def test_interaural_ratios_equal_those_of_the_head(atlas_head: ea.Head) -> None:
    """At measured directions the ratios are those of the impulse responses at any frequency."""
    template_hz = np.arange(150.0, 7800.0, 41.67)
    templates = InterauralTemplates.of(atlas_head, template_hz)
    rows = np.array([3, 41, 300])
    at = LocalLinearInterpolation(rows[:, None], np.ones((3, 1)))
    frequencies_hz = np.array([210.0, 1005.3, 3333.0, 7000.1])
    ears = atlas_head.responses()
    left, right = np.moveaxis(
        transfer_functions(ears.samples[rows], ears.rate, frequencies_hz), 1, 0
    )
    np.testing.assert_allclose(
        interaural_ratios_at(templates, at, frequencies_hz), right / left, rtol=0.05
    )


def test_filters_follow_the_ratios(moving_scene: ea.SimulatedScene, atlas: Atlas) -> None:
    """The right ratios separate two sources, swapped ones do not; the signals sum up."""
    layout = atlas.layout
    x = moving_scene.images[:, :, : 2 * RATE]
    spectra = stft(x.sum(axis=0), layout.window, layout.hop)
    own = np.stack([stft(image, layout.window, layout.hop) for image in x])
    F, T = layout.n_frequencies, spectra.shape[-1]
    starts = np.arange(0, T, 16)
    blocks = [own[..., a : a + 16] for a in starts]
    cross = np.stack([(b[:, 1] * b[:, 0].conj()).sum(axis=-1)[:, 1:] for b in blocks], axis=1)
    power = np.stack([(np.abs(b[:, 0]) ** 2).sum(axis=-1)[:, 1:] for b in blocks], axis=1)
    ratios = cross / power
    uniform = np.full((2, F, T), 0.5)
    n = x.shape[-1]
    right = separate_moving(spectra, uniform, ratios, starts, layout, n)
    wrong = separate_moving(spectra, uniform, ratios[::-1], starts, layout, n)
    np.testing.assert_allclose(right.sum(axis=0), x.sum(axis=0), atol=1e-10)
    assert min(sdr(x[m], right[m]) for m in (0, 1)) > 8.0
    assert max(sdr(x[m], wrong[m]) for m in (0, 1)) < 3.0


def test_steps_of_constant_directions_equal_a_single_step(
    moving_scene: ea.SimulatedScene, atlas: Atlas
) -> None:
    """Whether a bin is negligible depends on the whole block, not on a step without sound."""
    layout, rng = atlas.layout, np.random.default_rng(3)
    x = moving_scene.mixture.samples[:, :RATE].copy()
    x[:, RATE // 2 :] *= 1e-5
    spectra = stft(x, layout.window, layout.hop)
    F, T = layout.n_frequencies, spectra.shape[-1]
    ratios = np.exp(rng.normal(size=(2, 1, F)) + 1j * rng.normal(size=(2, 1, F)))
    masks, starts = rng.dirichlet((1, 1), (F, T)).transpose(2, 0, 1), np.arange(0, T, 16)
    single = separate_moving(spectra, masks, ratios, starts[:1], layout, RATE)
    repeated = np.repeat(ratios, len(starts), axis=1)
    several = separate_moving(spectra, masks, repeated, starts, layout, RATE)
    np.testing.assert_allclose(several, single, atol=1e-12 * np.abs(x[:, RATE // 2 :]).max())


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("0,60,0/0.1,-60,0", "path must not jump"),
        ("0,60,0", "path must have two waypoints or more"),
        ("0,60,0/x,-60,0", "path must be SECONDS,AZIMUTH,ELEVATION"),
        ("3,60,0/1,-60,0", "path must have times"),
        ("0,0,0/9,180,0", "path must say which way it goes"),
    ],
)
def test_impossible_paths_are_rejected(
    path: str,
    message: str,
    tmp_path: Path,
    run: Callable[..., CompletedProcess[str]],
) -> None:
    """Each error is one sentence with exit code 2."""
    sound = tmp_path / "a.wav"
    soundfile.write(sound, ea.synthetic_speech(0.5, seed=1), RATE)
    done: Any = run(
        "simulate", "simulated", "--sound", f"{sound}:{path}", "-o", str(tmp_path / "out")
    )
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_path_outside_the_measured_directions_is_rejected() -> None:
    """A path must stay within the measured directions."""
    grid = ea.Sphere().grid(12.0)
    above = ea.simulated_head(grid[grid[:, 1] > -20])
    below = ea.Trajectory((0, 1), ((0, 0), (0, -80)))
    with pytest.raises(ea.InputError, match="path must"):
        ea.render_scene(above, [ea.synthetic_speech(0.5, seed=1)], [below])
    ea.render_scene(
        above, [ea.synthetic_speech(0.5, seed=1)], [ea.Trajectory((0, 1), ((0, 0), (0, 60)))]
    )


def test_slow_talker_in_a_short_recording(atlas: Atlas, moving_scene: ea.SimulatedScene) -> None:
    """Where 3 s of a moving talker resemble several static ones, it is one source that moves."""
    short = ea.Audio(moving_scene.images[0][:, : 3 * RATE], RATE)
    (source,) = atlas.separate(short, rendering="soft").sources
    assert source.moves
    errors = great_circle_error(TRAJECTORY.at(source.track.seconds), source.track.directions)
    assert 0.1 < np.median(errors[source.track.active]) < 6.0


def test_short_recordings_of_several_talkers_are_static(
    moving_scene: ea.SimulatedScene, atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trajectories are not searched in 3 s of a given number of sources, nor in less than 2 s."""

    def search(*_: object) -> None:
        raise AssertionError("trajectories were searched")

    monkeypatch.setattr("earatlas.tracking.offline.TrajectoryMixture", search)
    mixture = moving_scene.mixture
    for seconds, n_sources in ((3, 2), (1.9, None)):
        short = ea.Audio(mixture.samples[:, : int(seconds * RATE)], RATE)
        scene = atlas.separate(short, rendering="soft", n_sources=n_sources)
        assert not any(source.moves for source in scene.sources)
    with pytest.raises(AssertionError, match="trajectories were searched"):
        atlas.separate(mixture, rendering="soft")


@pytest.mark.parametrize(
    "seconds", [(0.0, 3.0, 0.0, 3.0), (0.0, 1.5, 1.5, 3.0)], ids=["together", "in turn"]
)
def test_static_talkers_in_a_short_recording(
    atlas: Atlas, atlas_head: ea.Head, seconds: tuple[float, float, float, float]
) -> None:
    """Two static talkers of unknown number are not one moving source, even if they take turns."""
    directions = atlas_head.directions[[120, 400]]
    voices = []
    for m, (start, end) in enumerate((seconds[:2], seconds[2:])):
        voice = ea.synthetic_speech(3.0, seed=20 + m)
        time = np.arange(len(voice)) / RATE
        voices.append(voice * ((time >= start) & (time < end)))
    mixture = ea.render_scene(atlas_head, voices, directions).mixture
    sources = atlas.separate(mixture, rendering="soft").sources
    assert not any(source.moves for source in sources)
    errors = great_circle_error(directions[:, None], np.array([s.direction for s in sources]))
    assert 0.0 < errors.min(axis=1).max() < 12.0
