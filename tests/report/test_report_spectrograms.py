"""Tests of level spectrograms: full band, files of any length, and bounded size."""

from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.report.spectrograms import level_spectrogram


def tones(rate: int, seconds: float) -> ea.Audio:
    """Return 3 kHz in the left ear, then a softer 12 kHz in the right ear."""
    t = np.arange(int(rate * seconds)) / rate
    first = t < seconds / 2
    left = 0.5 * np.sin(2 * np.pi * 3000 * t) * first
    right = 0.05 * np.sin(2 * np.pi * 12_000 * t) * ~first
    return ea.Audio(np.stack([left, right]), rate)


@pytest.mark.parametrize("rate", [44_100, 48_000, 96_000])
def test_level_spectrogram_of_two_tones(rate: int) -> None:
    """Two tones have their frequency, time and level; one is above the band of the cues."""
    found = level_spectrogram(tones(rate, 4.0))
    assert found.frequencies_hz[-1] == pytest.approx(rate / 2, rel=0.01)
    assert found.level_db.shape == (len(found.frequencies_hz), len(found.seconds))
    for hertz, when, level in ((3000, 1.0, -6.0), (12_000, 3.0, -26.0)):
        column = found.level_db[:, np.argmin(abs(found.seconds - when))]
        assert found.frequencies_hz[column.argmax()] == pytest.approx(hertz, abs=100)
        # The mean of both ears is 3 dB lower, and a tone is spread over the bins of a row.
        assert level - 13.0 < column.max() < level - 3.0
        assert np.median(column) < level - 60.0


def test_file_equals_samples(tmp_path: Path) -> None:
    """A file read in blocks agrees within 0.05 dB; columns are bounded; silence is allowed."""
    sound = tones(16_000, 25.0)
    found, read = level_spectrogram(sound), level_spectrogram(sound.write(tmp_path / "tones.wav"))
    assert found.level_db.shape == read.level_db.shape
    assert found.level_db.shape[1] <= 1200 < 25 * 16_000 / 128
    loud = found.level_db > -80.0
    np.testing.assert_allclose(read.level_db[loud], found.level_db[loud], atol=0.05)
    np.testing.assert_array_equal(read.seconds, found.seconds)
    silent = ea.Audio(np.zeros((2, 4000)), 16_000)
    assert level_spectrogram(silent.write(tmp_path / "silent.wav")).top_db == -200.0
