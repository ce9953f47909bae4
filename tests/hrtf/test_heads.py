"""Heads from calibration recordings, KEMAR, and properties of heads."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.head import Head, ImpulseResponses, MeasuredCues


@pytest.mark.parametrize(("room", "seconds"), [("room_a", 0.39), ("room_d", 1.02)])
def test_reads_room_responses(data: Path, room: str, seconds: float) -> None:
    """Tables of room impulse responses on the horizontal circle are read."""
    head = ea.read_recordings(data / "rooms" / room / "positions.csv")
    assert (len(head), head.name, head.space) == (37, room, ea.Circle())
    ears = head.responses()
    assert ears.samples.shape[2] / ears.rate == pytest.approx(seconds, abs=0.01)
    assert np.corrcoef(head.directions[:, 0], head.cues().mean(axis=1))[0, 1] < -0.8


def write_table(
    folder: Path, head: Head, noise: bool, *, channels: tuple[int, int] = (0, 1)
) -> Path:
    """Write calibration recordings of a few directions of a head, with their table."""
    rng = np.random.default_rng(5)
    lines = ["file,azimuth,elevation"]
    ears = head.responses()
    for n in range(0, len(head), 23):
        sound = ears.samples[n]
        if noise:
            sound = oaconvolve(0.1 * rng.normal(size=(1, 48_000)), sound, axes=1)
        sound = sound[list(channels)]
        soundfile.write(folder / f"{n}.wav", sound.T, int(ears.rate), "DOUBLE")
        lines.append(f"{n}.wav,{head.directions[n, 0]},{head.directions[n, 1]}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder / "table.csv"


@pytest.mark.parametrize("noise", [True, False])
def test_recordings_reproduce_the_head(tmp_path: Path, small_head: ea.Head, noise: bool) -> None:
    """Noise and impulse responses are distinguished, and both give the original cues."""
    progress = []
    head = ea.read_recordings(
        write_table(tmp_path, small_head, noise), progress=lambda done, total: progress.append(done)
    )
    assert isinstance(head.ears, MeasuredCues if noise else ImpulseResponses)
    assert progress == list(range(1, len(head) + 1))
    expected = small_head.subset(np.arange(0, len(small_head), 23))
    assert great_circle_error(head.directions, expected.directions).max() < 1e-9
    difference = (head.cues() - expected.cues())[:, :480]
    assert np.sqrt(np.mean(difference**2)) < (0.6 if noise else 1e-6)


def test_head_measured_with_noise(tmp_path: Path, small_head: ea.Head) -> None:
    """A head measured with noise has no impulse responses, but cues of narrower layouts."""
    head = ea.read_recordings(write_table(tmp_path, small_head, True), kind="noise")
    with pytest.raises(InputError, match="measured with noise"):
        head.responses()
    assert head.cues(ea.CueLayout.low_ild()).shape == (len(head), 128)


@pytest.mark.parametrize("noise", [True, False])
def test_mirrored_recordings_are_rejected_and_remedies_work(
    tmp_path: Path, small_head: ea.Head, noise: bool
) -> None:
    """Either the channels or the azimuths can be corrected."""
    table = write_table(tmp_path, small_head, noise, channels=(1, 0))
    with pytest.raises(InputError, match=r"Negate the azimuth column, exchange the two channels"):
        ea.read_recordings(table)
    head = ea.read_recordings(table, channels=(1, 0))
    expected = small_head.subset(np.arange(0, len(small_head), 23)).cues()
    assert np.sqrt(np.mean((head.cues() - expected)[:, :480] ** 2)) < 0.6
    np.testing.assert_array_equal(ea.open_head(table, channels=(1, 0)).cues(), head.cues())
    lines = [line.split(",") for line in table.read_text().splitlines()]
    corrected = [lines[0]] + [[f, str(-float(a)), e] for f, a, e in lines[1:]]
    table.write_text("\n".join(map(",".join, corrected)))
    mirrored = ea.read_recordings(table)
    np.testing.assert_allclose(mirrored.directions, head.directions * [-1, 1])


def test_mirroring_is_unknown_without_level_differences(
    tmp_path: Path, small_head: ea.Head
) -> None:
    """Recordings measured by phase only are accepted, because the levels are unknown."""
    table = write_table(tmp_path, small_head, True, channels=(1, 0))
    assert len(ea.read_recordings(table, layout=ea.CueLayout(ild_band_hz=None))) == 8


def write_one_recording(folder: Path, sound: np.ndarray, rate: int = 16_000) -> Path:
    """Write a table of one recording, straight ahead."""
    soundfile.write(folder / "one.wav", sound.T, rate, "FLOAT")
    (folder / "one.csv").write_text("file,azimuth,elevation\none.wav,0,0\n")
    return folder / "one.csv"


@pytest.mark.parametrize("start", [0.0, 5.0, 10.0])
@pytest.mark.parametrize("floor", [0.0, 0.03])
def test_noise_with_silence_around_is_noise(
    tmp_path: Path, rng: np.random.Generator, start: float, floor: float
) -> None:
    """One second of noise in eleven seconds is noise, with and without background noise."""
    sound = floor * 0.1 * rng.normal(size=(2, 11 * 16_000))
    active = slice(int(start * 16_000), int((start + 1) * 16_000))
    sound[:, active] += 0.1 * rng.normal(size=(2, 16_000))
    assert isinstance(ea.read_recordings(write_one_recording(tmp_path, sound)).ears, MeasuredCues)


@pytest.mark.parametrize("seconds", [0.1, 0.3, 3.0])
def test_noise_of_any_length_is_noise(
    tmp_path: Path, rng: np.random.Generator, seconds: float
) -> None:
    """Noise is recognized if it is longer than the window, also with reverberation."""
    sound = 0.1 * rng.normal(size=(2, int(seconds * 16_000)))
    assert isinstance(ea.read_recordings(write_one_recording(tmp_path, sound)).ears, MeasuredCues)
    tail = rng.normal(size=(2, 8_000)) * np.exp(-6.9 * np.arange(8_000) / 8_000)  # T60 0.5 s
    reverberant = oaconvolve(np.tile(sound, 1 + int(1 / seconds)), 0.02 * tail, axes=1)
    assert isinstance(
        ea.read_recordings(write_one_recording(tmp_path, reverberant)).ears, MeasuredCues
    )


@pytest.mark.parametrize("t60", [0.02, 0.5, 2.0])
@pytest.mark.parametrize("silence", [0.0, 3.0])
def test_responses_of_any_length_are_responses(
    tmp_path: Path, rng: np.random.Generator, t60: float, silence: float
) -> None:
    """A diffuse decay, the most difficult case, is a response, with and without silence."""
    n = int(t60 * 16_000)
    sound = 0.2 * rng.normal(size=(2, n)) * np.exp(-6.9 * np.arange(n) / n)
    sound = np.pad(sound, ((0, 0), (int(silence * 16_000), int(silence * 16_000))))
    assert isinstance(
        ea.read_recordings(write_one_recording(tmp_path, sound)).ears, ImpulseResponses
    )


def test_recordings_shorter_than_a_window_are_responses(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Recordings shorter than a window of the layout are responses."""
    table = write_one_recording(tmp_path, 0.1 * rng.normal(size=(2, 1_000)))
    assert isinstance(ea.read_recordings(table).ears, ImpulseResponses)
    short = ea.CueLayout(window=256, hop=128)
    assert isinstance(ea.read_recordings(table, layout=short).ears, MeasuredCues)


def test_recordings_must_be_of_one_kind(tmp_path: Path, small_head: ea.Head) -> None:
    """The error names the deviating recording; stating the kind avoids it."""
    table = write_table(tmp_path, small_head, False)
    noise = 0.1 * np.random.default_rng(1).normal(size=(48_000, 2))
    soundfile.write(tmp_path / "23.wav", noise, 48_000)
    with pytest.raises(InputError, match=r"23\.wav' seems to be of the kind 'noise'.*'responses'"):
        ea.read_recordings(table)
    head = ea.open_head(table, kind="responses")
    assert head.responses().samples.shape[2] == 48_000
    with pytest.raises(InputError, match="kind must be one of auto, noise, responses, got 'sweep'"):
        ea.read_recordings(table, kind="sweep")  # type: ignore[arg-type]


def test_tables_from_spreadsheets(tmp_path: Path, small_head: ea.Head) -> None:
    """A byte-order mark, CRLF, blanks, capitals and empty lines are ignored."""
    table = write_table(tmp_path, small_head, False)
    plain = ea.read_recordings(table)
    text = table.read_text().replace("file,azimuth", "File, Azimuth ").replace("\n", "\r\n\r\n")
    table.write_bytes(text.encode("utf-8-sig"))
    np.testing.assert_array_equal(ea.read_recordings(table).directions, plain.directions)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"file;azimuth;elevation\na.wav;1;2\n", "Separate columns by commas"),
        (b"file\tazimuth\televation\na.wav\t1\t2\n", "Separate columns by commas"),
        (b"file,azimuth,elevation\n" + b"a" * 200_000 + b",1,2\n", "table must be .*field larger"),
        (b"file,azimuth,elevation\n" + b"a" * 5_000 + b",1,2\n", "1 of the 1 recordings listed in"),
        (b"file,azimuth,elevation\n\n\na.wav,1,left\n", "line 4"),
        (b"\xff\xfef\x00i\x00", "must be .*text"),
        (b"file,azimuth,elevation\na.wav,12,5,3,0\n", "got 2 more in line 2.*points, not commas"),
        (b"file,azimuth,elevation\na.wav,1\n", "got '1' and None in line 2"),
    ],
)
def test_invalid_tables_are_rejected(tmp_path: Path, content: bytes, words: str) -> None:
    """Every fault has its own error message."""
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        ea.read_recordings(tmp_path / "t.csv")


def test_tables_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing files, folders, too long names, and missing permission are errors."""
    (tmp_path / "d.csv").mkdir()
    (tmp_path / "talker.wav").touch()
    for name, words in (
        ("gone.csv", "head must be an existing file"),
        ("d.csv", "head must be a file, got the folder"),
        ("x" * 5_000 + ".csv", "head must be an existing file"),
        ("x" * 5_000, "Check the name"),
        (".", "the folder"),
        ("talker.wav", r"the file '.*talker.wav'. Name the measurement of the head"),
    ):
        with pytest.raises(InputError, match=words):
            ea.open_head(tmp_path / name)
    (tmp_path / "t.csv").write_text("file,azimuth,elevation\n")

    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(InputError, match=r"table must be .*Permission denied"):
        ea.read_recordings(tmp_path / "t.csv")


def test_subset_and_space(small_head: ea.Head) -> None:
    """A subset takes indices or a mask; the space of a single elevation is the circle."""
    chosen = small_head.subset(small_head.directions[:, 1] > 0)
    assert 0 < len(chosen) < len(small_head)
    np.testing.assert_array_equal(small_head.subset([5, 2]).directions[1], chosen.directions[2])
    assert small_head.space == ea.Sphere()
    ring = ea.simulated_head([[a, 0.0] for a in range(-180, 180, 10)])
    assert ring.space == ea.Circle()
    assert ring.spacing_degrees == pytest.approx(10)


def test_space_depends_on_the_range_of_elevations() -> None:
    """One direction at an elevation of 5 degrees among 36 at 0 degrees gives a sphere."""
    ring = [[a, 0.0] for a in range(-180, 180, 10)]
    assert ea.simulated_head([*ring, [0.0, 5.0]]).space == ea.Sphere()
    assert ea.simulated_head([*ring, [5.0, 0.9]]).space == ea.Circle()


def test_kemar_warns_of_mirrored_ears() -> None:
    """The KEMAR of slab has no level differences on the median plane."""
    if importlib.util.find_spec("slab") is None:
        pytest.skip("slab is not installed: pip install 'earatlas[kemar]'")
    with pytest.warns(EaratlasWarning, match="mirrored"):
        head = ea.kemar()
    assert len(head) == 710
    assert sys.modules.get("sounddevice", sys) is not None  # the placeholder has been removed
    assert ea.diagnose(head).mirror_ild_db < 1e-9
    assert ea.diagnose(head).median_plane_ild_db < 1e-9


def test_head_validates_its_directions() -> None:
    """Their number and elevations are checked, and azimuths are wrapped."""
    ears = ImpulseResponses(np.ones((2, 2, 4)), 16000.0)
    np.testing.assert_array_equal(
        Head("x", np.array([[270.0, 0], [0, 90]]), ears).directions[0], [-90, 0]
    )
    with pytest.raises(InputError, match="as many"):
        Head("x", np.zeros((3, 2)), ears)
    with pytest.raises(InputError, match="azimuth first"):
        Head("x", np.array([[0.0, 0.0], [0.0, 120.0]]), ears)


def test_resampled_responses_keep_the_cues(small_head: ea.Head) -> None:
    """Resampled responses have the cues of the originals below 7 kHz."""
    low = ea.CueLayout(ild_band_hz=(0, 7000))
    ears = ImpulseResponses(small_head.responses().at_rate(16000), 16000.0)
    np.testing.assert_allclose(ears.cues(low), small_head.cues(low), atol=0.05)
