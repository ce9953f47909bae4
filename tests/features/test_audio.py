"""Audio, STFT, and reading and writing of sound files, with their errors and warnings."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earatlas.batch.file_arguments import expand_file_arguments
from earatlas.errors import EaratlasWarning, InputError
from earatlas.features.audio import Audio, resample
from earatlas.features.audio_files import audio_seconds, read_audio, read_blocks, read_mono
from earatlas.features.audio_writer import incremental_wav_writer
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.features.stft import FrameStream, istft, stft
from earatlas.features.wav import has_result_comment


@pytest.mark.parametrize("n", [16000, 16001, 1024, 1500, 15999])
@pytest.mark.parametrize(("window", "hop"), [(1024, 128), (512, 256), (64, 10)])
def test_istft_inverts_stft(n: int, window: int, hop: int, rng: np.random.Generator) -> None:
    """istft(stft(x)) = x to 1e-12, also for lengths that are not multiples of the hop."""
    x = rng.normal(size=(2, n))
    spectra = stft(x, window, hop)
    assert spectra.shape == (2, window // 2 + 1, 1 + n // hop)
    np.testing.assert_allclose(istft(spectra, window, hop, n), x, atol=1e-12)


def test_one_second_has_126_frames() -> None:
    """There are T = 126 frames for 1 s at 16 kHz, as in the paper."""
    assert stft(np.zeros((2, 16000)), 1024, 128).shape == (2, 513, 126)


def test_stft_matches_its_definition(rng: np.random.Generator) -> None:
    """Frame t is the DFT of the Hann-windowed samples around t * hop (slow loop)."""
    x, window, hop = rng.normal(size=(1, 50)), 16, 5
    spectra = stft(x, window, hop)
    for t in range(1 + 50 // hop):
        for f in (0, 3, 8):
            expected = 0j
            for j in range(window):
                n = t * hop - window // 2 + j
                hann = np.sin(np.pi * j / window) ** 2
                if 0 <= n < 50:
                    expected += hann * x[0, n] * np.exp(-2j * np.pi * f * j / window)
            assert spectra[0, f, t] == pytest.approx(expected, abs=1e-12)


def test_frame_stream_equals_stft(rng: np.random.Generator) -> None:
    """Blocks of any size give exactly the frames of the whole signal."""
    x = rng.normal(size=(2, 9001))
    stream, parts, at = FrameStream(256, 48), [], 0
    for size in (1, 700, 3, 0, 2000, 255, 6042):
        parts.append(stream.push(x[:, at : at + size]))
        at += size
    assert at == 9001
    parts.append(stream.finish())
    np.testing.assert_array_equal(np.concatenate(parts, axis=-1), stft(x, 256, 48))


@pytest.mark.parametrize(
    ("ending", "subtype", "bits"),
    [
        ("wav", "PCM_16", 15),
        ("wav", "PCM_24", 23),
        ("wav", "FLOAT", 23),
        ("wav", "DOUBLE", 50),
        ("flac", "PCM_16", 15),
        ("aiff", "PCM_16", 15),
        ("wav", "PCM_U8", 7),
    ],
)
def test_reads_every_sample_width(
    tmp_path: Path, ending: str, subtype: str, bits: int, rng: np.random.Generator
) -> None:
    """Samples are recovered to within the quantization step of the format."""
    x = rng.uniform(-0.5, 0.5, size=(2, 3000))
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, x.T, 22050, subtype)
    audio = read_audio(path)
    assert (audio.rate, audio.channels) == (22050, 2)
    np.testing.assert_allclose(audio.samples, x, atol=2.0**-bits)


def test_reads_ogg(tmp_path: Path) -> None:
    """A lossy file has its rate, its channels and a similar waveform."""
    t = np.arange(44100) / 44100
    x = 0.4 * np.stack([np.sin(2 * np.pi * 440 * t), np.cos(2 * np.pi * 440 * t)])
    soundfile.write(tmp_path / "x.ogg", x.T, 44100)
    assert np.corrcoef(read_audio(tmp_path / "x.ogg").samples[0], x[0])[0, 1] > 0.99


def test_selects_channels(tmp_path: Path, rng: np.random.Generator) -> None:
    """Two of four channels are returned in the requested order."""
    x = rng.uniform(-0.5, 0.5, size=(4, 2000))
    soundfile.write(tmp_path / "x.wav", x.T, 16000, "DOUBLE")
    audio = read_audio(tmp_path / "x.wav", channels=(3, 1))
    np.testing.assert_array_equal(audio.samples, x[[3, 1]])
    for channels in ((0, 4), (-1, 0), (2, 2)):
        with pytest.raises(InputError, match="two different ones between 0 and 3") as caught:
            read_audio(tmp_path / "x.wav", channels=channels)
        assert "Python: " not in str(caught.value), "an example could be invalid for this file"
    with pytest.warns(EaratlasWarning, match=r"ears\. Python: channels=\(2, 3\); command line: "):
        read_audio(tmp_path / "x.wav")


def test_messages_list_the_same_formats(tmp_path: Path) -> None:
    """The message about an unreadable file and that about an empty folder agree."""
    (tmp_path / "x.txt").write_text("no sound")
    formats = re.escape(", ".join(RECORDING_SUFFIXES))
    with pytest.raises(InputError, match=formats):
        read_audio(tmp_path / "x.txt")
    with pytest.raises(InputError, match=formats):
        expand_file_arguments([tmp_path], RECORDING_SUFFIXES, "recordings")


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_resampling_preserves_a_sine(rate: int) -> None:
    """A 1 kHz sine is preserved sample by sample, away from the ends."""
    t = np.arange(rate) / rate
    out = resample(np.sin(2 * np.pi * 1000 * t)[None], rate, 16000)
    expected = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    assert out.shape == (1, 16000)
    np.testing.assert_allclose(out[0, 2000:-2000], expected[2000:-2000], atol=1e-5)


def test_blocks_equal_the_whole_recording(tmp_path: Path, rng: np.random.Generator) -> None:
    """Reading and resampling in blocks equals reading and resampling at once."""
    x = rng.uniform(-0.5, 0.5, size=(2, 50_000))
    soundfile.write(tmp_path / "x.wav", x.T, 44100, "DOUBLE")
    whole = read_audio(tmp_path / "x.wav", rate=16000)
    blocks = list(read_blocks(tmp_path / "x.wav", rate=16000, block_seconds=0.1))
    assert len(blocks) > 5
    joined = np.concatenate([b.samples for b in blocks], axis=1)
    np.testing.assert_allclose(joined, whole.samples, atol=1e-12)
    np.testing.assert_allclose(whole.samples, resample(x, 44100, 16000), atol=1e-9)


def test_written_audio_is_read_back(tmp_path: Path, rng: np.random.Generator) -> None:
    """A written file contains the samples, also beyond full scale."""
    audio = Audio(rng.uniform(-2, 2, size=(2, 1000)), 16000)
    back = read_audio(audio.write(tmp_path / "x.wav"))
    np.testing.assert_allclose(back.samples, audio.samples, atol=1e-6)
    assert audio_seconds(tmp_path / "x.wav") == pytest.approx(1 / 16)
    with pytest.raises(InputError, match="writ"):
        audio.write(tmp_path / "none" / "x.wav")
    with pytest.raises(InputError, match="end in"):
        audio.write(tmp_path / "x.mp3")
    for ending in ("aif", "aiff", "flac", "ogg"):
        quiet = Audio(0.1 * audio.samples, 16000).write(tmp_path / f"x.{ending}")
        assert read_audio(quiet).samples.shape == (2, 1000)


@pytest.mark.parametrize("rate", [0, -1, 16000.5, float("nan")])
def test_invalid_rates_are_rejected(rate: float) -> None:
    """A sampling rate is a positive whole number."""
    with pytest.raises(InputError, match="whole number of Hz"):
        Audio(np.zeros((2, 10)), rate)  # type: ignore[arg-type]


def test_mono_is_the_mean_of_channels(tmp_path: Path, rng: np.random.Generator) -> None:
    """read_mono averages the channels."""
    x = rng.uniform(-0.5, 0.5, size=(2, 2000))
    soundfile.write(tmp_path / "x.wav", x.T, 16000, "DOUBLE")
    np.testing.assert_allclose(read_mono(tmp_path / "x.wav", rate=16000), x.mean(axis=0))


@pytest.mark.parametrize("n", [1, 160_001, 960_001])
def test_files_of_any_length_are_read(tmp_path: Path, n: int) -> None:
    """The last block may have a single sample."""
    x = 0.1 * np.sin(np.arange(2 * n) + 1.0).reshape(n, 2)
    soundfile.write(tmp_path / "x.wav", x, 16000, "DOUBLE")
    assert read_audio(tmp_path / "x.wav").samples.shape == (2, n)
    assert sum(b.samples.shape[1] for b in read_blocks(tmp_path / "x.wav")) == n


def test_recordings_too_short_for_resampling_are_rejected(tmp_path: Path) -> None:
    """A single sample, of which nothing is left after resampling, is an error."""
    soundfile.write(tmp_path / "x.wav", [[0.1, 0.2]], 48000, "DOUBLE")
    with pytest.raises(InputError, match="too short to be resampled"):
        read_audio(tmp_path / "x.wav", rate=4000)


@pytest.mark.parametrize("ending", ["wav", "aiff", "ogg", "flac"])
def test_truncated_files_are_rejected(
    tmp_path: Path, ending: str, rng: np.random.Generator
) -> None:
    """Half of a file is an error in every format; the whole file is read."""
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, 0.1 * rng.normal(size=(48_000, 2)), 16000)
    assert read_audio(path).seconds == pytest.approx(3.0)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for read in (read_audio, lambda p: read_mono(p, rate=16000)):
        with pytest.raises(InputError, match="complete"):
            read(path)


def test_wav_of_unknown_length_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    """A WAV file written to a pipe has no length in its header, but is not truncated."""
    path = tmp_path / "x.wav"
    soundfile.write(path, 0.1 * rng.normal(size=(4000, 2)), 16000, "PCM_16")
    blob = bytearray(path.read_bytes())
    at = blob.index(b"data") + 4
    blob[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(bytes(blob))
    assert read_audio(path).samples.shape == (2, 4000)


def test_float_beyond_full_scale_is_not_clipped(tmp_path: Path) -> None:
    """A float file that peaks at 1.5 gives no warning."""
    x = 1.5 * np.sin(np.arange(16000) / 7)
    soundfile.write(tmp_path / "x.wav", np.stack([x, 0.9 * x], axis=1), 16000, "FLOAT")
    assert np.abs(read_audio(tmp_path / "x.wav").samples).max() > 1.49


def test_degraded_recordings_warn(tmp_path: Path, rng: np.random.Generator) -> None:
    """Clipping, a DC offset and identical channels are read, each with its own warning."""
    x = rng.uniform(-0.5, 0.5, size=(2, 16000))
    for name, y, word in (
        ("clipped", np.clip(10 * x, -1, 1), "clipped"),
        ("offset", x + 0.3, "DC offset"),
        ("mono", x[[0, 0]], "same sound in both channels"),
    ):
        soundfile.write(tmp_path / f"{name}.wav", y.T, 16000, "DOUBLE")
        with pytest.warns(EaratlasWarning, match=word):
            assert read_audio(tmp_path / f"{name}.wav").channels == 2


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros(5), "(channels, n)"),
        (np.zeros((500, 2)), "Transpose"),
    ],
)
def test_audio_checks_its_shape(samples: np.ndarray, words: str) -> None:
    """A transposed or one-dimensional array is an error."""
    with pytest.raises(InputError) as caught:
        Audio(samples, 16000)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_invalid_samples_are_located(tmp_path: Path, value: float) -> None:
    """The error states the channel and the index of the sample."""
    x = np.full((5000, 2), 0.1)
    x[:, 1] = 0.2
    x[4321, 1] = value
    soundfile.write(tmp_path / "x.wav", x, 16000, "DOUBLE")
    with pytest.raises(InputError, match="channel 1, sample 4321"):
        read_audio(tmp_path / "x.wav")


def test_silent_channel_is_rejected(tmp_path: Path, rng: np.random.Generator) -> None:
    """The error names the silent channel."""
    x = rng.uniform(-0.5, 0.5, size=(2, 5000))
    x[1] = 0
    soundfile.write(tmp_path / "x.wav", x.T, 16000, "DOUBLE")
    with pytest.raises(InputError, match=r"right channel of .* is silent"):
        read_audio(tmp_path / "x.wav")


def write_flac(path: Path, samples: np.ndarray, n_header: int) -> Path:
    """Write a FLAC file whose header announces `n_header` samples (0 if written to a pipe)."""
    soundfile.write(path, samples.T, 16000, "PCM_16", format="FLAC")
    blob = bytearray(path.read_bytes())
    field = int.from_bytes(blob[18:26], "big")  # rate, channels, width, and 36 bits of samples
    blob[18:26] = (field >> 36 << 36 | n_header).to_bytes(8, "big")
    path.write_bytes(blob)
    return path


def test_flac_of_unknown_length_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    """FLAC files written to a pipe have no length in their header, which is legal."""
    samples = rng.uniform(-0.5, 0.5, size=(2, 20_000))
    path = write_flac(tmp_path / "x.flac", samples, 0)
    np.testing.assert_allclose(read_audio(path).samples, samples, atol=1e-4)
    assert audio_seconds(path) == 1.25
    assert len(read_mono(path, rate=16000)) == 20_000
    blocks = list(read_blocks(path, block_seconds=0.3))
    np.testing.assert_allclose(
        np.concatenate([b.samples for b in blocks], axis=1), samples, atol=1e-4
    )


def test_flac_header_with_too_many_samples_is_rejected(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Impossible lengths are rejected at once, and others where the file breaks off."""
    samples = rng.uniform(-0.5, 0.5, size=(2, 20_000))
    huge = write_flac(tmp_path / "huge.flac", samples, (1 << 36) - 1)
    for read in (read_audio, audio_seconds, lambda path: read_mono(path, rate=16000)):
        with pytest.raises(InputError, match=r"announces 68719476735 samples .* only \d+ bytes"):
            read(huge)
    more = write_flac(tmp_path / "more.flac", samples, 30_000)
    for read in (read_audio, lambda path: read_mono(path, rate=16000)):
        with pytest.raises(InputError, match=r"breaks off at 1\.25 s \(expected 30000 samples"):
            read(more)


@pytest.mark.parametrize("rate", [1, 7, 999, 2_000_000])
def test_unsupported_sampling_rates_are_rejected(tmp_path: Path, rate: int) -> None:
    """Rates below 1 kHz and above 1 MHz are errors."""
    soundfile.write(tmp_path / "x.wav", np.full((100, 2), 0.1), rate)
    for read in (read_audio, audio_seconds, lambda path: read_mono(path, rate=16000)):
        with pytest.raises(InputError, match=f"rate of {rate} Hz. Rates from 1000 Hz to 1 MHz"):
            read(tmp_path / "x.wav")


def test_block_size_is_limited_over_all_channels(tmp_path: Path) -> None:
    """The number of values of a block is limited, whatever the number of channels."""
    samples = np.full((30_000, 512), 0.25, dtype=np.float32)
    soundfile.write(tmp_path / "x.wav", samples, 48000)
    blocks = list(
        read_blocks(tmp_path / "x.wav", channels=(3, 400), block_seconds=60.0, warn=False)
    )
    assert [block.samples.shape[1] for block in blocks] == [8192, 8192, 8192, 5424]


def test_equal_samples_give_equal_bytes(tmp_path: Path, rng: np.random.Generator) -> None:
    """WAV files contain no time of writing, written at once or incrementally."""
    samples = rng.uniform(-0.5, 0.5, size=(2, 1000))
    Audio(samples, 16000).write(tmp_path / "x.wav")
    with incremental_wav_writer(tmp_path, ["y.wav", "z.wav"], 16000) as append:
        append(np.stack([samples[:, :300]] * 2))
        append(np.stack([samples[:, 300:]] * 2))
    blobs = [(tmp_path / f"{name}.wav").read_bytes() for name in "xyz"]
    for blob in blobs:
        peak = blob.index(b"PEAK")
        assert blob[peak + 12 : peak + 16] == bytes(4)
    assert blobs[1] == blobs[2]
    # Incrementally written files are results, which have a comment.
    assert [has_result_comment(tmp_path / f"{name}.wav") for name in "xyz"] == [False, True, True]
    np.testing.assert_allclose(read_audio(tmp_path / "y.wav").samples, samples, atol=1e-7)


def test_file_names_that_are_not_utf8(tmp_path: Path, rng: np.random.Generator) -> None:
    """Such files are written and read; messages escape the bytes of their names."""
    samples = rng.uniform(-0.5, 0.5, size=(2, 2000))
    path = tmp_path / os.fsdecode(b"caf\xe9.wav")
    Audio(samples, 16000).write(path)
    np.testing.assert_allclose(read_audio(path).samples, samples, atol=1e-7)
    with pytest.raises(InputError, match=r"caf\\xe9\.flac'\. Check the name"):
        read_audio(path.with_suffix(".flac"))


def test_pipes_and_devices_are_rejected(tmp_path: Path) -> None:
    """Named pipes and devices are not recordings."""
    os.mkfifo(tmp_path / "pipe.wav")
    for place in (tmp_path / "pipe.wav", Path("/dev/zero")):
        with pytest.raises(InputError, match="Save it to a file first"):
            read_audio(place)


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
def test_integer_samples_have_full_scale_one(dtype: type[np.int16 | np.int32]) -> None:
    """Samples as `scipy.io.wavfile.read` returns them are divided by their full scale."""
    full_scale = 2 ** (8 * np.dtype(dtype).itemsize - 1)
    samples = np.array([[full_scale // 2, -full_scale], [0, full_scale // 4]], dtype=dtype)
    audio = Audio(samples, 16_000)  # type: ignore[arg-type]
    np.testing.assert_array_equal(audio.samples, [[0.5, -1.0], [0.0, 0.25]])
