"""Blocks of long recordings, incremental WAV files, spectrogram summaries, and rendering."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_audio
from earatlas.features.audio_writer import incremental_wav_writer
from earatlas.features.blocks import Block, CrossFade, SegmentReader, overlapping_blocks
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout
from earatlas.features.stft import stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.demixing.masking import apply_masks, binary_masks
from earatlas.separation.demixing.rendering import check_rendering
from earatlas.separation.progress import FIRST_PASS_FRACTION, SeparationProgress
from earatlas.separation.spectrogram_summary import SpectrogramAccumulator, SpectrogramSummary

LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
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


def test_progress_is_proportional_to_time() -> None:
    """From the first block of the second pass on, whatever the first pass and the search took."""
    now, reported = 0.0, []
    progress = SeparationProgress(lambda done, total: reported.append(done / total), lambda: now)
    for step in (1, 2, 3):  # a first pass of 3 s, assumed to be a fifth
        now = float(step)
        progress(FIRST_PASS_FRACTION * step / 3, 1.0)
    now = 10.0  # the search took 7 s
    progress.begin_second_pass()
    for block in range(1, 11):  # ten blocks of 2 s, so it ends at 30 s
        now = 10.0 + 2 * block
        progress.report_second_pass(block / 10)
        assert reported[-1] == pytest.approx(now / 30)
    assert reported == sorted(reported)
    now, reported = 0.0, []
    optimistic = SeparationProgress(lambda done, total: reported.append(done / total), lambda: now)
    optimistic(0.9, 1.0)  # too optimistic: progress waits
    optimistic.begin_second_pass()
    now = 1.0
    optimistic.report_second_pass(0.1)
    assert reported == [0.9, 0.9]


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
    """It is an error, and the other file does not appear either."""
    (tmp_path / "b.wav").mkdir()

    def write() -> None:
        with incremental_wav_writer(tmp_path, ["a.wav", "b.wav"], 8000) as append:
            append(np.ones((2, 2, 9)))

    with pytest.raises((InputError, OSError)) as error:
        write()
    assert [file.name for file in tmp_path.iterdir()] == ["b.wav"]
    assert isinstance(error.value, InputError)


def test_writer_without_files(tmp_path: Path) -> None:
    """The scratch folder is removed."""
    with incremental_wav_writer(tmp_path, [], 8000):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_output_folder_that_is_a_file(tmp_path: Path) -> None:
    """It is an error before anything is written."""
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(InputError, match=r"output folder must be writable, got '.*taken' \(.+\)\. "),
        incremental_wav_writer(tmp_path / "taken", ["a.wav"], 8000),
    ):
        pytest.fail("the folder cannot be created")


# --- spectrogram summaries ---------------------------------------------------------------------

M, T = 3, 23


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of 3 bins by 4 frames, the last ones smaller: F=8, T=23."""
    monkeypatch.setattr("earatlas.separation.spectrogram_summary._MAX_ROWS", 3)
    monkeypatch.setattr("earatlas.separation.spectrogram_summary._MAX_COLUMNS", 6)


def some_recording() -> tuple[np.ndarray, np.ndarray]:
    """Spectra (2, 9, T) of very unequal levels and masks (M, 8, T) that sum to 1."""
    rng = np.random.default_rng(3)
    spectra = 10 ** rng.uniform(-2, 0, (2, 9, T)) * np.exp(2j * np.pi * rng.random((2, 9, T)))
    spectra[:, 1:4, 4:8] *= 1e-4  # a cell without observed bins
    return spectra, np.moveaxis(rng.dirichlet(np.ones(M), (8, T)), -1, 0)


def observed_bins(spectra: np.ndarray) -> ObservedBins:
    """Return the bins whose weaker ear is above -38 dB."""
    return ObservedBins.from_spectra(spectra, LAYOUT, np.full(8, -38.0))


def summarize(cuts: list[int]) -> SpectrogramSummary:
    """Return the summary of the recording, accumulated in parts."""
    spectra, masks = some_recording()
    builder = SpectrogramAccumulator(LAYOUT, T, M)
    edges = [0, *cuts, T]
    for first, last in pairwise(edges):
        part = spectra[:, :, first:last]
        power = bin_power(part, 16).sum(axis=0)
        builder.add(part, power, masks[:, :, first:last], first, observed_bins(part))
    return builder.summary()


@pytest.mark.usefixtures("coarse")
def test_summary_of_parts_equals_that_of_the_recording() -> None:
    """The recording may be split anywhere, also within a column."""
    whole, pieces = summarize([]), summarize([1, 6, 8, 17])
    for name in ("seconds", "frequencies_hz", "level_db", "ild_db", "masks"):
        ours, theirs = getattr(pieces, name), getattr(whole, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("coarse")
def test_cell_of_a_summary_is_the_mean_of_its_bins() -> None:
    """Power of all bins; cues and masks of the observed ones, NaN where there are none."""
    summary = summarize([])
    spectra, masks = some_recording()
    observed, power = observed_bins(spectra), bin_power(spectra, 16).sum(axis=0)
    where = set(zip(observed.f.tolist(), observed.t.tolist(), strict=True))
    assert repr(summary) == "SpectrogramSummary(3 sources, 3 x 6)"
    empty = 0
    for row in range(3):
        for column in range(6):
            bins = [
                (f, t)
                for f in range(3 * row, min(3 * row + 3, 8))
                for t in range(4 * column, min(4 * column + 4, T))
            ]
            level = 10 * np.log10(np.mean([power[f, t] for f, t in bins]))
            np.testing.assert_allclose(summary.level_db[row, column], level, rtol=1e-12)
            own = [(f, t) for f, t in bins if (f, t) in where]
            if not own:
                empty += 1
                assert np.isnan(summary.ild_db[row, column])
                assert np.isnan(summary.masks[:, row, column]).all()
                continue
            ratios = [spectra[1, f + 1, t] / spectra[0, f + 1, t] for f, t in own]
            ild = np.mean([20 * np.log10(abs(ratio)) for ratio in ratios])
            np.testing.assert_allclose(summary.ild_db[row, column], ild, rtol=1e-9)
            mask = np.mean([masks[:, f, t] for f, t in own], axis=0)
            np.testing.assert_allclose(summary.masks[:, row, column], mask, rtol=1e-12)
    assert empty == 1
    # Bins 1-3 have a mean of 2 Hz, frames 0-3 of 1.5 hops of 1/8 s.
    np.testing.assert_allclose(summary.frequencies_hz[:2], [2.0, 5.0])
    np.testing.assert_allclose(summary.seconds[:2], [1.5 / 8, 5.5 / 8])


def test_summary_of_a_short_recording_has_all_bins() -> None:
    """There is one cell per bin, at its own frequency and time."""
    summary = summarize([])
    assert summary.masks.shape == (M, 8, T)
    np.testing.assert_allclose(summary.frequencies_hz, LAYOUT.frequencies_hz)
    np.testing.assert_allclose(summary.seconds, np.arange(T) / 8)


def test_summary_of_a_long_recording_has_bounded_size() -> None:
    """The size of the summary does not grow with the duration."""
    summary = SpectrogramAccumulator(CueLayout(), 450_000, 2).summary()
    assert summary.masks.shape[0] == 2
    assert summary.masks.shape[1] == 256
    assert 600 < summary.masks.shape[2] <= 1200
    assert summary.seconds[-1] == pytest.approx(3600, rel=2e-3)


# --- rendering of masks ------------------------------------------------------------------------


def test_masked_sounds_sum_to_the_mixture() -> None:
    """Soft and binary masks, including 0 Hz."""
    rng = np.random.default_rng(4)
    sound = rng.normal(size=(2, 101)) + 0.5  # with a DC offset
    spectra = stft(sound, 16, 2)
    masks = np.moveaxis(rng.dirichlet(np.ones(M), (8, spectra.shape[2])), -1, 0)
    for used in (masks, binary_masks(masks)):
        sounds = apply_masks(spectra, used, LAYOUT, 101)
        assert sounds.shape == (M, 2, 101)
        np.testing.assert_allclose(sounds.sum(axis=0), sound, atol=1e-12)


def test_mask_passes_its_bins() -> None:
    """Each source contains the tone of its bins; 0 Hz belongs to the lowest bin."""
    time = np.arange(200) / 16
    low, high = (np.stack([np.cos(2 * np.pi * f * time)] * 2) for f in (2.0, 6.0))
    spectra = stft(low + high + 0.3, 16, 2)
    masks = np.zeros((2, 8, spectra.shape[2]))
    masks[0, :4], masks[1, 4:] = 1, 1  # bins 1-4 and 5-8 Hz
    sounds = apply_masks(spectra, masks, LAYOUT, 200)
    inner = slice(16, -16)  # whole windows
    np.testing.assert_allclose(sounds[0][:, inner], (low + 0.3)[:, inner], atol=1e-9)
    np.testing.assert_allclose(sounds[1][:, inner], high[:, inner], atol=1e-9)


def test_binary_masks_assign_each_bin_to_one_source() -> None:
    """A bin belongs to the most probable source, or to the first of several."""
    masks = np.array([[0.2, 0.5, 1 / 3, 0.0], [0.7, 0.5, 1 / 3, 0.5], [0.1, 0.0, 1 / 3, 0.5]])
    expected = [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]
    np.testing.assert_array_equal(binary_masks(masks), expected)
    deep = binary_masks(masks.reshape(3, 2, 2))
    np.testing.assert_array_equal(deep.reshape(3, 4), expected)


def test_check_rendering() -> None:
    """The error lists the valid renderings."""
    assert check_rendering("soft") == "soft"
    assert check_rendering("binary") == "binary"
    with pytest.raises(InputError, match=r"must be one of spatial, soft, binary, got 'hard'\."):
        check_rendering("hard")
