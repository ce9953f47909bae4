"""The commands info, cues, simulate and demo: results, JSON, and one sentence for bad input."""

import json
import os
import re
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import soundfile
from head_files import write_sofa
from tests_support import refused

import earatlas as ea
import earatlas.cli
from earatlas.cli.app import COMMANDS

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def good_wav(tmp_path: Path, rng: np.random.Generator) -> Path:
    """One second of stereo noise."""
    soundfile.write(tmp_path / "good.wav", 0.1 * rng.normal(size=(16000, 2)), 16000)
    return tmp_path / "good.wav"


@pytest.fixture
def good_sofa(tmp_path: Path, small_head: ea.Head) -> Path:
    """A small SOFA file."""
    return write_sofa(tmp_path / "good.sofa", small_head)


def test_info_prints_text_and_json(run: Run, good_sofa: Path) -> None:
    """The text has a coverage map, and the JSON has the same numbers."""
    text = run("info", good_sofa)
    assert text.returncode == 0
    assert "183" in text.stdout
    assert "median plane" in text.stdout
    assert "█" in text.stdout
    answer = json.loads(run("info", good_sofa, "--json").stdout)
    assert answer["directions"] == 183
    assert answer["space"] == "sphere"


def test_info_plots(run: Run, tmp_path: Path, good_sofa: Path) -> None:
    """--plot writes a picture."""
    answer = json.loads(run("info", good_sofa, "--plot", tmp_path / "x.png", "--json").stdout)
    assert Path(answer["plot"]).stat().st_size > 10_000


def test_info_simulated_and_bad_head_names(run: Run, tmp_path: Path) -> None:
    """The built-in head has a name; an unknown name gives the list of valid heads."""
    assert json.loads(run("info", "simulated", "--json").stdout)["directions"] > 2000
    refused(run("info", "nothing"), ".sofa", "simulated", "kemar")
    refused(run("info", tmp_path), "folder")


def test_cues_prints_and_plots(run: Run, good_wav: Path, tmp_path: Path) -> None:
    """White noise is observed in nearly all bins; --plot writes a picture."""
    answer = json.loads(run("cues", good_wav, "--plot", tmp_path / "c.png", "--json").stdout)
    assert answer["frames"] == 126
    assert answer["observed_share"] > 0.98
    assert abs(answer["mean_ild_db"]) < 1
    assert Path(answer["plot"]).exists()
    assert "126 frames" in run("cues", good_wav).stdout


def test_left_and_right_are_named(run: Run, tmp_path: Path, rng: np.random.Generator) -> None:
    """Channel 1 is the right ear, unless --channels changes it."""
    x = rng.normal(size=(16000, 1)) * [0.01, 0.1, 0.02]
    soundfile.write(tmp_path / "three.wav", x, 16000)
    assert "+20.0 dB (right louder)" in run("cues", tmp_path / "three.wav").stdout
    swapped = run("cues", tmp_path / "three.wav", "--channels", 1, 0).stdout
    assert "-20.0 dB (left louder)" in swapped
    third = json.loads(run("cues", tmp_path / "three.wav", "--channels", 0, 2, "--json").stdout)
    assert third["mean_ild_db"] == pytest.approx(6.02, abs=0.01)


def test_cues_without_observed_bins_have_no_mean(
    run: Run, tmp_path: Path, rng: np.random.Generator
) -> None:
    """With one ear 60 dB below the other, no bin is observed, so there is no mean ILD."""
    x = rng.normal(size=(16000, 1)) * [1e-4, 0.1]
    soundfile.write(tmp_path / "x.wav", x, 16000, "FLOAT")
    answer = json.loads(run("cues", tmp_path / "x.wav", "--json").stdout)
    assert answer["observed_share"] == 0
    assert answer["mean_ild_db"] is None
    assert "louder" not in run("cues", tmp_path / "x.wav").stdout
    assert json.loads(run("cues", tmp_path / "x.wav", "--relative-db", -90, "--json").stdout)[
        "mean_ild_db"
    ] == pytest.approx(60, abs=0.1)


def test_coverage_map_has_left_on_the_left(run: Run, tmp_path: Path, small_head: ea.Head) -> None:
    """A head measured only on the upper left fills only the upper left of the map."""
    x = small_head.directions
    write_sofa(tmp_path / "left.sofa", small_head.subset((x[:, 0] > 10) & (x[:, 1] > 10)))
    text = run("info", tmp_path / "left.sofa").stdout.splitlines()
    lines = [line.split("▕")[1][:60] for line in text if "▕" in line]
    assert len(lines) == 12
    labels = next(line for line in text if line.strip().startswith("behind"))
    assert labels.split() == ["behind", "left", "front", "right", "behind"]
    assert labels.index("left") - 9 < 30 < labels.index("right") - 9
    assert len(labels) == 9 + 60
    assert any(line[:30].strip() for line in lines[:6])
    assert not any(line[30:].strip() for line in lines)
    assert not any(line.strip() for line in lines[6:])


def test_output_encoding_without_unicode(run_process: Run, good_sofa: Path) -> None:
    """A terminal with another encoding gets question marks, not a traceback."""
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    result = run_process("info", good_sofa, env=plain)
    assert result.returncode == 0, result.stderr
    assert "median plane" in result.stdout
    refused(run_process("cues", "gön.wav", env=plain), "existing")


def test_simulate_levels_snr_and_seed(run: Run, good_sofa: Path, good_wav: Path) -> None:
    """--level, --snr-db and --seed hold in the written files."""
    call = ["simulate", good_sofa, "--sound", f"{good_wav}:40:0", "--sound", f"{good_wav}:-40:0",
            "--level", 0, "--level", -6, "--snr-db", 12, "--json"]  # fmt: skip
    folder = good_wav.parent
    answer = json.loads(run(*call, "-o", folder / "a", "--seed", 3).stdout)
    assert (answer["seed"], answer["snr_db"], answer["levels_db"]) == (3, 12, [0, -6])
    one, two, noise = (
        ea.read_audio(folder / "a" / name).samples
        for name in (*(s["file"] for s in answer["sources"]), "noise.wav")
    )
    assert 10 * np.log10((two**2).sum() / (one**2).sum()) == pytest.approx(-6, abs=1e-3)
    ratio = ((one + two) ** 2).mean() / (noise**2).mean()
    assert 10 * np.log10(ratio) == pytest.approx(12, abs=1e-3)
    run(*call, "-o", folder / "b", "--seed", 4)
    assert not np.allclose(ea.read_audio(folder / "b" / "noise.wav").samples, noise)


def test_simulate_keeps_the_rate_of_the_sounds(
    run: Run, good_sofa: Path, good_wav: Path, tmp_path: Path
) -> None:
    """The rate is the highest rate of the sounds, or that of --rate."""
    ea.Audio(0.1 * np.random.default_rng(0).normal(size=(1, 9000)), 48_000).write(
        tmp_path / "fast.wav"
    )
    call = ["simulate", good_sofa, "-o", tmp_path / "s", "--json", "--sound", f"{good_wav}:40:0",
            "--sound", f"{tmp_path / 'fast.wav'}:-40:0"]  # fmt: skip
    assert json.loads(run(*call).stdout)["rate"] == 48_000
    assert ea.read_audio(tmp_path / "s" / "mixture.wav").rate == 48_000
    assert json.loads(run(*call, "--rate", 22_050).stdout)["rate"] == 22_050
    refused(run(*call, "--rate", 0), "rate must be a positive whole number of Hz, got 0")


def test_simulate_moves_sounds(run: Run, good_wav: Path, tmp_path: Path) -> None:
    """Moving sources follow waypoints; --between interpolates; bad waypoints are refused."""
    call = ["simulate", "simulated", "-o", tmp_path / "s"]
    both = ["--sound", f"{good_wav}:0,40,0/2,-31,10.5", "--sound", f"{good_wav}:33.3:14.4"]
    first, second = json.loads(run(*call, *both, "--between", "--json").stdout)["sources"]
    assert first["path"] == [[0.0, 40.0, 0.0], [2.0, -31.0, 10.5]]
    assert second["direction"] == [33.3, 14.4]
    text = run(*call, *both).stdout
    assert "moves" in text
    assert "requested" in text
    assert "33.3°, 14.4°" in text  # the nearest direction differs
    assert "requested" not in run(*call, *both, "--between").stdout
    for path, words in (
        ("0,40,0/0.1,-40,0", "path must not jump"),
        ("0,40,0/2,left,0", "path must be SECONDS,AZIMUTH,ELEVATION"),
        ("0,40,0", "path must have two waypoints"),
    ):
        refused(run(*call, "--sound", f"{good_wav}:{path}"), words)
    refused(run(*call, *both[:2], "--t60", 0.3), "room must be None")


def test_simulate_in_a_room(run: Run, good_sofa: Path, good_wav: Path, tmp_path: Path) -> None:
    """--t60 alone uses the default room; other options change it."""
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics is an extra")
    call = ["simulate", good_sofa, "--sound", f"{good_wav}:40:0", "--json"]
    answer = json.loads(run(*call, "-o", tmp_path / "a", "--t60", 0.25).stdout)
    assert answer["room"]["t60_seconds"] == 0.25
    assert answer["seconds"] > 1.25
    room = ["--room", "4,3.5,2.6", "--listener", "2,1.5,1.2", "--distance", "0.8"]
    result = run(*call, "-o", tmp_path / "b", *room)
    assert json.loads(result.stdout)["room"] == {
        "size_metres": [4, 3.5, 2.6],
        "t60_seconds": 0.3,
        "listener_metres": [2, 1.5, 1.2],
        "distance_metres": 0.8,
    }


def test_simulate_writes_a_scene(run: Run, good_wav: Path, tmp_path: Path) -> None:
    """Two sounds are placed at their directions; the JSON is that of scene.json."""
    result = run(
        "simulate", "simulated", "-o", tmp_path / "s", "--overlap", 0.5, "--json",
        "--sound", f"{good_wav}:40:0", "--sound", f"{good_wav}:-30:20",
    )  # fmt: skip
    answer = json.loads(result.stdout)
    truth = json.loads((tmp_path / "s" / "scene.json").read_text())
    assert answer["sources"] == truth["sources"]
    assert truth["overlap"] == pytest.approx(0.5, abs=0.01)
    assert abs(truth["sources"][0]["direction"][0] - 40) < 4


@pytest.mark.parametrize("columns", ["80", "120"])
def test_version_and_help(run: Run, columns: str) -> None:
    """--version works; every help has an example and no Python types."""
    assert run("--version").stdout == f"earatlas {ea.__version__}\n"
    wide = {**os.environ, "COLUMNS": columns}
    for command in COMMANDS:
        text = run(command, "--help", env=wide).stdout
        assert f"\n earatlas {command} " in text.split("Example")[1]
        assert not re.search(r"<(list|bool|str|int|float|path)|\[Path\]|\{", text), text
        assert max(map(len, text.splitlines())) <= int(columns)
    assert "[ATLAS] RECORDING..." in run("localize", "--help", env=wide).stdout
    assert "spatial|soft|binary" in run("separate", "--help", env=wide).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--gone", "options must be those of `earatlas`, got '--gone'. See earatlas --help."),
        ("info", "HEAD must be given, got none. For example: earatlas info ku100.sofa"),
        ("learn x.sofa", "--output must be given, got none. For example: earatlas learn"),
        ("localize", "RECORDING must be given, got none. For example: earatlas localize talker"),
        ("localize x.wav --windwo 1", "got '--windwo'. Did you mean --window?"),
        ("localize x.wav --track", "--track must have its value, got none."),
        ("localize x.wav --json=1", "--json must be used without a value, got one."),
        ("cues x.wav y.wav", "arguments must be RECORDING only, got also 'y.wav'. For example:"),
        ("demo x", "arguments must be options only, got also 'x'."),
        ("learn x.sofa -o x.atlas --seed -1", "--seed must be at least 0, got '-1'."),
    ],
)
def test_bad_options(run: Run, arguments: str, words: str) -> None:
    """Errors of the parser are sentences with a remedy."""
    refused(run(*arguments.split()), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["info", "simulated", "--kind", "x"],
            "--kind must be one of 'auto', 'noise', 'responses'",
        ),
        (
            ["separate", "x.atlas", "x.wav", "-o", "out", "--render", "loud"],
            "--render must be one of 'spatial', 'soft', 'binary', got 'loud'.",
        ),
        (
            ["separate", "x.atlas", "x.wav", "-o", "out", "-n", "two"],
            "--sources must be a whole number, got 'two'.",
        ),
        (
            ["simulate", "simulated", "-o", "out", "--level", "a"],
            "--level must be a number, got 'a'.",
        ),
    ],
)
def test_values_of_the_wrong_type(run: Run, arguments: list[str], words: str) -> None:
    """A value that is not a number or not one of the choices gives one sentence."""
    refused(run(*arguments), words)


def test_sounds_of_several_channels_warn(run: Run, tmp_path: Path, good_wav: Path) -> None:
    """Channels of a sound are averaged with a warning; a mono sound gives none."""
    mono = ea.Audio(ea.read_mono(good_wav, rate=16_000)[None], 16_000).write(tmp_path / "mono.wav")
    for file, count in ((good_wav, 1), (mono, 0)):
        result = run("simulate", "simulated", "-o", tmp_path / file.stem, "--sound", f"{file}:0:0")
        assert result.returncode == 0
        assert result.stderr.count("has 2 channels, which are averaged") == count


def test_equal_levels_have_no_louder_side(
    run: Run, tmp_path: Path, rng: np.random.Generator
) -> None:
    """A level difference that rounds to 0.0 dB names no side."""
    x = 0.1 * rng.normal(size=(8000, 1)) * [1.0, 1.004]  # 0.035 dB
    soundfile.write(tmp_path / "even.wav", x, 16_000, "FLOAT")
    assert run("cues", tmp_path / "even.wav").stdout.endswith("mean level difference 0.0 dB\n")


def test_more_than_two_channels_warn_once(
    run: Run, tmp_path: Path, rng: np.random.Generator
) -> None:
    """The first two channels of a surround file are used, with one warning."""
    soundfile.write(tmp_path / "six.wav", 0.1 * rng.normal(size=(16000, 6)), 16000)
    message = run("cues", tmp_path / "six.wav").stderr
    assert (
        message.count("six.wav' has 6 channels; the first two are used as left and right ear") == 1
    )
    assert "Choose other channels" in message
    assert run("cues", tmp_path / "six.wav", "--channels", 2, 3).stderr == ""
    rows = "".join(f"six.wav,{a},0\n" for a in (3, 50, 90))
    (tmp_path / "t.csv").write_text("file,azimuth,elevation\n" + rows)
    assert run("info", tmp_path / "t.csv", "--json").stderr.count("6 channels") == 1


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an InputError becomes a sentence with exit code 2."""

    def bug() -> None:
        raise ZeroDivisionError

    def bad_input() -> None:
        raise ea.InputError("x must be y, got z. Do w.")

    shown, filters = warnings.showwarning, list(warnings.filters)
    monkeypatch.setattr("earatlas.cli.app.app", bug)
    with pytest.raises(ZeroDivisionError):
        earatlas.cli.main()
    monkeypatch.setattr("earatlas.cli.app.app", bad_input)
    with pytest.raises(SystemExit, match="2"):
        earatlas.cli.main()
    assert (warnings.showwarning, warnings.filters) == (shown, filters), "they are restored"


@pytest.mark.usefixtures("cached_learning")
def test_demo_needs_no_data(run: Run, tmp_path: Path) -> None:
    """The demo separates two talkers, and writes files only to its folder."""
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is an extra")
    result = run("demo", "-o", tmp_path / "demo", "--json", cwd=tmp_path)
    answer = json.loads(result.stdout)
    assert result.stderr == ""
    assert answer["n_sources"] == 2
    assert [row["name"] for row in answer["truth"]] == ["Ada", "Hugh"]
    for row in answer["truth"]:
        assert 0 < row["error"] < 10
        assert -1 < row["mixture_sdr_db"] < 1
        assert 9 < row["sdr_db"] < 40
        assert 15 < row["sir_db"] < 60
    assert {row["source"] for row in answer["truth"]} == {"source1", "source2"}
    page = Path(answer["report"]).read_text()
    assert page.count("<audio") == 3
    assert "SDR before" in page
    files = [answer["atlas"], answer["file"], *(source["file"] for source in answer["sources"])]
    assert all(Path(file).parent == tmp_path / "demo" and Path(file).exists() for file in files)
    assert [file.name for file in tmp_path.iterdir()] == ["demo"]


def test_demo_checks_the_folder_first(run: Run, tmp_path: Path) -> None:
    """A folder that cannot be created is refused."""
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is an extra")
    (tmp_path / "taken").write_text("mine")
    refused(run("demo", "-o", tmp_path / "taken"), "writable")


# Bad recordings, each through the command line.


def write(path: Path, samples: np.ndarray, rate: int = 16000, subtype: str = "FLOAT") -> Path:
    """Write a sound file of samples (n, channels)."""
    soundfile.write(path, samples, rate, subtype)
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.wav", ["existing"]),
        ("mono.wav", ["only one channel", "Two channels", "Record both ears"]),
        ("empty.wav", ["is empty"]),
        ("no_samples.wav", ["no samples"]),
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
    """Each bad recording gives its own message, and nothing is written."""
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


@pytest.mark.parametrize("ending", ["wav", "aiff", "ogg"])
def test_truncated_recordings_are_refused(
    run: Run, tmp_path: Path, rng: np.random.Generator, ending: str
) -> None:
    """A header that announces more samples than the file has is refused."""
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, 0.1 * rng.normal(size=(16000, 2)), 16000)
    assert run("cues", path).returncode == 0
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    refused(run("cues", path), "must be complete", "end is missing", "again")


@pytest.mark.parametrize("length", [0x7FFFF000, 0x7FFFFF00, 0xFFFFFFFF])
def test_recordings_with_placeholder_length_are_read(
    run: Run, tmp_path: Path, rng: np.random.Generator, length: int
) -> None:
    """Programs that write to a pipe store a placeholder for the length."""
    path = tmp_path / "x.wav"
    soundfile.write(path, 0.1 * rng.normal(size=(16000, 2)), 16000, subtype="PCM_16")
    data = bytearray(path.read_bytes())
    offset = data.index(b"data") + 4
    data[offset : offset + 4] = length.to_bytes(4, "little")
    path.write_bytes(data)
    result = run("cues", path)
    assert result.returncode == 0, result.stderr


def test_clipped_and_offset_recordings_work(
    run: Run, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Clipping and a DC offset give exit code 0 and one warning each."""
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
        ("file,azimuth,elevation\n", ["lists no recordings", "one row per recording"]),
        ("file,azimuth,elevation\ngood.wav,left,0\n", ["numbers", "'left'", "line 2"]),
        ("file,azimuth,elevation\ngone.wav,3,0\n", ["do not exist", "gone.wav", "relative"]),
        ("file,azimuth,elevation\ngood.wav,3,120\n", ["elevations", "120"]),
        ("file,azimuth,elevation\ngood.wav,3,0\ngood.wav,3,0\n", ["once", "keep the first"]),
    ],
)
def test_bad_tables(run: Run, tmp_path: Path, good_wav: Path, text: str, words: list[str]) -> None:
    """Wrong columns, wrong numbers and missing recordings are refused."""
    (tmp_path / "table.csv").write_text(text)
    refused(run("info", tmp_path / "table.csv"), *words)


def test_duplicates_remedy_works(run: Run, tmp_path: Path, good_wav: Path) -> None:
    """The remedy in the message, --duplicates first, works."""
    rows = "".join(f"good.wav,{a},0\n" for a in (3, 3, 50))
    (tmp_path / "t.csv").write_text("file,azimuth,elevation\n" + rows)
    answer = json.loads(run("info", tmp_path / "t.csv", "--duplicates", "first", "--json").stdout)
    assert answer["directions"] == 2


def test_recordings_of_responses(
    run: Run, tmp_path: Path, good_wav: Path, rng: np.random.Generator
) -> None:
    """The options --duplicates, --kind and --channels work for simulate and info."""
    for n, gains in enumerate(([0.9, 0.2, 0.8], [0.9, 0.2, 0.8], [0.3, 0.8, 0.3])):
        write(tmp_path / f"{n}.wav", np.eye(200)[20][:, None] * gains)
    rows = "".join(f"{n}.wav,{a},0\n" for n, a in enumerate((40, 40, -40)))
    table = tmp_path / "t.csv"
    table.write_text("file,azimuth,elevation\n" + rows)
    call = ["simulate", table, "-o", tmp_path / "s", "--sound", f"{good_wav}:40:0", "--json"]
    refused(run(*call), "keep the first")
    level = {}
    for channels in ((0, 1), (0, 2)):
        result = run(*call, "--duplicates", "first", "--channels", *channels)
        image = json.loads(result.stdout)["sources"][0]["file"]
        left, right = ea.read_audio(tmp_path / "s" / image).samples
        level[channels] = np.sqrt((right**2).sum() / (left**2).sum())
    assert level == pytest.approx({(0, 1): 0.2 / 0.9, (0, 2): 0.8 / 0.9}, rel=1e-4)
    refused(run(*call, "--duplicates", "first", "--kind", "noise"))
    table.write_text("file,azimuth,elevation\ngood.wav,40,0\ngood.wav,-40,0\n")
    assert json.loads(run("info", table, "--json").stdout)["rate"] is None
    answer = json.loads(run("info", table, "--kind", "responses", "--json").stdout)
    assert answer["rate"] == 16000


# Bad SOFA files.


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("convention", ["convention", "SimpleHeadphoneIR"]),
        ("one receiver", ["two receivers", "got 1"]),
        ("no directions", ["no directions"]),
        ("duplicates", ["once", "keep the first"]),
        ("nan responses", ["finite responses", "number 7"]),
        ("nan directions", ["finite directions", "number 7"]),
        ("silent", ["silent ear", "number 3"]),
        ("text", ["cannot be read", "(it is not a netCDF file)"]),
        ("truncated", ["cannot be read", "(it is truncated or damaged)"]),
        ("missing", ["existing"]),
        ("folder", ["folder"]),
        ("empty", ["cannot be read"]),
    ],
)
def test_bad_sofa_files(
    run: Run, tmp_path: Path, good_sofa: Path, case: str, words: list[str]
) -> None:
    """Each bad file gives its own message."""
    path = tmp_path / "bad.sofa"
    path.write_bytes(good_sofa.read_bytes())
    match case:
        case "convention":
            edit(path, lambda f: f.setncattr("SOFAConventions", "SimpleHeadphoneIR"))
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
    result = run("info", path)
    refused(result, *words)
    assert result.stderr.count("bad.sofa") == 1
    assert "Errno" not in result.stderr


def edit(path: Path, change: Callable[[netCDF4.Dataset], object]) -> None:
    """Change a SOFA file in place, bypassing all checks."""
    with netCDF4.Dataset(path, "r+") as file:
        change(file)


def write_raw(path: Path, measurements: int, receivers: int) -> None:
    """Write a SOFA file of any size with plain netCDF."""
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
    """Write three directions with one ear."""
    write_raw(path, 3, 1)


def no_directions(path: Path) -> None:
    """Write two ears without directions (netCDF treats size 0 as unlimited)."""
    write_raw(path, 0, 2)


def test_sofa_that_breaks_the_standard_is_used(run: Run, tmp_path: Path) -> None:
    """A file without most of its attributes is read with a warning."""
    write_raw(tmp_path / "rough.sofa", 40, 2)
    result = run("info", tmp_path / "rough.sofa", "--json")
    assert result.returncode == 0, result.stderr
    assert "does not pass SOFA verification" in result.stderr
    assert json.loads(result.stdout)["directions"] == 40


# Bad options.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sound", "good.wav"], ["FILE:AZIMUTH:ELEVATION"]),
        (["--sound", "good.wav:left:0"], ["FILE:AZIMUTH:ELEVATION"]),
        (["--sound", "gone.wav:0:0"], ["sound must be an existing file", "gone.wav"]),
        (["--sound", "good.wav:0:0", "--overlap", "2"], ["between 0 and 1"]),
        (["--sound", "good.wav:0:0", "--t60", "0.001"], ["--t60 must be at least"]),
        (["--talkers", "9"], ["talkers must be between 1 and 3"]),
        (["--sound", "good.wav:0:0", "--room", "4,3"], ["room must be X,Y,Z", "'4,3'"]),
        (["--sound", "good.wav:0:0", "--room", "a,b,c"], ["room must be X,Y,Z"]),
        (["--sound", "good.wav:0:0", "--room", "2,2,2"], ["--listener must be inside"]),
        (["--sound", "good.wav:0:0", "--listener", "1,1,1"], ["--listener", "--t60"]),
        (["--sound", "good.wav:0:0", "--distance", "1"], ["--distance", "--t60"]),
        (["--sound", "good.wav:0:0", "--t60", "0.3", "--distance", "9"], ["--distance must"]),
        (["--sound", "good.wav:0:0", "--level", "nan"], ["--level must be"]),
        (
            ["--sound", "good.wav:0:0", "--level", "1", "--level", "2"],
            ["--level must be as many"],
        ),
        (["--sound", "good.wav:0:0", "--seed", "-1"], ["seed must be"]),
    ],
)
def test_bad_scenes(
    run: Run, tmp_path: Path, good_wav: Path, arguments: list[str], words: list[str]
) -> None:
    """Bad scenes are refused before anything is written."""
    refused(run("simulate", "simulated", "-o", "out", *arguments, cwd=tmp_path), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--relative-db", "nan"], ["relative_db must be a number"]),
        (["--relative-db", "inf"], ["relative_db must be a number"]),
        (["--channels", "0", "0"], ["channels must be two different ones", "0, 0"]),
        (["--channels", "0", "2"], ["between 0 and 1", "got 0, 2. Choose channels that the file "]),
        (["--channels", "0", "x"], ["--channels must be a whole number, got 'x'."]),
        (["--relative-db", "low"], ["--relative-db must be a number, got 'low'."]),
    ],
)
def test_bad_options_of_cues(
    run: Run, good_wav: Path, arguments: list[str], words: list[str]
) -> None:
    """Values that are not finite and channels that do not exist are refused."""
    refused(run("cues", good_wav, *arguments), *words)


def test_unwritable_output(run: Run, tmp_path: Path, good_wav: Path) -> None:
    """A file in place of the folder, and a missing folder, are refused."""
    (tmp_path / "taken").write_text("mine")
    sound = f"{good_wav}:0:0"
    refused(run("simulate", "simulated", "-o", tmp_path / "taken", "--sound", sound), "writable")
    refused(
        run("cues", good_wav, "--plot", tmp_path / "no" / "x.png"), "plot", "folder that exists"
    )
    refused(run("info", "simulated", "--plot", tmp_path / "x.gif"), ".png")
