"""Separation: sources are found, their sounds add up, and long recordings keep them apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
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
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error
from earatlas.separation.candidate_search import Sighting
from earatlas.separation.demixing.masking import binary_masks, render
from earatlas.separation.demixing.rendering import sounds_of
from earatlas.separation.progress import SURVEY
from earatlas.separation.result import Scene
from earatlas.separation.source_estimation import Found
from earatlas.types import Array, Indices

RATE = 16_000
LEFT_AND_RIGHT = np.array([[55.0, 10.0], [-40.0, -5.0]])
EXACT: dict[str, Any] = {"rtol": 0.0, "atol": 1e-10}


def synthetic_talkers(
    places: ArrayLike, seconds: float = 2.0, gates: Array | None = None
) -> ea.SimulatedScene:
    """SyntheticTalkers at exactly these directions, between the learned ones; `gates` are their volumes."""
    places = np.asarray(places)
    sounds = [ea.synthetic_speech(seconds, seed=m + 1) for m in range(len(places))]
    if gates is not None:
        sounds = [gate * sound for gate, sound in zip(gates, sounds, strict=True)]
    return ea.render_scene(ea.simulated_head(places), sounds, places)


def matched(scene: Scene, truth: ea.SimulatedScene) -> tuple[Indices, Array]:
    """Which found source each true one is, and by how many degrees it is off."""
    errors = great_circle_error(truth.directions[:, None], scene.directions[None])
    order = errors.argmin(axis=1)
    assert len(set(order)) == len(scene.sources), "two sources in one place"
    return order, errors.min(axis=1)


def sdr(true: Array, found: Array) -> float:
    """Signal to distortion of both ears, in dB."""
    return float(10 * np.log10((true**2).sum() / ((true - found) ** 2).sum()))


def level(x: Array) -> float:
    """Power in dB."""
    return float(10 * np.log10((x**2).mean()))


@pytest.fixture(scope="module")
def two() -> ea.SimulatedScene:
    """Two murmurs, from the left and from the right."""
    return synthetic_talkers(LEFT_AND_RIGHT)


@pytest.fixture(scope="module")
def found(atlas: Atlas, two: ea.SimulatedScene) -> Scene:
    """What is heard of them."""
    return atlas.separate(two.mixture, n_sources=2)


# --- recordings in memory --------------------------------------------------------------------


def test_one_source_is_localized(atlas: Atlas) -> None:
    """M=1: the posterior is that of `localize`, bit by bit, and all of the sound is its own."""
    audio = synthetic_talkers([[63.0, 11.0]]).mixture
    source, where = atlas.separate(audio, n_sources=1).sources[0], atlas.localize(audio)
    np.testing.assert_array_equal(source.posterior.weights, where.posterior.weights)
    np.testing.assert_array_equal(source.posterior.means, where.posterior.means)
    np.testing.assert_array_equal(source.posterior.covariances, where.posterior.covariances)
    np.testing.assert_array_equal(source.direction, where.direction)
    np.testing.assert_array_equal(source.audio.samples, audio.samples)
    assert (source.mask == 1).all()
    assert source.share == 1


def test_sources_are_found_and_told_apart(atlas: Atlas) -> None:
    """In front, behind and on one side: within degrees, and sound well above the mixture's 0 dB.

    Nothing is found to a hundredth of a degree or 30 dB: that would be the truth, leaked.
    """
    places = [[[70.0, 20.0], [-15.0, 0.0]], [[120.0, 0.0], [-60.0, 15.0]],
              [[-20.0, 30.0], [-130.0, -10.0]]]  # fmt: skip
    errors: list[float] = []
    distortions: list[float] = []
    for pair in places:
        truth = synthetic_talkers(pair)
        scene = atlas.separate(truth.mixture, n_sources=2)
        order, off = matched(scene, truth)
        errors.extend(off)
        for image, m in zip(truth.images, order, strict=True):
            audio = scene.sources[m].audio
            distortions.append(sdr(image, audio.samples))
    assert max(errors) < 8.0
    assert 0.05 < np.median(errors) < 4.0
    assert 10.0 < min(distortions) <= max(distortions) < 45.0


def test_three_sources(atlas: Atlas) -> None:
    """More sources than ears."""
    truth = synthetic_talkers([[55.0, 10.0], [-40.0, -5.0], [170.0, 20.0]], 3.0)
    scene = atlas.separate(truth.mixture, n_sources=3)
    _, off = matched(scene, truth)
    assert 0.05 < np.median(off) < 6.0


def test_sounds_add_up_to_the_mixture(found: Scene, two: ea.SimulatedScene) -> None:
    """Nothing is lost, masks are shares of bins, and so are the shares of energy."""
    sounds = [s.audio.samples for s in found.sources]
    np.testing.assert_allclose(sum(sounds), two.mixture.samples, **EXACT)
    masks = found.masks
    assert masks.min() >= 0
    assert masks.max() <= 1
    np.testing.assert_allclose(masks.sum(axis=0), 1.0, atol=1e-6)
    assert sum(s.share for s in found.sources) == pytest.approx(1.0)
    np.testing.assert_array_equal(found.mixture.samples, two.mixture.samples)
    assert np.diff(found.free_energies).min() > -1e-6


def test_scene_in_words_and_values(found: Scene, two: ea.SimulatedScene) -> None:
    """Readable to people and to programs; the picture has the sizes of the recording."""
    assert repr(found).startswith("Scene(2.0 s, 2 sources at (")
    assert [s.name for s in found.sources] == ["source1", "source2"]
    for source, direction in zip(found.sources, found.directions, strict=True):
        plain = source.to_dict()
        assert plain["direction"] == [round(float(v), 2) for v in direction]
        assert 0 < plain["credible_90_area"] < 10_000
        assert source.name in repr(source)
    masks = found.masks
    assert masks.shape == (2, 512, two.mixture.samples.shape[1] // 128 + 1)
    assert found.picture.masks.shape == (2, 256, masks.shape[2])
    assert found.seconds == two.mixture.seconds


def test_how_many_sources_is_found_out(atlas: Atlas, two: ea.SimulatedScene, found: Scene) -> None:
    """One and two; the answer for two is the same as when told."""
    assert len(atlas.separate(synthetic_talkers([[63.0, 11.0]]).mixture).sources) == 1
    scene = atlas.separate(two.mixture)
    assert len(scene.sources) == 2
    np.testing.assert_allclose(scene.directions, found.directions, atol=1e-3)


def test_order_of_sources_is_not_that_of_the_start(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source with most of the sure bins comes first, wherever the scout looked first."""
    best_sets = Sighting.best_sets
    monkeypatch.setattr(
        Sighting, "best_sets", lambda *wish: [directions[::-1] for directions in best_sets(*wish)]
    )
    scene = atlas.separate(two.mixture, n_sources=2)
    np.testing.assert_allclose(scene.directions, found.directions, atol=1e-6)
    np.testing.assert_allclose(scene.masks, found.masks, atol=1e-6)


def test_binary_rendering_gives_each_bin_to_one(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """The sound is that of masks of 0 and 1; the masks that are shown stay soft."""
    scene = atlas.separate(two.mixture, n_sources=2, rendering="binary")
    np.testing.assert_array_equal(scene.masks, found.masks)
    spectra = stft(two.mixture.samples, 1024, 128)
    used = binary_masks(found.masks.astype(float))
    assert set(np.unique(used)) == {0.0, 1.0}
    expected = render(spectra, used, atlas.layout, two.mixture.samples.shape[1])
    sounds = np.stack([s.audio.samples for s in scene.sources])
    soft = np.stack([s.audio.samples for s in found.sources])
    assert np.abs(sounds - expected).max() < 1e-3 * np.abs(sounds - soft).max()
    np.testing.assert_allclose(sounds.sum(axis=0), two.mixture.samples, **EXACT)


def test_gain_of_the_recording_changes_nothing(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """Thresholds are in whole dB and one is absolute, so gains change a few bins, no more."""
    samples = two.mixture.samples
    for gain in (10.0, 0.1, 0.37):
        other = atlas.separate(ea.Audio(gain * samples, RATE), n_sources=2)
        errors = direction_errors(found.directions, other.directions)
        assert errors.great_circle_degrees.max() < 1.5


def test_mirrored_head_hears_a_mirrored_scene(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """Ears exchanged on the head and in the recording: left is right, and nothing else changes.

    The scout's grid is no mirror image of itself, so the way to the answer is another one.
    """
    scene = mirrored(atlas).separate(ea.Audio(two.mixture.samples[::-1], RATE), n_sources=2)
    np.testing.assert_allclose(scene.directions, found.directions * [-1, 1], atol=0.3)
    for ours, theirs in zip(scene.sources, found.sources, strict=True):
        assert sdr(theirs.audio.samples, ours.audio.samples[::-1]) > 25


def mirrored(atlas: Atlas) -> Atlas:
    """The same head with its ears exchanged: levels, sines and azimuths change their signs."""
    model = atlas.model
    sign = np.where(atlas.layout.cue_kinds == "ipd_cos", 1.0, -1.0)
    east = np.array([-1.0, 1.0])
    return replace(
        atlas,
        model=replace(
            model,
            centres=model.centres * east,
            gammas=model.gammas * np.outer(east, east),
            A=model.A * sign[:, None] * east,
            b=model.b * sign,
            latent=model.latent * sign[:, None],
        ),
    )


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 96_000])
def test_sounds_have_the_rate_of_the_recording(
    atlas: Atlas, two: ea.SimulatedScene, found: Scene, rate: int
) -> None:
    """As many samples as came in, which add up to it; below 8 kHz they are what they were."""
    audio = ea.Audio(resample(two.mixture.samples, RATE, rate)[:, :-3], rate)
    scene = atlas.separate(audio, n_sources=2)
    assert scene.rate == rate
    assert scene.mixture is audio
    sounds = np.stack([s.audio.samples for s in scene.sources])
    assert {s.audio.rate for s in scene.sources} == {rate}
    np.testing.assert_allclose(sounds.sum(axis=0), audio.samples, **EXACT)
    if rate > RATE:
        assert great_circle_error(scene.directions, found.directions).max() < 1.0
        for ours, theirs in zip(resample(sounds, rate, RATE), found.sources, strict=True):
            n = ours.shape[1]
            assert sdr(theirs.audio.samples[:, :n], ours) > 40


def test_another_rate_can_be_asked_for(atlas: Atlas, two: ea.SimulatedScene, found: Scene) -> None:
    """The sounds add up to the recording at that rate; at the layout's, they are what they were."""
    audio = ea.Audio(resample(two.mixture.samples, RATE, 48_000), 48_000)
    scene = atlas.separate(audio, n_sources=2, rate=22_050)
    assert scene.rate == scene.mixture.rate == 22_050
    total = sum(s.audio.samples for s in scene.sources)
    np.testing.assert_allclose(total, audio.at_rate(22_050).samples, **EXACT)
    same = atlas.separate(two.mixture, n_sources=2, rate=RATE)
    for ours, theirs in zip(same.sources, found.sources, strict=True):
        np.testing.assert_array_equal(ours.audio.samples, theirs.audio.samples)


@pytest.mark.parametrize("rate", [1_999, 384_001, 44_100.5, 0])
def test_rates_that_no_filter_serves_are_refused(
    atlas: Atlas, two: ea.SimulatedScene, rate: float
) -> None:
    """Too low, too high, and no whole number."""
    with pytest.raises(InputError) as error:
        atlas.separate(two.mixture, n_sources=2, rate=rate)  # type: ignore[arg-type]
    refused(error, "rate must be")


def test_a_recording_at_such_a_rate_is_refused(atlas: Atlas, two: ea.SimulatedScene) -> None:
    """Unless another rate is asked for."""
    slow = ea.Audio(two.mixture.samples, 1_999)
    with pytest.raises(InputError) as error:
        atlas.separate(slow, n_sources=2)
    refused(error, "rate must be from 2000 to 384000 Hz for sounds to be separated, got 1999.")


@pytest.mark.usefixtures("short_blocks")
def test_long_recordings_keep_their_rate(
    tmp_path: Path,
    atlas: Atlas,
    conversation: ea.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In blocks at 44.1 kHz: no seam, no sample too many, in memory and from a file."""
    # 0.3 s would be rounded to 0.304 s at 16 kHz, and to 0.32 s where it is whole samples of both.
    monkeypatch.setattr("earatlas.separation.blocks._OVERLAP_SECONDS", 0.32)
    audio = conversation.mixture.at_rate(44_100)
    path = audio.write(tmp_path / "party.wav")
    _, files = atlas.separate_file(path, tmp_path / "out", n_sources=2)
    audio = ea.read_audio(path)  # as it was rounded for the file
    scene = atlas.separate(audio, n_sources=2)
    sounds = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(sounds.sum(axis=0), audio.samples, **EXACT)
    for file, sound in zip(files, sounds, strict=True):
        written, rate = soundfile.read(file)
        assert rate == 44_100
        np.testing.assert_allclose(written.T, sound, rtol=0, atol=1e-7)
    narrow = atlas.separate(audio, n_sources=2, rate=RATE)
    for sound, source in zip(sounds, narrow.sources, strict=True):
        low = resample(sound, 44_100, RATE)[:, : source.audio.samples.shape[1]]
        assert sdr(source.audio.samples[:, : low.shape[1]], low) > 40


@pytest.mark.usefixtures("short_blocks")
def test_clipped_sound_with_an_offset_keeps_adding_up(
    atlas: Atlas, conversation: ea.SimulatedScene
) -> None:
    """At 48 kHz, clipped at half of its peak, upon an offset of a fifth of full scale."""
    samples = conversation.mixture.at_rate(48_000).samples
    peak = np.abs(samples).max()
    audio = ea.Audio(np.clip(samples, -peak / 2, peak / 2) + 0.2, 48_000)
    scene = atlas.separate(audio, n_sources=2)
    sounds = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(sounds.sum(axis=0), audio.samples, **EXACT)
    assert np.isfinite(sounds).all()
    _, off = matched(scene, conversation)
    assert off.max() < 8.0
    narrow = atlas.separate(audio, n_sources=2, rate=RATE)
    for sound, source in zip(sounds, narrow.sources, strict=True):
        low = resample(sound, 48_000, RATE)
        assert sdr(source.audio.samples, low) > 40


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros((2, RATE)), "audio must not be silent"),
        (np.ones((2, 1000)), "audio must be at least one window long (64 ms), got 62.5 ms."),
        (np.ones((1, RATE)), "audio must have two channels (left, right), got 1."),
        (np.full((2, RATE), np.nan), "audio must be finite"),
    ],
)
def test_what_cannot_be_separated_is_refused(atlas: Atlas, samples: Array, words: str) -> None:
    """Silent, short, mono and broken recordings."""
    with pytest.raises(InputError) as error:
        atlas.separate(ea.Audio(samples, RATE), n_sources=2)
    refused(error, words)


def test_ears_that_hear_nothing_together_are_refused(atlas: Atlas) -> None:
    """A dead microphone leaves no bin that both ears hear."""
    samples = synthetic_talkers([[10.0, 0.0]]).mixture.samples * [[1.0], [1e-7]]
    with pytest.raises(InputError) as error:
        atlas.separate(ea.Audio(samples, RATE))
    refused(error, "audio must have sound that both ears hear above the thresholds, got none.")


@pytest.mark.parametrize("sound", ["one ear 30 dB down", "a tone"])
def test_what_fits_no_direction_is_separated_all_the_same(atlas: Atlas, sound: str) -> None:
    """A weak microphone, a test tone: no place explains them, but that is no reason to break."""
    noise = np.random.default_rng(0).normal(0, 0.1, RATE)
    tone = 0.3 * np.sin(2 * np.pi * 500 * np.arange(RATE) / RATE)
    samples = np.stack([noise, 0.03 * noise] if sound.startswith("one") else [tone, 0.5 * tone])
    for n_sources in (None, 2):
        scene = atlas.separate(ea.Audio(samples, RATE), n_sources=n_sources)
        assert np.isfinite(scene.directions).all()
        sounds = [s.audio.samples for s in scene.sources]
        np.testing.assert_allclose(sum(sounds), samples, **EXACT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_sources": 0}, "n_sources must be from 1 to 6, or left out to be found, got 0."),
        ({"n_sources": 7}, "n_sources must be from 1 to 6, or left out to be found, got 7."),
        ({"n_sources": -1}, "got -1."),
        ({"rendering": "hard"}, "must be one of spatial, soft, binary, got 'hard'."),
    ],
)
def test_wrong_wishes_are_refused(
    atlas: Atlas, two: ea.SimulatedScene, options: dict[str, object], words: str
) -> None:
    """Numbers of sources that two ears do not tell apart, and unknown ways to make sound."""
    with pytest.raises(InputError) as error:
        atlas.separate(two.mixture, **options)  # type: ignore[arg-type]
    refused(error, words)


def refused(error: pytest.ExceptionInfo[InputError], words: str) -> None:
    """The house wording: what must be, what was got, and a sentence that says what to do."""
    message = str(error.value)
    assert words in message
    assert " must " in message
    assert ", got " in message
    assert message.endswith(".")
    assert message.count(". ") >= 1, "nothing says what to do"


# --- long recordings and files ---------------------------------------------------------------


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long is a matter of seconds."""
    monkeypatch.setattr("earatlas.separation.blocks._BLOCK_SECONDS", 2.0)
    monkeypatch.setattr("earatlas.separation.blocks._OVERLAP_SECONDS", 0.3)


@pytest.fixture(scope="module")
def conversation() -> ea.SimulatedScene:
    """9.3 seconds of two murmurs; the second is silent from 3 to 7.5 s: in two whole blocks."""
    time = np.arange(int(9.3 * RATE)) / RATE
    gates = np.stack([np.ones(len(time)), (time < 3) | (time > 7.5)])
    return synthetic_talkers(LEFT_AND_RIGHT, 9.3, gates)


@pytest.mark.usefixtures("short_blocks")
def test_sources_stay_who_they_are(atlas: Atlas, conversation: ea.SimulatedScene) -> None:
    """Every block has the same sources in the same order, and a silent one stays silent."""
    scene = atlas.separate(conversation.mixture, n_sources=2)
    order, off = matched(scene, conversation)
    assert 0.05 < off.max() < 6.0
    absent = scene.sources[order[1]].track
    silent_rows = (absent.seconds > 3.2) & (absent.seconds < 7.3)
    assert absent.heard[silent_rows].mean() < 0.1
    assert absent.heard[~silent_rows].mean() > 0.8
    assert scene.sources[order[0]].track.heard.mean() > 0.8
    sounds = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(sounds.sum(axis=0), conversation.mixture.samples, **EXACT)
    assert sounds.shape[2] == conversation.mixture.samples.shape[1]
    for begin in (0.0, 1.0, 7.3):
        part = slice(int(begin * RATE), int((begin + 2) * RATE))
        for image, m in zip(conversation.images, order, strict=True):
            assert 8.0 < sdr(image[:, part], sounds[m][:, part]) < 60.0
    silent = slice(int(3.2 * RATE), int(7.3 * RATE))
    pausing = sounds[order[1]]
    assert level(pausing[:, silent]) < level(pausing) - 20
    assert level(pausing[:, silent]) < level(conversation.mixture.samples[:, silent]) - 20
    masks = scene.masks
    assert masks.shape == (2, 512, sounds.shape[2] // 128 + 1)
    np.testing.assert_allclose(masks.sum(axis=0), 1.0, atol=1e-6)
    assert np.diff(scene.free_energies).min() > -1e-6


@pytest.mark.usefixtures("short_blocks")
def test_what_is_quiet_beside_the_rest_is_no_source(atlas: Atlas) -> None:
    """The floor is that of the whole recording, also where its loud part comes later."""
    time = np.arange(8 * RATE) / RATE
    gates = np.stack([1.0 * (time > 4.2), 1.0 * (time < 4)])
    truth = synthetic_talkers(LEFT_AND_RIGHT, 8.0, gates)
    mixture = truth.images[0] + 1e-3 * truth.images[1]
    scene = atlas.separate(ea.Audio(mixture, RATE))
    assert len(scene.sources) == 1
    assert great_circle_error(scene.directions[0], LEFT_AND_RIGHT[0]) < 8.0


@pytest.mark.usefixtures("short_blocks")
def test_blocks_of_digital_silence(atlas: Atlas, conversation: ea.SimulatedScene) -> None:
    """Blocks without a single bin, at the beginning and in the middle, give silence."""
    samples = conversation.mixture.samples.copy()
    samples[:, : int(2.5 * RATE)] = 0
    samples[:, 4 * RATE : 8 * RATE] = 0
    scene = atlas.separate(ea.Audio(samples, RATE), n_sources=2)
    sounds = np.stack([s.audio.samples for s in scene.sources])
    np.testing.assert_allclose(sounds.sum(axis=0), samples, **EXACT)
    assert not sounds[:, :, 5 * RATE : 7 * RATE].any()
    assert np.isfinite(scene.directions).all()


@pytest.mark.usefixtures("short_blocks")
def test_a_long_recording_of_one(atlas: Atlas) -> None:
    """Its posterior is that of `localize`, and its sound the whole."""
    audio = synthetic_talkers([[63.0, 11.0]], 5.0).mixture
    scene = atlas.separate(audio)
    assert len(scene.sources) == 1
    where = atlas.localize(audio)
    np.testing.assert_allclose(
        scene.sources[0].posterior.weights, where.posterior.weights, atol=1e-12
    )
    np.testing.assert_allclose(scene.sources[0].audio.samples, audio.samples, **EXACT)


@pytest.mark.usefixtures("short_blocks")
def test_a_file_gives_what_its_samples_give(
    tmp_path: Path, atlas: Atlas, conversation: ea.SimulatedScene
) -> None:
    """Files of the same sounds in float, named after the recording; progress only grows."""
    path = conversation.mixture.write(tmp_path / "party.wav")
    told: list[float] = []
    scene, files = atlas.separate_file(
        path, tmp_path / "out", n_sources=2, progress=lambda *now: told.append(now[0] / now[1])
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
    assert told == sorted(told)
    assert told[0] >= 0
    assert told[-1] == 1.0
    assert told[len(told) // 2 - 1] == SURVEY, "the first of the two passes"


def test_file_at_another_rate_with_other_channels(
    tmp_path: Path, atlas: Atlas, two: ea.SimulatedScene, found: Scene
) -> None:
    """44.1 kHz, the left ear in the third channel and the right one in the first."""
    left, right = resample(two.mixture.samples, RATE, 44_100)
    noise = np.random.default_rng(0).normal(0, 0.1, len(left))
    path = tmp_path / "three.wav"
    soundfile.write(path, np.stack([right, noise, left], axis=1), 44_100, "FLOAT")
    scene, files = atlas.separate_file(path, tmp_path, n_sources=2, channels=(2, 0))
    assert great_circle_error(scene.directions, found.directions).max() < 1.0
    total = sum(soundfile.read(file)[0].T for file in files)
    heard = ea.read_audio(path, channels=(2, 0))
    np.testing.assert_allclose(total, heard.samples, rtol=0, atol=1e-6)
    assert {soundfile.info(file).samplerate for file in files} == {44_100}
    _, files = atlas.separate_file(path, tmp_path, n_sources=2, channels=(2, 0), rate=RATE)
    assert {soundfile.info(file).samplerate for file in files} == {RATE}


def test_binary_file(tmp_path: Path, atlas: Atlas, two: ea.SimulatedScene) -> None:
    """The options of a file are those of a recording."""
    path = two.mixture.write(tmp_path / "x.wav")
    _, files = atlas.separate_file(path, tmp_path, n_sources=2, rendering="binary")
    scene = atlas.separate(ea.read_audio(path), n_sources=2, rendering="binary")
    for file, source in zip(files, scene.sources, strict=True):
        written = soundfile.read(file)[0].T
        np.testing.assert_allclose(written, source.audio.samples, rtol=0, atol=1e-7)


def broken_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files that cannot be separated, and what is said of them."""
    (folder / "noise.wav").write_bytes(np.random.default_rng(0).bytes(5000))
    yield folder / "noise.wav", "recording must be a WAV"
    soundfile.write(folder / "silent.wav", np.zeros((RATE, 2)), RATE)
    yield folder / "silent.wav", "audio must not be silent"
    sound = np.random.default_rng(0).normal(0, 0.1, (RATE, 2))
    soundfile.write(folder / "mono.wav", sound[:, 0], RATE)
    yield folder / "mono.wav", "audio must have two channels"
    sound[-1, 0] = np.nan
    soundfile.write(folder / "nan.wav", sound, RATE, "FLOAT")
    yield folder / "nan.wav", "audio must be finite"
    yield folder / "missing.wav", "recording must be an existing file"


def test_broken_files_leave_nothing_behind(tmp_path: Path, atlas: Atlas) -> None:
    """Refused in the house wording; what was in the folder before is as it was."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mono_source1.wav").write_text("older")
    for path, words in broken_files(tmp_path):
        with pytest.raises(InputError) as error:
            atlas.separate_file(path, out, n_sources=2)
        refused(error, words)
        assert [file.name for file in out.iterdir()] == ["mono_source1.wav"]
    assert (out / "mono_source1.wav").read_text() == "older"


@pytest.mark.usefixtures("short_blocks")
def test_an_error_half_way_leaves_nothing_behind(
    tmp_path: Path,
    atlas: Atlas,
    conversation: ea.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third block fails when some sound has been written already."""
    path = conversation.mixture.write(tmp_path / "party.wav")
    calls = []

    def failing(*arguments: object, **wishes: object) -> Array:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return sounds_of(*arguments, **wishes)  # type: ignore[arg-type]

    monkeypatch.setattr("earatlas.separation.assembly.sounds_of", failing)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(KeyboardInterrupt):
        atlas.separate_file(path, out, n_sources=2)
    assert len(calls) == 3
    assert list(out.iterdir()) == []


def test_unwritable_folder_is_refused(tmp_path: Path, atlas: Atlas, two: ea.SimulatedScene) -> None:
    """A folder cannot be made where a file is; nothing is worked on before that is known."""
    path = two.mixture.write(tmp_path / "x.wav")
    for folder in (path, path / "deeper"):
        with pytest.raises(InputError) as error:
            atlas.separate_file(path, folder)
        refused(error, "output folder must be writable, got")
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_allclose(ea.read_audio(path).samples, two.mixture.samples, atol=1e-7)


def test_a_folder_that_was_made_is_removed_upon_an_error(tmp_path: Path, atlas: Atlas) -> None:
    """As scenes do: parents too."""
    for path, words in broken_files(tmp_path):
        with pytest.raises(InputError, match=words):
            atlas.separate_file(path, tmp_path / "new" / "out", n_sources=2)
        assert not (tmp_path / "new").exists()


def test_a_file_that_is_too_short_is_refused(tmp_path: Path, atlas: Atlas) -> None:
    """As in memory: less than a window."""
    path = tmp_path / "short.wav"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, (500, 2)), RATE)
    with pytest.raises(InputError) as error:
        atlas.separate_file(path, tmp_path / "out", n_sources=2)
    refused(error, "audio must be at least one window long (64 ms), got 31.2 ms.")


@pytest.mark.parametrize("n_sources", [2.5, "2"])
def test_a_part_of_a_source_is_refused(
    atlas: Atlas, two: ea.SimulatedScene, n_sources: object
) -> None:
    """A number of sources is a whole number."""
    with pytest.raises(InputError, match="n_sources must be from 1 to 6, or left out"):
        atlas.separate(two.mixture, n_sources=n_sources)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decay_seconds", "noisy", "room", "unsure"),
    [(0.15, False, False, False), (0.22, False, False, True), (0.22, True, False, False),
     (0.3, False, True, False), (np.nan, False, False, False)],
)  # fmt: skip
def test_a_dry_room_is_left_to_the_filters(
    decay_seconds: float, noisy: bool, room: bool, unsure: bool
) -> None:
    """How fast sound dies away tells the open and a room; between them, and not in noise, ε."""
    nothing = np.zeros(0, dtype=np.intp)
    onsets = OnsetBins(
        nothing, nothing, np.zeros((0, 2), dtype=complex), np.zeros(0), np.zeros(0), 0.0,
        decay_seconds=decay_seconds,
    )  # fmt: skip
    sources: Any = SimpleNamespace(heard=SimpleNamespace(onsets=onsets))
    found = Found(sources, RATE, iter([]), None, noisy)
    assert found.in_room == room
    assert found.may_be_room == unsure
