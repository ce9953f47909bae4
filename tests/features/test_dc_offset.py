"""DC offset of a stream: removed once it is detected, without other changes."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.input_samples import DCOffsetFilter

RATE = 16_000
OFFSET = np.array([[0.1], [-0.06]])


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """Two channels of speech without an offset, after a quiet beginning."""
    sounds = np.stack([ea.synthetic_speech(2.0, seed=1), 0.5 * ea.synthetic_speech(2.0, seed=2)])
    sounds -= sounds.mean(axis=1, keepdims=True)
    quiet = 1e-4 * np.random.default_rng(1).normal(size=(2, RATE // 4))
    return np.concatenate([quiet, 0.3 * sounds / np.abs(sounds).max()], axis=1)


def filter_stream(stream: DCOffsetFilter, x: np.ndarray, block: int) -> np.ndarray:
    """Return the output of the filter for sound in blocks."""
    parts = [stream.push(x[:, n : n + block]) for n in range(0, x.shape[1], block)]
    return np.concatenate([*parts, stream.finish()], axis=1)


@pytest.mark.parametrize("hop", [None, 256])
def test_sound_without_offset_is_unchanged(speech: np.ndarray, hop: int | None) -> None:
    """The samples are identical, with and without silence at the beginning."""
    for x in (speech, speech[:, RATE // 4 :], np.zeros((2, 5000))):
        np.testing.assert_array_equal(filter_stream(DCOffsetFilter(RATE, hop), x, 1000), x)


@pytest.mark.parametrize("hop", [None, 256])
def test_offset_is_removed_from_the_beginning(speech: np.ndarray, hop: int | None) -> None:
    """After a quiet beginning there is no step; the error is more than 30 dB below the sound."""
    found = filter_stream(DCOffsetFilter(RATE, hop), speech + OFFSET, 1000)
    assert found.shape == speech.shape
    assert np.abs(found - speech)[:, : RATE // 4].max() < 2e-3
    error = ((found - speech) ** 2).sum() / (speech**2).sum()
    assert 1e-9 < error < 1e-3


def test_offset_during_speech_is_removed_without_a_step(speech: np.ndarray) -> None:
    """If the stream begins with sound, the residual decays smoothly within a second."""
    x = speech[:, RATE // 4 :]
    left = filter_stream(DCOffsetFilter(RATE, 256), x + OFFSET, 1000) - x
    assert np.abs(left[:, RATE:]).max() < 0.01
    assert np.abs(np.diff(left)).max() < 1e-3


def test_offset_of_one_ear_does_not_change_the_other(speech: np.ndarray) -> None:
    """The channels are processed independently."""
    found = filter_stream(DCOffsetFilter(RATE), speech + OFFSET * [[1], [0]], 1000)
    np.testing.assert_array_equal(found[1], speech[1])
    assert np.abs(found[0] - speech[0]).max() < 0.01


def test_block_size_does_not_matter(speech: np.ndarray) -> None:
    """Blocks of any size give identical samples, for given and for default hops."""
    for hop in (None, 256):
        whole = filter_stream(DCOffsetFilter(RATE, hop), speech + OFFSET, 10**6)
        for block in (1, 77, 4000):
            x = speech[:, : 4000 + 20 * block]
            some = filter_stream(DCOffsetFilter(RATE, hop), x + OFFSET, block)
            until = x.shape[1] // 256 * 256 - 256
            np.testing.assert_array_equal(some[:, :until], whole[:, :until])


def test_streaming_localization_is_invariant_to_offset(
    atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Neither the direction nor its uncertainty depends on the offset."""
    sound = ea.render_scene(
        atlas_head, [ea.synthetic_speech(1.5, seed=4)], [[40, 0]]
    ).mixture.samples
    x = 0.3 * sound / np.abs(sound).max()

    def where(samples: np.ndarray) -> ea.Localization:
        stream = atlas.localizer(rate=RATE)
        stream.push(samples)
        return stream.finish()

    clean, with_offset = where(x), where(x + OFFSET)
    assert ea.great_circle_error(clean.direction, with_offset.direction) < 0.5
    assert with_offset.radius_90 == pytest.approx(clean.radius_90, rel=0.1)
    assert [doubt.word for doubt in with_offset.doubts] == [doubt.word for doubt in clean.doubts]


def test_live_sources_contain_no_offset(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """Live sources equal those without offset to the last sample, up to a small error."""
    ready = atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)
    synthetic_talkers = [ea.synthetic_speech(3.0, seed=1), ea.synthetic_speech(3.0, seed=2)]
    sound = ea.render_scene(atlas_head, synthetic_talkers, [[40, 0], [-60, 0]]).mixture.samples
    quiet = 1e-4 * np.random.default_rng(1).normal(size=(2, RATE // 2))
    x = np.concatenate([quiet, 0.3 * sound / np.abs(sound).max()], axis=1)

    def separate_live(samples: np.ndarray) -> np.ndarray:
        live = ready.live(rate=RATE)
        whole = np.zeros((2, *samples.shape))
        for report in (live.push(samples), live.finish()):
            for source in report.sources:
                if source.confirmed:
                    end = report.start + source.samples.shape[1]
                    whole[source.id - 1, :, report.start : end] = source.samples
        return whole

    clean, with_offset = separate_live(x), separate_live(x + OFFSET)
    late = slice(2 * RATE, None)
    # The filters look ahead: the padding after the last samples must not be a step.
    for part in (late, slice(-RATE // 20, None)):
        assert (clean[..., part] ** 2).sum(axis=(1, 2)).all()
        error = ((with_offset - clean)[..., part] ** 2).sum(axis=(1, 2))
        assert (error < 0.02 * (clean[..., part] ** 2).sum()).all()
