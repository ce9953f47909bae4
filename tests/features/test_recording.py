"""Overlapping blocks of long recordings, and incremental WAV files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_audio
from earatlas.features.audio_writer import incremental_wav_writer
from earatlas.features.recording import Block, CrossFade, SegmentReader, overlapping_blocks

LENGTH, OVERLAP = 40, 6


def blocks_of(x: np.ndarray, chunk: int) -> list[Block]:
    """Return the blocks of a recording that arrives in chunks."""
    chunks = (x[:, i : i + chunk] for i in range(0, x.shape[1], chunk))
    return list(overlapping_blocks(chunks, LENGTH, OVERLAP))


# --- overlapping blocks ------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 33, 40, 61, 150, 1000])
@pytest.mark.parametrize("samples", [3, 40, 60, 61, 93, 94, 95, 307])
def test_blocks_overlap_and_cover_the_recording(samples: int, chunk: int) -> None:
    """The chunk size does not matter, and the last block is longer than half a block."""
    x = np.random.default_rng(0).normal(size=(2, samples))
    blocks = blocks_of(x, chunk)
    hop = LENGTH - OVERLAP
    for i, block in enumerate(blocks):
        n = block.samples.shape[1]
        assert block.start == i * hop
        assert block.last == (i == len(blocks) - 1)
        assert n == LENGTH or block.last
        np.testing.assert_array_equal(block.samples, x[:, block.start : block.start + n])
    assert blocks[-1].start + blocks[-1].samples.shape[1] == samples
    assert blocks[-1].samples.shape[1] <= LENGTH + LENGTH // 2
    if len(blocks) > 1:
        assert blocks[-1].samples.shape[1] > OVERLAP + LENGTH // 2
    assert (len(blocks) == 1) == (samples <= 60)


@pytest.mark.parametrize("samples", [50, 95, 307])
def test_cross_fade_of_consistent_blocks(samples: int) -> None:
    """If the blocks agree in their overlaps, the values are unchanged."""
    x = np.random.default_rng(1).normal(size=(2, samples))
    fade = CrossFade(OVERLAP)
    parts = []
    for block in blocks_of(x, 33):
        values = np.stack([0.3 * block.samples, 0.7 * block.samples])  # (M, 2, n)
        parts.append(fade.push(values, last=block.last))
    whole = np.concatenate(parts, axis=-1)
    np.testing.assert_allclose(whole, [0.3 * x, 0.7 * x], rtol=1e-14)


def test_cross_fade_of_different_blocks() -> None:
    """The overlaps are linear ramps, sums are preserved, and the input is copied."""
    fade, level = CrossFade(5), np.array([0.0, 1.0, 0.0])
    parts = []
    for i, value in enumerate(level):
        values = np.stack([np.full(20, value), np.full(20, 1 - value)])
        parts.append(fade.push(values, last=i == 2).copy())
        values[:] = np.nan  # the caller may reuse the array
    assert [part.shape for part in parts] == [(2, 15), (2, 15), (2, 20)]
    whole = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(whole.sum(axis=0), 1.0)
    ramp = [0.1, 0.3, 0.5, 0.7, 0.9]
    expected = np.concatenate([np.zeros(15), ramp, np.ones(10), ramp[::-1], np.zeros(15)])
    np.testing.assert_allclose(whole[0], expected, atol=1e-14)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_segments_of_a_recording(chunk: int) -> None:
    """Segments may overlap, have gaps, be empty, or reach beyond the end."""
    x = np.random.default_rng(2).normal(size=(2, 50))
    reader = SegmentReader(x[:, i : i + chunk] for i in range(0, 50, chunk))
    for begin, end in ((0, 12), (7, 20), (25, 31), (31, 31), (40, 70), (44, None)):
        np.testing.assert_array_equal(reader.read(begin, end), x[:, begin:end])


# --- incremental WAV files ---------------------------------------------------------------------


def test_wav_files_appear_together(tmp_path: Path) -> None:
    """No file is visible before the end; then all are complete, in float."""
    rng = np.random.default_rng(2)
    sounds = rng.normal(size=(3, 2, 50)) * 3  # beyond full scale: float does not clip
    names = ["a.wav", "b.wav", "c.wav"]
    folder = tmp_path / "new" / "folder"
    with incremental_wav_writer(folder, names, 8000) as append:
        for part in np.array_split(sounds, 4, axis=2):
            append(part)
        assert not list(folder.glob("*.wav"))
    assert sorted(file.name for file in folder.iterdir()) == names
    for name, sound in zip(names, sounds, strict=True):
        written, rate = soundfile.read(folder / name)
        assert rate == 8000
        np.testing.assert_allclose(written.T, sound, rtol=1e-6)


def test_large_files_are_written_as_rf64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are too large for WAV have the format RF64."""
    monkeypatch.setattr("earatlas.features.wav._MAX_WAV_BYTES", 8 * 100)
    sound = np.random.default_rng(3).normal(size=(1, 2, 100))
    for samples, expected in ((99, "WAV"), (100, "RF64")):
        with incremental_wav_writer(tmp_path, ["a.wav"], 8000, samples=samples) as append:
            append(sound[..., :samples])
        Audio(sound[0, :, :samples], 8000).write(tmp_path / "b.wav")
        for name in ("a.wav", "b.wav"):
            assert soundfile.info(tmp_path / name).format == expected
            np.testing.assert_allclose(
                read_audio(tmp_path / name).samples, sound[0, :, :samples], rtol=1e-6
            )


def test_wav_files_appear_all_or_none(tmp_path: Path) -> None:
    """An error leaves existing files unchanged; without an error they are replaced."""
    (tmp_path / "a.wav").write_text("older")

    def write(*, fail: bool) -> None:
        with incremental_wav_writer(tmp_path, ["a.wav", "b.wav"], 8000) as append:
            append(np.ones((2, 2, 9)))
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fail=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]
    assert (tmp_path / "a.wav").read_text() == "older"
    write(fail=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.wav", "b.wav"]
    assert soundfile.info(tmp_path / "a.wav").frames == 9


def test_folder_with_the_name_of_a_wav_file(tmp_path: Path) -> None:
    """A folder in place of a WAV file is an error, and the other file does not appear either."""
    (tmp_path / "b.wav").mkdir()

    def write() -> None:
        with incremental_wav_writer(tmp_path, ["a.wav", "b.wav"], 8000) as append:
            append(np.ones((2, 2, 9)))

    with pytest.raises((InputError, OSError)) as error:
        write()
    assert [file.name for file in tmp_path.iterdir()] == ["b.wav"]
    assert isinstance(error.value, InputError)


def test_writer_without_files(tmp_path: Path) -> None:
    """A writer without files removes its scratch folder."""
    with incremental_wav_writer(tmp_path, [], 8000):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_output_folder_that_is_a_file(tmp_path: Path) -> None:
    """A file in place of the output folder is an error before anything is written."""
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(InputError, match=r"output folder must be writable, got '.*taken' \(.+\)\. "),
        incremental_wav_writer(tmp_path / "taken", ["a.wav"], 8000),
    ):
        pytest.fail("the folder cannot be created")
