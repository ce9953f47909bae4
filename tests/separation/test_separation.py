"""Separation: sources are found, signals sum to the mixture, long recordings keep identities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import ArrayLike

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.errors import InputError
from earatlas.evaluation.directions import direction_errors
from earatlas.features.audio import resample
from earatlas.features.reverberation import DecayEstimator, ReverberationEstimate
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.learned_head import LearnedHead
from earatlas.separation.candidate_search import SourceCandidates
from earatlas.separation.demixing.band_extension import extend_band
from earatlas.separation.demixing.masks import apply_masks, binary_masks
from earatlas.separation.demixing.rendering import render_sources
from earatlas.separation.initialization import SourceFit
from earatlas.separation.pipeline import SeparationProgress
from earatlas.separation.result import Scene
from earatlas.separation.separator import ObservationSettings
from earatlas.separation.source_directions import LocatedSource, locate_static_sources
from earatlas.types import Array, Indices

RATE = 16_000
LEFT_AND_RIGHT = np.array([[55.0, 10.0], [-40.0, -5.0]])
EXACT: dict[str, Any] = {"rtol": 0.0, "atol": 1e-10}


def synthetic_talkers(
    directions: ArrayLike, seconds: float = 2.0, gains: Array | None = None
) -> ea.SimulatedScene:
    """Render synthetic talkers at directions between the learned ones, with optional gains."""
    directions = np.asarray(directions)
    signals = [ea.synthetic_speech(seconds, seed=m + 1) for m in range(len(directions))]
    if gains is not None:
        signals = [gain * sound for gain, sound in zip(gains, signals, strict=True)]
    return ea.render_scene(ea.simulated_head(directions), signals, directions)


def matched(scene: Scene, truth: ea.SimulatedScene) -> tuple[Indices, Array]:
    """Return the found source of each true one, and its error in degrees."""
    errors = great_circle_error(truth.directions[:, None], scene.directions[None])
    order = errors.argmin(axis=1)
    assert len(set(order)) == len(scene.sources), "two sources in one direction"
    return order, errors.min(axis=1)


def sdr(true: Array, found: Array) -> float:
    """Return the signal-to-distortion ratio of both ears, in dB."""
    return float(10 * np.log10((true**2).sum() / ((true - found) ** 2).sum()))


def level(x: Array) -> float:
    """Return the power in dB."""
    return float(10 * np.log10((x**2).mean()))


@pytest.fixture(scope="module")
def two() -> ea.SimulatedScene:
    """Return two synthetic talkers, left and right."""
    return synthetic_talkers(LEFT_AND_RIGHT)


@pytest.fixture(scope="module")
def found(atlas: Atlas, two: ea.SimulatedScene) -> Scene:
    """Return the separated scene of both."""
    return atlas.separate(two.mixture, n_sources=2)


# --- recordings in memory --------------------------------------------------------------------


def test_one_source_is_localized(atlas: Atlas) -> None:
    """With M=1 the posterior is bit-identical to `localize`, and the signal is the recording."""
    audio = synthetic_talkers([[63.0, 11.0]]).mixture
    source, where = atlas.separate(audio, n_sources=1).sources[0], atlas.localize(audio)
    np.testing.assert_array_equal(source.posterior.weights, where.posterior.weights)
    np.testing.assert_array_equal(source.posterior.means, where.posterior.means)
    np.testing.assert_array_equal(source.posterior.covariances, where.posterior.covariances)
    np.testing.assert_array_equal(source.direction, where.direction)
    np.testing.assert_array_equal(source.audio.samples, audio.samples)
    assert (source.mask == 1).all()
    assert source.share == 1


def test_two_sources_are_localized_and_separated(atlas: Atlas) -> None:
    """In front, behind and on one side, errors are a few degrees, and SDRs well above 0 dB.

    Upper limits of the accuracy detect a leak of the truth.
    """
    pairs = [[[70.0, 20.0], [-15.0, 0.0]], [[120.0, 0.0], [-60.0, 15.0]],
              [[-20.0, 30.0], [-130.0, -10.0]]]  # fmt: skip
    errors: list[float] = []
    distortions: list[float] = []
    for pair in pairs:
        truth = synthetic_talkers(pair)
        scene = atlas.separate(truth.mixture, n_sources=2)
        order, pair_errors = matched(scene, truth)
        errors.extend(pair_errors)
        for image, m in zip(truth.images, order, strict=True):
            audio = scene.sources[m].audio
            distortions.append(sdr(image, audio.samples))
    assert max(errors) < 8.0
    assert 0.05 < np.median(errors) < 4.0
    assert 10.0 < min(distortions) <= max(distortions) < 45.0


def test_three_sources(atlas: Atlas) -> None:
    """Three sources are localized by two ears."""
    truth = synthetic_talkers([[55.0, 10.0], [-40.0, -5.0], [170.0, 20.0]], 3.0)
    scene = atlas.separate(truth.mixture, n_sources=3)
    _, errors = matched(scene, truth)
    assert 0.05 < np.median(errors) < 6.0


def test_signals_sum_to_the_mixture(found: Scene, two: ea.SimulatedScene) -> None:
    """Signals sum to the mixture; masks and energy fractions sum to 1."""
    signals = [s.audio.samples for s in found.sources]
    np.testing.assert_allclose(sum(signals), two.mixture.samples, **EXACT)
    masks = found.masks
    assert masks.min() >= 0
    assert masks.max() <= 1
    np.testing.assert_allclose(masks.sum(axis=0), 1.0, atol=1e-6)
    assert sum(s.share for s in found.sources) == pytest.approx(1.0)
    np.testing.assert_array_equal(found.mixture.samples, two.mixture.samples)
    assert np.diff(found.free_energies).min() > -1e-6


def test_repr_and_json_of_a_scene(found: Scene, two: ea.SimulatedScene) -> None:
    """The repr is readable, JSON values are plain, and the spectrogram has the right size."""
    assert repr(found).startswith("Scene(2.0 s, 2 sources at (")
    assert [s.name for s in found.sources] == ["source1", "source2"]
    for source, direction in zip(found.sources, found.directions, strict=True):
        plain = source.to_dict()
        assert plain["direction"] == [round(float(v), 2) for v in direction]
        assert 0 < plain["credible_90_area"] < 10_000
        assert plain["alternatives"][0]["direction"] == plain["direction"]
        assert source.name in repr(source)
    masks = found.masks
    assert masks.shape == (2, 512, two.mixture.samples.shape[1] // 128 + 1)
    assert found.spectrogram.masks.shape == (2, 256, masks.shape[2])
    assert found.seconds == two.mixture.seconds


def test_number_of_sources_is_estimated(atlas: Atlas, two: ea.SimulatedScene, found: Scene) -> None:
    """One and two sources are counted; two give the same result as with a given number."""
    assert len(atlas.separate(synthetic_talkers([[63.0, 11.0]]).mixture).sources) == 1
    scene = atlas.separate(two.mixture)
    assert len(scene.sources) == 2
    np.testing.assert_allclose(scene.directions, found.directions, atol=1e-3)


def test_order_of_sources_is_independent_of_the_initialization(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source with most coherent bins comes first, in any order of the candidates."""
    best_sets = SourceCandidates.best_sets
    monkeypatch.setattr(
        SourceCandidates,
        "best_sets",
        lambda *arguments: [directions[::-1] for directions in best_sets(*arguments)],
    )
    scene = atlas.separate(two.mixture, n_sources=2)
    np.testing.assert_allclose(scene.directions, found.directions, atol=1e-6)
    np.testing.assert_allclose(scene.masks, found.masks, atol=1e-6)


def test_binary_rendering_uses_binary_masks(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """The signals are made by binary masks; the masks of the result stay soft."""
    scene = atlas.separate(two.mixture, n_sources=2, rendering="binary")
    np.testing.assert_array_equal(scene.masks, found.masks)
    spectra = stft(two.mixture.samples, 1024, 128)
    used = binary_masks(found.masks.astype(float))
    assert set(np.unique(used)) == {0.0, 1.0}
    expected = apply_masks(spectra, used, atlas.layout, two.mixture.samples.shape[1])
    signals = np.stack([s.audio.samples for s in scene.sources])
    soft = np.stack([s.audio.samples for s in found.sources])
    assert np.abs(signals - expected).max() < 1e-3 * np.abs(signals - soft).max()
    np.testing.assert_allclose(signals.sum(axis=0), two.mixture.samples, **EXACT)


def test_gain_of_the_recording_hardly_matters(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """Thresholds are in whole dB and one is absolute, so a gain changes a few bins only."""
    samples = two.mixture.samples
    for gain in (10.0, 0.1, 0.37):
        other = atlas.separate(ea.Audio(gain * samples, RATE), n_sources=2)
        errors = direction_errors(found.directions, other.directions)
        assert errors.great_circle_degrees.max() < 1.5


def test_mirrored_head_and_recording_give_a_mirrored_scene(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """Swapped ears of head and recording swap left and right and change nothing else.

    The grid of the candidate search is not symmetric, so the iterations differ.
    """
    scene = mirrored(atlas).separate(ea.Audio(two.mixture.samples[::-1], RATE), n_sources=2)
    np.testing.assert_allclose(scene.directions, found.directions * [-1, 1], atol=0.3)
    for ours, theirs in zip(scene.sources, found.sources, strict=True):
        assert sdr(theirs.audio.samples, ours.audio.samples[::-1]) > 25


def mirrored(atlas: Atlas) -> Atlas:
    """Return the head with swapped ears: levels, sines and azimuths change their signs."""
    model = atlas.model
    sign = np.where(atlas.layout.cue_kinds == "ipd_cos", 1.0, -1.0)
    flip = np.array([-1.0, 1.0])
    return replace(
        atlas,
        model=replace(
            model,
            centres=model.centres * flip,
            gammas=model.gammas * np.outer(flip, flip),
            A=model.A * sign[:, None] * flip,
            b=model.b * sign,
            latent=model.latent * sign[:, None],
        ),
    )


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 96_000])
def test_signals_have_the_rate_of_the_recording(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene, rate: int
) -> None:
    """The signals have the recording's length and sum to it; below 8 kHz they are unchanged."""
    audio = ea.Audio(resample(two.mixture.samples, RATE, rate)[:, :-3], rate)
    scene = atlas.separate(audio, n_sources=2)
    assert scene.rate == rate
    assert scene.mixture is audio
    signals = np.stack([s.audio.samples for s in scene.sources])
    assert {s.audio.rate for s in scene.sources} == {rate}
    np.testing.assert_allclose(signals.sum(axis=0), audio.samples, **EXACT)
    if rate > RATE:
        assert great_circle_error(scene.directions, found.directions).max() < 1.0
        for ours, theirs in zip(resample(signals, rate, RATE), found.sources, strict=True):
            n = ours.shape[1]
            assert sdr(theirs.audio.samples[:, :n], ours) > 40


def test_output_rate_can_be_given(atlas: Atlas, two: ea.SimulatedScene, found: Scene) -> None:
    """The signals sum to the recording at that rate; the layout's rate changes nothing."""
    audio = ea.Audio(resample(two.mixture.samples, RATE, 48_000), 48_000)
    scene = atlas.separate(audio, n_sources=2, rate=22_050)
    assert scene.rate == scene.mixture.rate == 22_050
    total = sum(s.audio.samples for s in scene.sources)
    np.testing.assert_allclose(total, audio.at_rate(22_050).samples, **EXACT)
    same = atlas.separate(two.mixture, n_sources=2, rate=RATE)
    for ours, theirs in zip(same.sources, found.sources, strict=True):
        np.testing.assert_array_equal(ours.audio.samples, theirs.audio.samples)


@pytest.mark.parametrize("rate", [1_999, 384_001, 44_100.5, 0])
def test_unsupported_output_rates_are_rejected(
    atlas: Atlas, two: ea.SimulatedScene, rate: float
) -> None:
    """Rates that are too low, too high or not whole numbers are rejected."""
    with pytest.raises(InputError) as error:
        atlas.separate(two.mixture, n_sources=2, rate=rate)  # type: ignore[arg-type]
    assert_message(error, "rate must be")


def test_recording_with_an_unsupported_rate_is_rejected(
    atlas: Atlas, two: ea.SimulatedScene
) -> None:
    """The rate of the recording is the output rate if none is given."""
    slow = ea.Audio(two.mixture.samples, 1_999)
    with pytest.raises(InputError) as error:
        atlas.separate(slow, n_sources=2)
    assert_message(error, "rate must be from 2000 to 384000 Hz for separated signals, got 1999.")


@pytest.mark.usefixtures("short_blocks")
def test_long_recordings_keep_their_rate(
    tmp_path: Path,
    atlas: Atlas,
    conversation: ea.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks at 44.1 kHz have no gaps or extra samples, in memory and from a file."""
    # 0.3 s is rounded to 0.304 s at 16 kHz, and to 0.32 s for whole samples at both rates.
    settings = ObservationSettings(block_seconds=2.0, overlap_seconds=0.32)
    monkeypatch.setattr(atlas.separator, "settings", settings)
    audio = conversation.mixture.at_rate(44_100)
    path = audio.write(tmp_path / "party.wav")
    _, files = atlas.separate_file(path, tmp_path / "out", n_sources=2)
    audio = ea.read_audio(path)  # with the rounding of the file
    scene = atlas.separate(audio, n_sources=2)
    signals = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(signals.sum(axis=0), audio.samples, **EXACT)
    for file, sound in zip(files, signals, strict=True):
        written, rate = soundfile.read(file)
        assert rate == 44_100
        np.testing.assert_allclose(written.T, sound, rtol=0, atol=1e-7)
    narrow = atlas.separate(audio, n_sources=2, rate=RATE)
    for sound, source in zip(signals, narrow.sources, strict=True):
        low = resample(sound, 44_100, RATE)[:, : source.audio.samples.shape[1]]
        assert sdr(source.audio.samples[:, : low.shape[1]], low) > 40


@pytest.mark.usefixtures("short_blocks")
def test_clipped_recording_with_dc_offset(atlas: Atlas, conversation: ea.SimulatedScene) -> None:
    """A recording at 48 kHz with clipping and a DC offset is separated."""
    samples = conversation.mixture.at_rate(48_000).samples
    peak = np.abs(samples).max()
    audio = ea.Audio(np.clip(samples, -peak / 2, peak / 2) + 0.2, 48_000)
    scene = atlas.separate(audio, n_sources=2)
    signals = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(signals.sum(axis=0), audio.samples, **EXACT)
    assert np.isfinite(signals).all()
    _, errors = matched(scene, conversation)
    assert errors.max() < 8.0
    narrow = atlas.separate(audio, n_sources=2, rate=RATE)
    for sound, source in zip(signals, narrow.sources, strict=True):
        low = resample(sound, 48_000, RATE)
        assert sdr(source.audio.samples, low) > 40


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros((2, RATE)), "The audio is silent"),
        (
            np.ones((2, 1000)),
            "too short: it lasts 62.5 ms, and at least one window of 64 ms is needed.",
        ),
        (np.ones((1, RATE)), "The audio has only one channel. Two channels are needed"),
        (np.full((2, RATE), np.nan), "audio must be finite"),
    ],
)
def test_invalid_recordings_are_rejected(atlas: Atlas, samples: Array, words: str) -> None:
    """Silent, short, mono and non-finite recordings are rejected."""
    with pytest.raises(InputError) as error:
        atlas.separate(ea.Audio(samples, RATE), n_sources=2)
    assert_message(error, words)


def test_recording_without_common_bins_is_rejected(atlas: Atlas) -> None:
    """With a dead microphone no bin is above the threshold in both ears."""
    samples = synthetic_talkers([[10.0, 0.0]]).mixture.samples * [[1.0], [1e-7]]
    with pytest.raises(InputError) as error:
        atlas.separate(ea.Audio(samples, RATE))
    assert_message(error, "no sound exceeds the thresholds in both ears at once.")


@pytest.mark.parametrize("sound", ["one ear 30 dB down", "a tone"])
def test_recordings_without_direction_are_separated(atlas: Atlas, sound: str) -> None:
    """A weak microphone or a test tone fits no direction, but causes no error."""
    noise = np.random.default_rng(0).normal(0, 0.1, RATE)
    tone = 0.3 * np.sin(2 * np.pi * 500 * np.arange(RATE) / RATE)
    samples = np.stack([noise, 0.03 * noise] if sound.startswith("one") else [tone, 0.5 * tone])
    for n_sources in (None, 2):
        scene = atlas.separate(ea.Audio(samples, RATE), n_sources=n_sources)
        assert np.isfinite(scene.directions).all()
        signals = [s.audio.samples for s in scene.sources]
        np.testing.assert_allclose(sum(signals), samples, **EXACT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_sources": 0}, "n_sources must be from 1 to 6, got 0."),
        ({"n_sources": 7}, "n_sources must be from 1 to 6, got 7."),
        ({"n_sources": -1}, "got -1."),
        ({"rendering": "hard"}, "must be one of spatial, soft, binary, got 'hard'."),
    ],
)
def test_invalid_options_are_rejected(
    atlas: Atlas, two: ea.SimulatedScene, options: dict[str, object], words: str
) -> None:
    """Numbers of sources out of range, and unknown renderings, are rejected."""
    with pytest.raises(InputError) as error:
        atlas.separate(two.mixture, **options)  # type: ignore[arg-type]
    assert_message(error, words)


def assert_message(error: pytest.ExceptionInfo[InputError], words: str) -> None:
    """Check the format of a message: the rule, the value, and a sentence with the remedy."""
    message = str(error.value)
    assert words in message
    if " must " in words:
        assert ", got " in message
    assert message.endswith(".")
    assert message.count(". ") >= 1, "the remedy is missing"


# --- long recordings and files ---------------------------------------------------------------


@pytest.fixture
def short_blocks(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the blocks, so that a few seconds are a long recording."""
    settings = ObservationSettings(block_seconds=2.0, overlap_seconds=0.3)
    monkeypatch.setattr(atlas.separator, "settings", settings)


@pytest.fixture(scope="module")
def conversation() -> ea.SimulatedScene:
    """Return 9.3 s of two talkers; the second is silent from 3 to 7.5 s, in two whole blocks."""
    time = np.arange(int(9.3 * RATE)) / RATE
    gains = np.stack([np.ones(len(time)), (time < 3) | (time > 7.5)])
    return synthetic_talkers(LEFT_AND_RIGHT, 9.3, gains)


@pytest.mark.usefixtures("short_blocks")
def test_sources_keep_their_identity(atlas: Atlas, conversation: ea.SimulatedScene) -> None:
    """Every block has the same sources in the same order, and a silent source stays silent."""
    scene = atlas.separate(conversation.mixture, n_sources=2)
    order, errors = matched(scene, conversation)
    assert 0.05 < errors.max() < 6.0
    pausing_track = scene.sources[order[1]].track
    silent_rows = (pausing_track.seconds > 3.2) & (pausing_track.seconds < 7.3)
    assert pausing_track.active[silent_rows].mean() < 0.1
    assert pausing_track.active[~silent_rows].mean() > 0.8
    assert scene.sources[order[0]].track.active.mean() > 0.8
    signals = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(signals.sum(axis=0), conversation.mixture.samples, **EXACT)
    assert signals.shape[2] == conversation.mixture.samples.shape[1]
    for begin in (0.0, 1.0, 7.3):
        part = slice(int(begin * RATE), int((begin + 2) * RATE))
        for image, m in zip(conversation.images, order, strict=True):
            assert 8.0 < sdr(image[:, part], signals[m][:, part]) < 60.0
    silent = slice(int(3.2 * RATE), int(7.3 * RATE))
    pausing = signals[order[1]]
    assert level(pausing[:, silent]) < level(pausing) - 20
    assert level(pausing[:, silent]) < level(conversation.mixture.samples[:, silent]) - 20
    masks = scene.masks
    assert masks.shape == (2, 512, signals.shape[2] // 128 + 1)
    np.testing.assert_allclose(masks.sum(axis=0), 1.0, atol=1e-6)
    assert np.diff(scene.free_energies).min() > -1e-6


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("reverberant", [False, True])
def test_reverberation_is_decided_once(
    atlas: Atlas,
    conversation: ea.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
    reverberant: bool,
) -> None:
    """All blocks, the band above the cues and the directions follow the first block."""
    ratio, seen = 0.05 if reverberant else 0.001, []

    def render(*arguments: Any, **options: Any) -> tuple[Array, ReverberationEstimate]:
        estimate = options["reverberation"]
        seen.append(estimate.diffuse_ratio)
        samples, spectra, masks, layout, _ = arguments
        signals, _ = render_sources(samples, spectra, masks, layout, "soft")
        return signals, replace(estimate, diffuse_ratio=estimate.diffuse_ratio or ratio)

    def extend(*arguments: Any) -> Array:
        seen.append(arguments[5].diffuse_ratio)
        return extend_band(*arguments)

    def locate(head: LearnedHead, fit: SourceFit, *_: object) -> list[LocatedSource]:
        reverberation = fit.detections.reverberation
        assert (reverberation.cue_variance, reverberation.n_sources) == (fit.relative_variance, 2)
        assert reverberation.reverberant is reverberant
        seen.append(reverberation.diffuse_ratio)
        return locate_static_sources(head, fit, [], None)

    monkeypatch.setattr("earatlas.separation.pipeline.locate_static_sources", locate)
    monkeypatch.setattr("earatlas.separation.source_masks.render_sources", render)
    monkeypatch.setattr("earatlas.separation.assembly.extend_band", extend)
    monkeypatch.setattr(DecayEstimator, "seconds", lambda _: 0.22)
    mixture = ea.Audio(conversation.mixture.samples[:, : 5 * RATE], RATE).at_rate(24_000)
    with nullcontext() if reverberant else pytest.warns(ea.EaratlasWarning, match="no effect"):
        scene = atlas.separate(mixture, n_sources=2, dry=True)
    assert len(seen) > 4
    assert seen == [None] + [ratio] * (len(seen) - 1)
    assert scene.dry is reverberant
    total = np.sum([source.audio.samples for source in scene.sources], axis=0)
    assert np.allclose(total, mixture.samples) is not reverberant


@pytest.mark.usefixtures("short_blocks")
def test_very_quiet_sound_is_not_a_source(atlas: Atlas) -> None:
    """The threshold is that of the whole recording, even if the loud part comes later."""
    time = np.arange(8 * RATE) / RATE
    gains = np.stack([1.0 * (time > 4.2), 1.0 * (time < 4)])
    truth = synthetic_talkers(LEFT_AND_RIGHT, 8.0, gains)
    mixture = truth.images[0] + 1e-3 * truth.images[1]
    scene = atlas.separate(ea.Audio(mixture, RATE))
    assert len(scene.sources) == 1
    assert great_circle_error(scene.directions[0], LEFT_AND_RIGHT[0]) < 8.0


@pytest.mark.usefixtures("short_blocks")
def test_blocks_of_digital_silence(atlas: Atlas, conversation: ea.SimulatedScene) -> None:
    """Blocks without observed bins, at the beginning and in the middle, give silence."""
    samples = conversation.mixture.samples.copy()
    samples[:, : int(2.5 * RATE)] = 0
    samples[:, 4 * RATE : 8 * RATE] = 0
    scene = atlas.separate(ea.Audio(samples, RATE), n_sources=2)
    signals = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(signals.sum(axis=0), samples, **EXACT)
    assert not signals[:, :, 5 * RATE : 7 * RATE].any()
    assert np.isfinite(scene.directions).all()


@pytest.mark.usefixtures("short_blocks")
def test_long_recording_of_one_source(atlas: Atlas) -> None:
    """The posterior is that of `localize`, and the signal is the recording."""
    audio = synthetic_talkers([[63.0, 11.0]], 5.0).mixture
    scene = atlas.separate(audio)
    assert len(scene.sources) == 1
    where = atlas.localize(audio)
    np.testing.assert_allclose(
        scene.sources[0].posterior.weights, where.posterior.weights, atol=1e-12
    )
    np.testing.assert_allclose(scene.sources[0].audio.samples, audio.samples, **EXACT)


@pytest.mark.usefixtures("short_blocks")
def test_file_and_memory_give_the_same_result(
    tmp_path: Path, atlas: Atlas, conversation: ea.SimulatedScene
) -> None:
    """Float files named after the recording hold the same signals; progress never decreases."""
    path = conversation.mixture.write(tmp_path / "party.wav")
    reported: list[float] = []
    scene, files = atlas.separate_file(
        path, tmp_path / "out", n_sources=2, progress=lambda *now: reported.append(now[0] / now[1])
    )
    whole = atlas.separate(ea.read_audio(path), n_sources=2)
    assert files == [tmp_path / "out" / f"party_source{m}.wav" for m in (1, 2)]
    assert sorted((tmp_path / "out").iterdir()) == files
    for file, ours, theirs in zip(files, scene.sources, whole.sources, strict=True):
        assert soundfile.info(file).subtype == "FLOAT"
        assert soundfile.info(file).samplerate == RATE
        written = soundfile.read(file, always_2d=True)[0].T
        np.testing.assert_allclose(written, theirs.audio.samples, rtol=0, atol=1e-7)
        np.testing.assert_allclose(ours.direction, theirs.direction, atol=1e-9)
        assert ours.share == pytest.approx(theirs.share)
        assert not isinstance(ours, ea.Source)
    assert not isinstance(scene, ea.Scene)
    assert scene.seconds == whole.seconds
    assert reported == sorted(reported)
    assert reported[0] >= 0
    assert reported[-1] == 1.0
    end_of_first_pass = reported[len(reported) // 2 - 1]
    assert end_of_first_pass == SeparationProgress.first_pass_fraction


def test_file_at_another_rate_with_other_channels(
    tmp_path: Path, atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """A file at 44.1 kHz with the ears in the third and first channel is separated."""
    left, right = resample(two.mixture.samples, RATE, 44_100)
    noise = np.random.default_rng(0).normal(0, 0.1, len(left))
    path = tmp_path / "three.wav"
    soundfile.write(path, np.stack([right, noise, left], axis=1), 44_100, "FLOAT")
    scene, files = atlas.separate_file(path, tmp_path, n_sources=2, channels=(2, 0))
    assert great_circle_error(scene.directions, found.directions).max() < 1.0
    total = sum(soundfile.read(file)[0].T for file in files)
    recording = ea.read_audio(path, channels=(2, 0))
    np.testing.assert_allclose(total, recording.samples, rtol=0, atol=1e-6)
    assert {soundfile.info(file).samplerate for file in files} == {44_100}
    _, files = atlas.separate_file(path, tmp_path, n_sources=2, channels=(2, 0), rate=RATE)
    assert {soundfile.info(file).samplerate for file in files} == {RATE}


def test_binary_file(tmp_path: Path, atlas: Atlas, two: ea.SimulatedScene) -> None:
    """Files have the same options as recordings in memory."""
    path = two.mixture.write(tmp_path / "x.wav")
    _, files = atlas.separate_file(path, tmp_path, n_sources=2, rendering="binary")
    scene = atlas.separate(ea.read_audio(path), n_sources=2, rendering="binary")
    for file, source in zip(files, scene.sources, strict=True):
        written = soundfile.read(file)[0].T
        np.testing.assert_allclose(written, source.audio.samples, rtol=0, atol=1e-7)


def broken_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield files that cannot be separated, and the expected message."""
    (folder / "noise.wav").write_bytes(np.random.default_rng(0).bytes(5000))
    yield folder / "noise.wav", "cannot be read as sound"
    soundfile.write(folder / "silent.wav", np.zeros((RATE, 2)), RATE)
    yield folder / "silent.wav", "is silent: all samples are zero"
    sound = np.random.default_rng(0).normal(0, 0.1, (RATE, 2))
    soundfile.write(folder / "mono.wav", sound[:, 0], RATE)
    yield folder / "mono.wav", "has only one channel"
    sound[-1, 0] = np.nan
    soundfile.write(folder / "nan.wav", sound, RATE, "FLOAT")
    yield folder / "nan.wav", "audio must be finite"
    yield folder / "missing.wav", "recording must be an existing file"


def test_broken_files_leave_nothing_behind(tmp_path: Path, atlas: Atlas) -> None:
    """Invalid files are rejected, and existing files in the folder are unchanged."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mono_source1.wav").write_text("older")
    for path, words in broken_files(tmp_path):
        with pytest.raises(InputError) as error:
            atlas.separate_file(path, out, n_sources=2)
        assert_message(error, words)
        assert [file.name for file in out.iterdir()] == ["mono_source1.wav"]
    assert (out / "mono_source1.wav").read_text() == "older"


@pytest.mark.usefixtures("short_blocks")
def test_interruption_leaves_nothing_behind(
    tmp_path: Path,
    atlas: Atlas,
    conversation: ea.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the third block fails, the samples written before are removed."""
    path = conversation.mixture.write(tmp_path / "party.wav")
    calls = []

    def failing(*arguments: object, **options: object) -> tuple[Array, ReverberationEstimate]:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return render_sources(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("earatlas.separation.source_masks.render_sources", failing)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(KeyboardInterrupt):
        atlas.separate_file(path, out, n_sources=2)
    assert len(calls) == 3
    assert list(out.iterdir()) == []


def test_unwritable_folder_is_rejected(
    tmp_path: Path, atlas: Atlas, two: ea.SimulatedScene
) -> None:
    """A folder cannot be created in place of a file; this is checked before any work."""
    path = two.mixture.write(tmp_path / "x.wav")
    for folder in (path, path / "deeper"):
        with pytest.raises(InputError) as error:
            atlas.separate_file(path, folder)
        assert_message(error, "output folder must be writable, got")
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_allclose(ea.read_audio(path).samples, two.mixture.samples, atol=1e-7)


def test_created_folder_is_removed_after_an_error(tmp_path: Path, atlas: Atlas) -> None:
    """Created parent folders are removed as well."""
    for path, words in broken_files(tmp_path):
        with pytest.raises(InputError, match=words):
            atlas.separate_file(path, tmp_path / "new" / "out", n_sources=2)
        assert not (tmp_path / "new").exists()


def test_short_file_is_rejected(tmp_path: Path, atlas: Atlas) -> None:
    """A file must be at least one window long, as in memory."""
    path = tmp_path / "short.wav"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, (500, 2)), RATE)
    with pytest.raises(InputError) as error:
        atlas.separate_file(path, tmp_path / "out", n_sources=2)
    assert_message(
        error, "too short: it lasts 31.2 ms, and at least one window of 64 ms is needed."
    )


@pytest.mark.parametrize("n_sources", [2.5, "2"])
def test_fractional_number_of_sources_is_rejected(
    atlas: Atlas, two: ea.SimulatedScene, n_sources: object
) -> None:
    """The number of sources must be an integer."""
    with pytest.raises(InputError, match="n_sources must be from 1 to 6"):
        atlas.separate(two.mixture, n_sources=n_sources)  # type: ignore[arg-type]
