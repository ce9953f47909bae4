"""Blocks, pictures and rendering: pieces put together again are the whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_audio
from earatlas.features.audio_writer import growing_sound_files
from earatlas.features.blocks import Block, CrossFade, Spans, overlapping
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.demixing.masking import binary_masks, render
from earatlas.separation.demixing.rendering import check_rendering
from earatlas.separation.progress import SURVEY, Passes
from earatlas.separation.spectrogram_summary import Picture, PictureBuilder

LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
LENGTH, OVERLAP = 40, 6


def blocks_of(x: np.ndarray, chunk: int) -> list[Block]:
    """The blocks of a recording that comes in chunks."""
    chunks = (x[:, i : i + chunk] for i in range(0, x.shape[1], chunk))
    return list(overlapping(chunks, LENGTH, OVERLAP))


# --- overlapping blocks ------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 33, 40, 61, 150, 1000])
@pytest.mark.parametrize("samples", [3, 40, 60, 61, 93, 94, 95, 307])
def test_blocks_overlap_and_cover_everything(samples: int, chunk: int) -> None:
    """The same blocks whatever the chunks; the last is longer than half a block, and the last."""
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
def test_identical_blocks_fade_into_the_whole(samples: int) -> None:
    """What all blocks agree on is not changed, of any shape."""
    x = np.random.default_rng(1).normal(size=(2, samples))
    fade = CrossFade(OVERLAP)
    parts = []
    for block in blocks_of(x, 33):
        values = np.stack([0.3 * block.samples, 0.7 * block.samples])  # (M, 2, n)
        parts.append(fade.push(values, last=block.last))
    whole = np.concatenate(parts, axis=-1)
    np.testing.assert_allclose(whole, [0.3 * x, 0.7 * x], rtol=1e-14)


def test_blocks_that_disagree_fade_without_a_step() -> None:
    """0, then 1, then 0: ramps in the overlaps, sums that stay, and a memory of its own."""
    fade, level = CrossFade(5), np.array([0.0, 1.0, 0.0])
    parts = []
    for i, value in enumerate(level):
        values = np.stack([np.full(20, value), np.full(20, 1 - value)])
        parts.append(fade.push(values, last=i == 2).copy())
        values[:] = np.nan  # the caller's array may be used again
    assert [part.shape for part in parts] == [(2, 15), (2, 15), (2, 20)]
    whole = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(whole.sum(axis=0), 1.0)
    ramp = [0.1, 0.3, 0.5, 0.7, 0.9]
    expected = np.concatenate([np.zeros(15), ramp, np.ones(10), ramp[::-1], np.zeros(15)])
    np.testing.assert_allclose(whole[0], expected, atol=1e-14)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_spans_of_a_recording(chunk: int) -> None:
    """Overlapping, apart, empty, beyond the end and to the end, whatever the chunks."""
    x = np.random.default_rng(2).normal(size=(2, 50))
    spans = Spans(x[:, i : i + chunk] for i in range(0, 50, chunk))
    for begin, end in ((0, 12), (7, 20), (25, 31), (31, 31), (40, 70), (44, None)):
        np.testing.assert_array_equal(spans.take(begin, end), x[:, begin:end])


# --- files that grow ---------------------------------------------------------------------------


def test_a_bar_tells_the_share_of_the_time() -> None:
    """Whatever the first pass and the finding took: from the first block of the second on."""
    now, told = 0.0, []
    passes = Passes(lambda done, total: told.append(done / total), lambda: now)
    for step in (1, 2, 3):  # a first pass of 3 s, guessed to be a fifth
        now = float(step)
        passes(SURVEY * step / 3, 1.0)
    now = 10.0  # finding took 7 s
    passes.find()
    for block in range(1, 11):  # ten blocks of 2 s, so it ends at 30 s
        now = 10.0 + 2 * block
        passes.again(block / 10)
        assert told[-1] == pytest.approx(now / 30)
    assert told == sorted(told)
    now, told = 0.0, []
    hasty = Passes(lambda done, total: told.append(done / total), lambda: now)
    hasty(0.9, 1.0)  # told too much: it waits
    hasty.find()
    now = 1.0
    hasty.again(0.1)
    assert told == [0.9, 0.9]


def test_sound_files_appear_together(tmp_path: Path) -> None:
    """Nothing can be seen before the end; then all of it is there, in float."""
    rng = np.random.default_rng(2)
    sounds = rng.normal(size=(3, 2, 50)) * 3  # louder than full scale: float does not clip
    names = ["a.wav", "b.wav", "c.wav"]
    folder = tmp_path / "new" / "folder"
    with growing_sound_files(folder, names, 8000) as append:
        for part in np.array_split(sounds, 4, axis=2):
            append(part)
        assert not list(folder.glob("*.wav"))
    assert sorted(file.name for file in folder.iterdir()) == names
    for name, sound in zip(names, sounds, strict=True):
        written, rate = soundfile.read(folder / name)
        assert rate == 8000
        np.testing.assert_allclose(written.T, sound, rtol=1e-6)


def test_sound_that_no_wav_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 GB: beyond them, the header has wider lengths."""
    monkeypatch.setattr("earatlas.features.wav._LARGEST_WAV", 8 * 100)
    sound = np.random.default_rng(3).normal(size=(1, 2, 100))
    for samples, kind in ((99, "WAV"), (100, "RF64")):
        with growing_sound_files(tmp_path, ["a.wav"], 8000, samples=samples) as append:
            append(sound[..., :samples])
        Audio(sound[0, :, :samples], 8000).write(tmp_path / "b.wav")
        for name in ("a.wav", "b.wav"):
            assert soundfile.info(tmp_path / name).format == kind
            np.testing.assert_allclose(
                read_audio(tmp_path / name).samples, sound[0, :, :samples], rtol=1e-6
            )


def test_sound_files_appear_all_or_none(tmp_path: Path) -> None:
    """An error leaves what was there, and nothing else; without one, it is replaced."""
    (tmp_path / "a.wav").write_text("older")

    def write(*, fail: bool) -> None:
        with growing_sound_files(tmp_path, ["a.wav", "b.wav"], 8000) as append:
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


def test_a_folder_in_the_way_of_a_file(tmp_path: Path) -> None:
    """Refused, and the other file does not appear either."""
    (tmp_path / "b.wav").mkdir()

    def write() -> None:
        with growing_sound_files(tmp_path, ["a.wav", "b.wav"], 8000) as append:
            append(np.ones((2, 2, 9)))

    with pytest.raises((InputError, OSError)) as error:
        write()
    assert [file.name for file in tmp_path.iterdir()] == ["b.wav"]
    assert isinstance(error.value, InputError)


def test_no_files_if_none_were_begun(tmp_path: Path) -> None:
    """Nothing is left of the scratch folder either."""
    with growing_sound_files(tmp_path, [], 8000):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """Refused before any work."""
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(InputError, match=r"output folder must be writable, got '.*taken' \(.+\)\. "),
        growing_sound_files(tmp_path / "taken", ["a.wav"], 8000),
    ):
        pytest.fail("the folder cannot be there")


# --- pictures ----------------------------------------------------------------------------------

M, T = 3, 23


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of 3 bins by 4 frames, the last ones smaller: F=8, T=23."""
    monkeypatch.setattr("earatlas.separation.spectrogram_summary._MOST_ROWS", 3)
    monkeypatch.setattr("earatlas.separation.spectrogram_summary._MOST_COLUMNS", 6)


def some_recording() -> tuple[np.ndarray, np.ndarray]:
    """Spectra (2, 9, T) of very unequal levels and masks (M, 8, T) that sum to 1."""
    rng = np.random.default_rng(3)
    spectra = 10 ** rng.uniform(-2, 0, (2, 9, T)) * np.exp(2j * np.pi * rng.random((2, 9, T)))
    spectra[:, 1:4, 4:8] *= 1e-4  # a cell in which nothing is heard
    return spectra, np.moveaxis(rng.dirichlet(np.ones(M), (8, T)), -1, 0)


def heard_in(spectra: np.ndarray) -> HeardBins:
    """The bins whose weaker ear is above -38 dB."""
    return HeardBins.of_spectra(spectra, LAYOUT, np.full(8, -38.0))


def picture_of(cuts: list[int]) -> Picture:
    """The picture of the recording, added in pieces."""
    spectra, masks = some_recording()
    builder = PictureBuilder(LAYOUT, T, M)
    edges = [0, *cuts, T]
    for first, last in pairwise(edges):
        part = spectra[:, :, first:last]
        power = bin_power(part, 16).sum(axis=0)
        builder.add(part, power, masks[:, :, first:last], first, heard_in(part))
    return builder.picture()


@pytest.mark.usefixtures("coarse")
def test_pieces_make_the_whole_picture() -> None:
    """Cut anywhere, also within a column."""
    whole, pieces = picture_of([]), picture_of([1, 6, 8, 17])
    for name in ("seconds", "frequencies_hz", "level_db", "ild_db", "masks"):
        ours, theirs = getattr(pieces, name), getattr(whole, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("coarse")
def test_a_cell_is_the_mean_of_its_bins() -> None:
    """Power of all bins, cues and masks of those that were heard; NaN where none was."""
    picture = picture_of([])
    spectra, masks = some_recording()
    heard, power = heard_in(spectra), bin_power(spectra, 16).sum(axis=0)
    where = set(zip(heard.f.tolist(), heard.t.tolist(), strict=True))
    assert repr(picture) == "Picture(3 sources, 3 x 6)"
    empty = 0
    for row in range(3):
        for column in range(6):
            bins = [
                (f, t)
                for f in range(3 * row, min(3 * row + 3, 8))
                for t in range(4 * column, min(4 * column + 4, T))
            ]
            level = 10 * np.log10(np.mean([power[f, t] for f, t in bins]))
            np.testing.assert_allclose(picture.level_db[row, column], level, rtol=1e-12)
            own = [(f, t) for f, t in bins if (f, t) in where]
            if not own:
                empty += 1
                assert np.isnan(picture.ild_db[row, column])
                assert np.isnan(picture.masks[:, row, column]).all()
                continue
            ratios = [spectra[1, f + 1, t] / spectra[0, f + 1, t] for f, t in own]
            ild = np.mean([20 * np.log10(abs(ratio)) for ratio in ratios])
            np.testing.assert_allclose(picture.ild_db[row, column], ild, rtol=1e-9)
            mask = np.mean([masks[:, f, t] for f, t in own], axis=0)
            np.testing.assert_allclose(picture.masks[:, row, column], mask, rtol=1e-12)
    assert empty == 1
    # Bins 1-3 have a mean of 2 Hz, frames 0-3 of 1.5 hops of 1/8 s.
    np.testing.assert_allclose(picture.frequencies_hz[:2], [2.0, 5.0])
    np.testing.assert_allclose(picture.seconds[:2], [1.5 / 8, 5.5 / 8])


def test_a_short_recording_is_shown_bin_by_bin() -> None:
    """A cell a bin and frame, at its own frequency and time."""
    picture = picture_of([])
    assert picture.masks.shape == (M, 8, T)
    np.testing.assert_allclose(picture.frequencies_hz, LAYOUT.frequencies_hz)
    np.testing.assert_allclose(picture.seconds, np.arange(T) / 8)


def test_a_long_recording_has_a_picture_of_bounded_size() -> None:
    """Hours take no more room than seconds."""
    picture = PictureBuilder(CueLayout(), 450_000, 2).picture()
    assert picture.masks.shape[0] == 2
    assert picture.masks.shape[1] == 256
    assert 600 < picture.masks.shape[2] <= 1200
    assert picture.seconds[-1] == pytest.approx(3600, rel=2e-3)


# --- from masks to sound -----------------------------------------------------------------------


def test_rendered_sounds_add_up() -> None:
    """Soft and binary masks alike, 0 Hz included."""
    rng = np.random.default_rng(4)
    sound = rng.normal(size=(2, 101)) + 0.5  # with a DC offset
    spectra = stft(sound, 16, 2)
    masks = np.moveaxis(rng.dirichlet(np.ones(M), (8, spectra.shape[2])), -1, 0)
    for used in (masks, binary_masks(masks)):
        sounds = render(spectra, used, LAYOUT, 101)
        assert sounds.shape == (M, 2, 101)
        np.testing.assert_allclose(sounds.sum(axis=0), sound, atol=1e-12)


def test_a_mask_lets_its_own_bins_pass() -> None:
    """Two tones in different bins: each source gets its own; 0 Hz goes with the lowest bin."""
    time = np.arange(200) / 16
    low, high = (np.stack([np.cos(2 * np.pi * f * time)] * 2) for f in (2.0, 6.0))
    spectra = stft(low + high + 0.3, 16, 2)
    masks = np.zeros((2, 8, spectra.shape[2]))
    masks[0, :4], masks[1, 4:] = 1, 1  # bins 1-4 and 5-8 Hz
    sounds = render(spectra, masks, LAYOUT, 200)
    inner = slice(16, -16)  # whole windows
    np.testing.assert_allclose(sounds[0][:, inner], (low + 0.3)[:, inner], atol=1e-9)
    np.testing.assert_allclose(sounds[1][:, inner], high[:, inner], atol=1e-9)


def test_binary_masks_give_a_bin_to_one() -> None:
    """To the most probable source, and to the first of several."""
    masks = np.array([[0.2, 0.5, 1 / 3, 0.0], [0.7, 0.5, 1 / 3, 0.5], [0.1, 0.0, 1 / 3, 0.5]])
    expected = [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]
    np.testing.assert_array_equal(binary_masks(masks), expected)
    deep = binary_masks(masks.reshape(3, 2, 2))
    np.testing.assert_array_equal(deep.reshape(3, 4), expected)


def test_ways_to_make_sound() -> None:
    """Three, and an error that names them."""
    assert check_rendering("soft") == "soft"
    assert check_rendering("binary") == "binary"
    with pytest.raises(InputError, match=r"must be one of spatial, soft, binary, got 'hard'\."):
        check_rendering("hard")
