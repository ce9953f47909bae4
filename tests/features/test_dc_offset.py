"""A converter's offset in a stream: taken out when it is clear, and nothing else changed."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.dc_offset import OffsetStream

RATE = 16_000
OFFSET = np.array([[0.1], [-0.06]])


@pytest.fixture(scope="module")
def words() -> np.ndarray:
    """Two ears of sound without an offset, after some quiet."""
    sounds = np.stack([ea.synthetic_speech(2.0, seed=1), 0.5 * ea.synthetic_speech(2.0, seed=2)])
    sounds -= sounds.mean(axis=1, keepdims=True)
    quiet = 1e-4 * np.random.default_rng(1).normal(size=(2, RATE // 4))
    return np.concatenate([quiet, 0.3 * sounds / np.abs(sounds).max()], axis=1)


def centred(stream: OffsetStream, x: np.ndarray, block: int) -> np.ndarray:
    """All that a stream gives of sound in blocks."""
    parts = [stream.push(x[:, n : n + block]) for n in range(0, x.shape[1], block)]
    return np.concatenate([*parts, stream.finish()], axis=1)


@pytest.mark.parametrize("hop", [None, 256])
def test_sound_without_an_offset_stays_as_it_is(words: np.ndarray, hop: int | None) -> None:
    """To the last digit, from its first word or from a silence before it."""
    for x in (words, words[:, RATE // 4 :], np.zeros((2, 5000))):
        np.testing.assert_array_equal(centred(OffsetStream(RATE, hop), x, 1000), x)


@pytest.mark.parametrize("hop", [None, 256])
def test_an_offset_is_gone_from_the_beginning_on(words: np.ndarray, hop: int | None) -> None:
    """Where quiet comes first, there is not even a step; only what a second's mean has is lost."""
    found = centred(OffsetStream(RATE, hop), words + OFFSET, 1000)
    assert found.shape == words.shape
    assert np.abs(found - words)[:, : RATE // 4].max() < 2e-3
    error = ((found - words) ** 2).sum() / (words**2).sum()
    assert 1e-9 < error < 1e-3


def test_an_offset_under_words_is_taken_out_without_a_step(words: np.ndarray) -> None:
    """Hops that begin amid sound: what is left falls to nothing in a second, and smoothly."""
    x = words[:, RATE // 4 :]
    left = centred(OffsetStream(RATE, 256), x + OFFSET, 1000) - x
    assert np.abs(left[:, RATE:]).max() < 0.01
    assert np.abs(np.diff(left)).max() < 1e-3


def test_one_ear_s_offset_leaves_the_other_alone(words: np.ndarray) -> None:
    """Each ear has a converter of its own."""
    found = centred(OffsetStream(RATE), words + OFFSET * [[1], [0]], 1000)
    np.testing.assert_array_equal(found[1], words[1])
    assert np.abs(found[0] - words[0]).max() < 0.01


def test_blocks_of_any_size_give_the_same(words: np.ndarray) -> None:
    """Samples, for hops that are given and for those of its own."""
    for hop in (None, 256):
        whole = centred(OffsetStream(RATE, hop), words + OFFSET, 10**6)
        for block in (1, 77, 4000):
            x = words[:, : 4000 + 20 * block]
            some = centred(OffsetStream(RATE, hop), x + OFFSET, block)
            until = x.shape[1] // 256 * 256 - 256
            np.testing.assert_array_equal(some[:, :until], whole[:, :until])


def test_a_stream_is_heard_without_its_offset(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """Where a sound is does not hang on the converter, nor how sure that is."""
    sound = ea.render_scene(
        atlas_head, [ea.synthetic_speech(1.5, seed=4)], [[40, 0]]
    ).mixture.samples
    x = 0.3 * sound / np.abs(sound).max()

    def where(samples: np.ndarray) -> ea.Localization:
        stream = atlas.localizer(rate=RATE)
        stream.push(samples)
        return stream.finish()

    clean, laden = where(x), where(x + OFFSET)
    assert ea.great_circle_error(clean.direction, laden.direction) < 0.5
    assert laden.radius_90 == pytest.approx(clean.radius_90, rel=0.1)
    assert [doubt.word for doubt in laden.doubts] == [doubt.word for doubt in clean.doubts]


def test_live_sources_have_none_of_the_offset(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """They sound as without, but for what the mean of a second has of it; to the last sample."""
    ready = atlas if atlas.rooms is not None else atlas.with_rooms(atlas_head)
    synthetic_talkers = [ea.synthetic_speech(3.0, seed=1), ea.synthetic_speech(3.0, seed=2)]
    sound = ea.render_scene(atlas_head, synthetic_talkers, [[40, 0], [-60, 0]]).mixture.samples
    quiet = 1e-4 * np.random.default_rng(1).normal(size=(2, RATE // 2))
    x = np.concatenate([quiet, 0.3 * sound / np.abs(sound).max()], axis=1)

    def heard(samples: np.ndarray) -> np.ndarray:
        live = ready.live(rate=RATE)
        whole = np.zeros((2, *samples.shape))
        for report in (live.push(samples), live.finish()):
            for source in report.sources:
                if source.confirmed:
                    end = report.start + source.samples.shape[1]
                    whole[source.id - 1, :, report.start : end] = source.samples
        return whole

    clean, laden = heard(x), heard(x + OFFSET)
    late = slice(2 * RATE, None)
    # Filters look ahead of the last samples: what comes after them must be no step.
    for part in (late, slice(-RATE // 20, None)):
        assert (clean[..., part] ** 2).sum(axis=(1, 2)).all()
        error = ((laden - clean)[..., part] ** 2).sum(axis=(1, 2))
        assert (error < 0.02 * (clean[..., part] ** 2).sum()).all()
