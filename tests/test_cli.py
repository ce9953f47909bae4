"""The command line as a user meets it: answers, JSON, and one sentence for bad input."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import sofar
import soundfile

import earatlas as ea

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def good_wav(tmp_path: Path, rng: np.random.Generator) -> Path:
    """One second of stereo noise."""
    soundfile.write(tmp_path / "good.wav", 0.1 * rng.normal(size=(16000, 2)), 16000)
    return tmp_path / "good.wav"


@pytest.fixture
def good_sofa(tmp_path: Path, small_head: ea.Head) -> Path:
    """A small SOFA file."""
    sofa = sofar.Sofa("SimpleFreeFieldHRIR")
    ears = small_head.responses()
    sofa.Data_IR, sofa.Data_SamplingRate = ears.samples, ears.rate
    sofa.SourcePosition = np.column_stack([small_head.directions, np.ones(len(small_head))])
    sofar.write_sofa(str(tmp_path / "good.sofa"), sofa)
    return tmp_path / "good.sofa"


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2, nothing on standard output, one line on standard error with these words."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning:")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    assert lines[0].endswith((".", ").")), "a sentence that says what to do"


def test_info_answers(run: Run, good_sofa: Path) -> None:
    """In words with a map, and in JSON with the same numbers."""
    text = run("info", good_sofa)
    assert text.returncode == 0
    assert "183" in text.stdout
    assert "median plane" in text.stdout
    assert "█" in text.stdout
    answer = json.loads(run("info", good_sofa, "--json").stdout)
    assert answer["directions"] == 183
    assert answer["space"] == "sphere"


def test_info_draws(run: Run, tmp_path: Path, good_sofa: Path) -> None:
    """--plot writes the picture that it names."""
    answer = json.loads(run("info", good_sofa, "--plot", tmp_path / "x.png", "--json").stdout)
    assert Path(answer["plot"]).stat().st_size > 10_000


def test_info_simulated_and_bad_head_names(run: Run, tmp_path: Path) -> None:
    """The built-in head by name; other names get the list of what a head can be."""
    assert json.loads(run("info", "simulated", "--json").stdout)["directions"] > 2000
    refused(run("info", "nothing"), ".sofa", "simulated", "kemar")
    refused(run("info", tmp_path), "folder")


def test_cues_answers(run: Run, good_wav: Path, tmp_path: Path) -> None:
    """White noise is observed everywhere; the picture is written."""
    answer = json.loads(run("cues", good_wav, "--plot", tmp_path / "c.png", "--json").stdout)
    assert answer["frames"] == 126
    assert answer["observed_share"] > 0.98
    assert abs(answer["mean_ild_db"]) < 1
    assert Path(answer["plot"]).exists()
    assert "126 frames" in run("cues", good_wav).stdout


def test_simulate_writes_a_scene(run: Run, good_wav: Path, tmp_path: Path) -> None:
    """Two sounds at their places; the JSON is scene.json."""
    result = run(
        "simulate", "simulated", "-o", tmp_path / "s", "--overlap", 0.5, "--json",
        "--sound", f"{good_wav}:40:0", "--sound", f"{good_wav}:-30:20",
    )  # fmt: skip
    answer = json.loads(result.stdout)
    truth = json.loads((tmp_path / "s" / "scene.json").read_text())
    assert answer["sources"] == truth["sources"]
    assert truth["overlap"] == pytest.approx(0.5, abs=0.01)
    assert abs(truth["sources"][0]["direction"][0] - 40) < 4


def test_version_and_help(run: Run) -> None:
    """--version, and an example in every command's help."""
    assert run("--version").stdout == f"earatlas {ea.__version__}\n"
    for command in ("info", "cues", "simulate", "demo"):
        assert "Example" in run(command, "--help").stdout


def test_demo_with_nothing(run: Run, tmp_path: Path) -> None:
    """The demo needs no data and writes what it names."""
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is an extra")
    answer = json.loads(run("demo", "-o", tmp_path / "demo", "--json").stdout)
    assert all(Path(p).exists() for p in answer["pictures"])
    assert len(answer["sources"]) == 2


# Bad recordings, each through the command line.


def write(path: Path, samples: np.ndarray, rate: int = 16000, subtype: str = "FLOAT") -> Path:
    """A sound file of samples (n, channels)."""
    soundfile.write(path, samples, rate, subtype)
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.wav", ["existing"]),
        ("mono.wav", ["two channels", "got 1", "record both ears"]),
        ("empty.wav", ["empty file"]),
        ("no_samples.wav", ["got none"]),
        ("short.wav", ["at least one window", "64 ms"]),
        ("silent.wav", ["silent"]),
        ("nan.wav", ["nan", "channel 1", "sample 5000"]),
        ("inf.wav", ["inf", "channel 0"]),
        ("text.wav", ["cannot be read as sound"]),
        ("truncated.flac", ["breaks off", "again"]),
        ("folder.wav", ["folder"]),
    ],
)
def test_bad_recordings(
    run: Run, tmp_path: Path, rng: np.random.Generator, name: str, words: list[str]
) -> None:
    """Each gets its own sentence; nothing is written."""
    x = 0.1 * rng.normal(size=(16000, 2))
    path = tmp_path / name
    match name:
        case "mono.wav":
            write(path, x[:, :1])
        case "empty.wav":
            path.touch()
        case "no_samples.wav":
            write(path, x[:0])
        case "short.wav":
            write(path, x[:1000])
        case "silent.wav":
            write(path, 0 * x)
        case "nan.wav" | "inf.wav":
            x[5000, int(name == "nan.wav")] = np.nan if name == "nan.wav" else np.inf
            write(path, x)
        case "text.wav":
            path.write_text("this is not sound\n" * 100)
        case "truncated.flac":
            write(path, np.tile(x, (20, 1)), subtype="PCM_16")
            path.write_bytes(path.read_bytes()[:100_000])
        case "folder.wav":
            path.mkdir()
    refused(run("cues", path, "--plot", tmp_path / "out.png"), *words)
    assert not (tmp_path / "out.png").exists()


def test_truncated_wav_is_refused(run: Run, tmp_path: Path, rng: np.random.Generator) -> None:
    """A WAV whose header promises more than the file holds."""
    path = write(tmp_path / "x.wav", 0.1 * rng.normal(size=(16000, 2)))
    path.write_bytes(path.read_bytes()[:50_000])
    result = run("cues", path)
    # libsndfile corrects the count in the header of some formats; then the rest is used.
    assert result.returncode == 0 or "again" in result.stderr
    assert "Traceback" not in result.stderr


def test_clipped_and_offset_recordings_work(
    run: Run, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Exit code 0, with one warning each."""
    x = rng.normal(size=(16000, 2))
    for name, y, word in (
        ("clipped.wav", np.clip(x, -1, 1), "clipped"),
        ("offset.wav", 0.05 * x + 0.2, "DC offset"),
    ):
        result = run("cues", write(tmp_path / name, y))
        assert result.returncode == 0
        assert result.stderr.count("warning:") == 1
        assert word in result.stderr


# Bad tables.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file,azimuth\ngood.wav,3\n", ["columns file, azimuth, elevation", "Add: elevation"]),
        ("good.wav,3,4\n", ["columns", "Add: file, azimuth, elevation"]),
        ("", ["columns", "got none"]),
        ("file,azimuth,elevation\n", ["at least one recording"]),
        ("file,azimuth,elevation\ngood.wav,left,0\n", ["numbers", "'left'", "line 2"]),
        ("file,azimuth,elevation\ngone.wav,3,0\n", ["missing", "gone.wav", "relative"]),
        ("file,azimuth,elevation\ngood.wav,3,120\n", ["elevations", "120"]),
        ("file,azimuth,elevation\ngood.wav,3,0\ngood.wav,3,0\n", ["once", "--duplicates first"]),
    ],
)
def test_bad_tables(run: Run, tmp_path: Path, good_wav: Path, text: str, words: list[str]) -> None:
    """Wrong columns, wrong numbers, missing recordings."""
    (tmp_path / "table.csv").write_text(text)
    refused(run("info", tmp_path / "table.csv"), *words)


def test_duplicates_remedy_of_the_message_works(run: Run, tmp_path: Path, good_wav: Path) -> None:
    """--duplicates first, as the error says."""
    rows = "".join(f"good.wav,{a},0\n" for a in (3, 3, 50))
    (tmp_path / "t.csv").write_text("file,azimuth,elevation\n" + rows)
    answer = json.loads(run("info", tmp_path / "t.csv", "--duplicates", "first", "--json").stdout)
    assert answer["directions"] == 2


# Bad SOFA files.


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("convention", ["convention", "SimpleHeadphoneIR"]),
        ("transfer functions", ["convention", "SimpleFreeFieldHRTF"]),
        ("one receiver", ["two receivers", "got 1"]),
        ("no directions", ["at least one direction"]),
        ("duplicates", ["once", "--duplicates first"]),
        ("nan responses", ["finite responses", "number 7"]),
        ("nan directions", ["finite directions", "number 7"]),
        ("silent", ["silence", "number 3"]),
        ("text", ["cannot be read"]),
        ("truncated", ["cannot be read"]),
        ("missing", ["existing"]),
        ("folder", ["folder"]),
        ("empty", ["cannot be read"]),
    ],
)
def test_bad_sofa_files(
    run: Run, tmp_path: Path, good_sofa: Path, case: str, words: list[str]
) -> None:
    """Each gets its own sentence."""
    path = tmp_path / "bad.sofa"
    path.write_bytes(good_sofa.read_bytes())
    match case:
        case "convention":
            edit(path, lambda f: f.setncattr("SOFAConventions", "SimpleHeadphoneIR"))
        case "transfer functions":
            edit(path, lambda f: f.setncattr("SOFAConventions", "SimpleFreeFieldHRTF"))
        case "one receiver":
            one_receiver(path)
        case "no directions":
            no_directions(path)
        case "duplicates":
            edit(path, lambda f: f["SourcePosition"].__setitem__(5, f["SourcePosition"][4]))
        case "nan responses":
            edit(path, lambda f: f["Data.IR"].__setitem__((7, 0, 3), np.nan))
        case "nan directions":
            edit(path, lambda f: f["SourcePosition"].__setitem__((7, 1), np.nan))
        case "silent":
            edit(path, lambda f: f["Data.IR"].__setitem__((3, 1), 0.0))
        case "text":
            path.write_text("not a SOFA file\n" * 50)
        case "truncated":
            path.write_bytes(path.read_bytes()[:20_000])
        case "missing":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case "empty":
            path.write_bytes(b"")
    refused(run("info", path), *words)


def edit(path: Path, change: Callable[[netCDF4.Dataset], object]) -> None:
    """Change a SOFA file in place, past everything that would refuse to write it."""
    with netCDF4.Dataset(path, "r+") as file:
        change(file)


def write_raw(path: Path, measurements: int, receivers: int) -> None:
    """A SOFA file in bare netCDF, of any sizes."""
    with netCDF4.Dataset(path, "w") as file:
        for key, value in {
            "Conventions": "SOFA",
            "SOFAConventions": "SimpleFreeFieldHRIR",
            "SOFAConventionsVersion": "1.0",
            "Version": "1.0",
            "DataType": "FIR",
        }.items():
            file.setncattr(key, value)
        for name, size in {"M": measurements, "R": receivers, "N": 64, "C": 3, "I": 1}.items():
            file.createDimension(name, size)
        file.createVariable("Data.IR", "f8", ("M", "R", "N"))[:] = 1.0
        file.createVariable("Data.SamplingRate", "f8", ("I",))[:] = 48000.0
        position = file.createVariable("SourcePosition", "f8", ("M", "C"))
        position[:] = np.arange(3 * measurements).reshape(-1, 3)
        position.Type, position.Units = "spherical", "degree, degree, metre"


def one_receiver(path: Path) -> None:
    """Three directions, one ear."""
    write_raw(path, 3, 1)


def no_directions(path: Path) -> None:
    """Two ears, nothing measured (netCDF takes size 0 as unlimited, of length 0)."""
    write_raw(path, 0, 2)


def test_sofa_that_breaks_the_standard_is_used(run: Run, tmp_path: Path) -> None:
    """A file with most of its attributes missing is read, with a warning."""
    write_raw(tmp_path / "rough.sofa", 40, 2)
    result = run("info", tmp_path / "rough.sofa", "--json")
    assert result.returncode == 0, result.stderr
    assert "does not pass SOFA verification" in result.stderr
    assert json.loads(result.stdout)["directions"] == 40


# Bad wishes.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sound", "good.wav"], ["FILE:AZIMUTH:ELEVATION"]),
        (["--sound", "good.wav:left:0"], ["FILE:AZIMUTH:ELEVATION"]),
        (["--sound", "gone.wav:0:0"], ["existing"]),
        (["--sound", "good.wav:0:0", "--overlap", "2"], ["between 0 and 1"]),
        (["--sound", "good.wav:0:0", "--t60", "0.001"], ["t60_seconds must be at least"]),
        (["--talkers", "9"], ["talkers must be between 1 and 3"]),
    ],
)
def test_bad_scenes(
    run: Run, tmp_path: Path, good_wav: Path, arguments: list[str], words: list[str]
) -> None:
    """Refused before anything is written."""
    refused(run("simulate", "simulated", "-o", "out", *arguments, cwd=tmp_path), *words)
    assert not (tmp_path / "out").exists()


def test_unwritable_output(run: Run, tmp_path: Path, good_wav: Path) -> None:
    """A file where the folder should be, and a picture in a folder that is not there."""
    (tmp_path / "taken").write_text("mine")
    sound = f"{good_wav}:0:0"
    refused(run("simulate", "simulated", "-o", tmp_path / "taken", "--sound", sound), "writable")
    refused(run("cues", good_wav, "--plot", tmp_path / "no" / "x.png"), "written")
    refused(run("info", "simulated", "--plot", tmp_path / "x.gif"), ".png")
