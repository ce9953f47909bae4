"""Commands with malicious input: one sentence, exit code 2, and no partial results."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from matplotlib.figure import Figure
from tests_support import refused

import earatlas as ea
from earatlas import cli
from earatlas.errors import InputError, sanitize

Run = Callable[..., subprocess.CompletedProcess[str]]
ESCAPE = "\x1b[31mred\x07\x9b2J\u202e"
SOURCE = '{"sources": [{"name": "a", "file": "mixture.wav", "direction": '
ESCAPED = r"\x1b[31mred\x07\x9b2J\u202e"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, atlas: ea.Atlas, small_head: ea.Head) -> Path:
    """An atlas, and a scene of one talker with its truth."""
    folder = tmp_path_factory.mktemp("hostile")
    atlas.save(folder / "head.atlas")
    scene = ea.render_scene(small_head, [ea.synthetic_speech(1.0, seed=5)], [(60.0, 0.0)])
    scene.write(folder / "scene")
    return folder


def test_names_that_are_too_long(run: Run, folder: Path, tmp_path: Path) -> None:
    """The name that is too long is named, which may be that of a folder."""
    call = ("localize", folder / "head.atlas", folder / "scene" / "mixture.wav", "-o")
    refused(run(*call, tmp_path / ("x" * 300)), "files and folders", "xx' with 300. Use a shorter")
    deep = tmp_path.joinpath(*["y" * 200] * 25)
    refused(run(*call, deep), "paths must be shorter than 4096 bytes", "Use fewer or shorter")


def test_control_characters_are_escaped(run: Run, folder: Path, tmp_path: Path) -> None:
    """Names and texts of files are escaped in results, tables and messages."""
    sound = tmp_path / f"{ESCAPE}.wav"
    sound.write_bytes((folder / "scene" / "mixture.wav").read_bytes())
    output = run("localize", folder / "head.atlas", sound).stdout
    assert ESCAPED in output
    assert "\x1b" not in output
    refused(run("cues", tmp_path / f"{ESCAPE}.flac"), ESCAPED)
    refused(run("info", f"--{ESCAPE}"), ESCAPED)
    atlas = ea.Atlas.load(folder / "head.atlas")
    atlas.about.update(licence=ESCAPE, provenance=ESCAPE)
    output = run("info", atlas.save(tmp_path / "x.atlas")).stdout
    assert output.count(r"\x1b[31mred") == 2
    assert not any(c in output for c in "\x1b\x07\x9b\u202e")
    output = run("simulate", "simulated", "-o", tmp_path / "s", "--sound", f"{sound}:0:0").stdout
    assert r"\x1b[31mred" in output
    assert "\x1b" not in output


def test_line_breaks_in_names_are_escaped(run: Run, folder: Path, tmp_path: Path) -> None:
    """Text after a line break in a name could be mistaken for a result."""
    sound = tmp_path / "a\nb.wav"
    sound.write_bytes((folder / "scene" / "mixture.wav").read_bytes())
    for options in ([], ["-o", tmp_path / "o"], ["-o", tmp_path / "o", "--resume", "--channels",
                                                 1, 0]):  # fmt: skip
        output = run("localize", folder / "head.atlas", sound, *options)
        assert output.returncode == 0
        assert "\nb.wav" not in output.stdout + output.stderr
        assert r"a\nb.wav: azimuth" in output.stdout


def test_messages_are_short() -> None:
    """Long names, values and messages are shortened; the fixed text stays."""
    for value in ("'" + "x" * 5000 + "'", "'" + "x " * 5000 + "'", "x" * 5000, "x " * 5000):
        message = str(InputError(f"table must be short, got {value} in 'a.csv'. Shorten it."))
        assert message.startswith("table must be short, got ")
        assert message.endswith(". Shorten it.")
        assert len(message) < 950
        assert " … " in message
    fixed = "a 'b' " + "our own words " * 30 + "'c' d"
    assert str(InputError(fixed)) == fixed
    assert sanitize("Müller 頭 …\n", keep="\n") == "Müller 頭 …\n"


@pytest.mark.parametrize("device", ["pipe", "/dev/zero"])
def test_pipes_and_devices_are_refused(run: Run, folder: Path, tmp_path: Path, device: str) -> None:
    """A pipe or device is refused wherever a file is expected."""
    file = Path(device) if device.startswith("/") else tmp_path / "pipe"
    if not file.exists():
        os.mkfifo(file)
    (tmp_path / "x.sofa").symlink_to(file)
    (tmp_path / "x.csv").symlink_to(file)
    mixture = folder / "scene" / "mixture.wav"
    for call in (
        ["cues", file],
        ["info", file],
        ["info", tmp_path / "x.sofa"],
        ["info", tmp_path / "x.csv"],
        ["localize", file, mixture],
        ["localize", folder / "head.atlas", file],
        ["localize", folder / "head.atlas", mixture, "--track", tmp_path / "x.csv"],
        ["separate", folder / "head.atlas", mixture, "-o", tmp_path / "o", "--truth", file],
        ["simulate", "simulated", "-o", tmp_path / "s", "--sound", f"{file}:0:0"],
        ["learn", "simulated", "-o", tmp_path / "x.csv"],
    ):
        refused(run(*call))
    (tmp_path / "scene.json").symlink_to(file)
    refused(run("simulate", "simulated", "-o", tmp_path, "--sound", f"{mixture}:0:0"), "scene.json")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"sources": ' + "[" * 200_000 + "]" * 200_000 + "}",
        SOURCE + '[1e999, 0]}]}',
        SOURCE + '[1' + "0" * 400 + ", 0]}]}",
        SOURCE + '[1' + "0" * 9000 + ", 0]}]}",
        SOURCE + '[[1, 2], 0]}]}',
        '{"sources": ' + str(["x"] * 101).replace("'", '"') + "}",
        '{"sources": {"name": 1}}',
        '{"sources": []}',
        '"' + "x" * (1 << 20) + '"',
        "\ud800",
    ],
    ids=lambda text: f"{len(text)}",
)  # fmt: skip
def test_malicious_scene_files_are_refused(
    run: Run, folder: Path, tmp_path: Path, text: str
) -> None:
    """Deep, huge or wrong values are refused; `simulate` does not replace such files."""
    (tmp_path / "scene.json").write_text(text, errors="surrogatepass")
    mixture = folder / "scene" / "mixture.wav"
    call = ["separate", folder / "head.atlas", mixture, "-o", tmp_path / "o", "--truth", tmp_path]
    refused(run(*call), "truth must be a scene.json")
    refused(run("simulate", "simulated", "-o", tmp_path, "--sound", f"{mixture}:0:0"), "--force")


def test_absurd_samples_are_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    """Huge samples are refused in recordings, sounds, scene noise and arrays."""
    loud = tmp_path / "loud.wav"
    soundfile.write(loud, np.full((16000, 2), 1e300), 16000, "DOUBLE")
    for call in (
        ["cues", loud],
        ["localize", folder / "head.atlas", loud],
        ["separate", folder / "head.atlas", loud, "-o", tmp_path / "o"],
        ["simulate", "simulated", "-o", tmp_path / "s", "--sound", f"{loud}:0:0"],
    ):
        refused(run(*call), "a million times full scale, got 1e+300")
    scene = tmp_path / "scene"
    ea.render_scene(ea.simulated_head([[0, 0]]), [ea.synthetic_speech(1.0)], [[0, 0]]).write(scene)
    (scene / "noise.wav").write_bytes(loud.read_bytes())
    refused(
        run("separate", folder / "head.atlas", scene / "mixture.wav", "-o", tmp_path / "o",
            "--truth", scene), "noise.wav", "got 1e+300",
    )  # fmt: skip
    atlas = ea.Atlas.load(folder / "head.atlas")
    with pytest.raises(InputError, match=r"beyond a million times full scale, got 1e\+300"):
        atlas.localize(ea.Audio(np.full((2, 16000), 1e300), 16000))


def test_file_names_that_are_not_utf8(run: Run, folder: Path, tmp_path: Path) -> None:
    """A recording whose name is not UTF-8 is processed like any other."""
    sound = tmp_path / os.fsdecode(b"caf\xe9.wav")
    sound.write_bytes((folder / "scene" / "mixture.wav").read_bytes())
    for call in (
        ["cues", sound, "--plot", tmp_path / "c.svg"],
        ["localize", folder / "head.atlas", sound, "--plot", tmp_path / "p.svg", "--json"],
        ["separate", folder / "head.atlas", sound, "-o", tmp_path / "o", "--sources", 1,
         "--report"],
        ["simulate", "simulated", "-o", tmp_path / "s", "--sound", f"{sound}:0:0"],
    ):  # fmt: skip
        result = run(*call)
        assert result.returncode == 0, result.stderr
    assert os.fsencode(tmp_path / "o") + b"/caf\xe9_source1.wav" in [
        os.fsencode(file) for file in (tmp_path / "o").iterdir()
    ]


@pytest.mark.parametrize(
    ("closed", "code", "words"),
    [
        ("<&-", 2, "input must hold sound"),
        (">&-", 2, "standard output must be open"),
        ("2>&-", 2, ""),
    ],
)
def test_closed_streams(folder: Path, closed: str, code: int, words: str) -> None:
    """A closed standard stream gives no traceback, and no result in another file."""
    command = f"'{sys.executable}' -m earatlas listen '{folder / 'head.atlas'}' --stdin {closed}"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert words in result.stderr


def test_learn_checks_that_the_disk_is_writable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only file system is noticed before learning."""

    def refuse(*_: object, **__: object) -> str:
        raise OSError(30, "Read-only file system")

    def fail(*_: object, **__: object) -> None:
        pytest.fail("learning was started")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    monkeypatch.setattr("earatlas.training.learn_head.learn_head", fail)
    refused(run("learn", "simulated", "-o", tmp_path / "x.atlas"), "Read-only file system")


def test_track_and_picture_are_written_together(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture that cannot be written leaves the old track in place."""
    track = tmp_path / "t.json"
    call = ["localize", folder / "head.atlas", folder / "scene" / "mixture.wav", "--track", track]
    assert run(*call).returncode == 0
    before = track.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    refused_call = run(*call, "--window", 0.3, "--plot", tmp_path / "p.png")
    assert refused_call.returncode == 2
    assert "No space left" in refused_call.stderr
    assert track.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_manifold_files_are_written_together(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture does not appear if the page fails."""
    pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    monkeypatch.setattr("earatlas.cli.manifold._embeddings", lambda *_: [])
    monkeypatch.setattr("earatlas.plotting.manifolds.plot_manifolds", lambda *_, **__: Figure())

    def fail(*_: object, **__: object) -> str:
        raise InputError("page must be valid, got none. Try again.")

    monkeypatch.setattr("earatlas.manifold.viewer.manifold_page", fail)
    refused(run("manifold", "simulated", "-o", tmp_path / "out"), "page must be")
    assert list(tmp_path.iterdir()) == []


def test_no_region_is_larger_than_the_sphere() -> None:
    """The area of a very wide posterior is limited to that of the space."""
    for space, most in (
        (ea.Sphere(), 41252.9), (ea.Cylinder((-90.0, 90.0)), 41252.9), (ea.Cylinder(), 41252.9),
        (ea.Plane(), 41252.9), (ea.Circle(), 360.0), (ea.Plane(((-180.0, 180.0),)), 360.0),
    ):  # fmt: skip
        L = space.dims
        centre = np.zeros((1, space.columns))
        wide = ea.DirectionPosterior(
            space, centre, np.ones(1), np.zeros((1, L)), 1e6 * np.eye(L)[None]
        )
        where = ea.Localization(wide, 0.5, 1.0)
        assert where.to_dict()["credible_90_area"] == most
    pixels = ea.Plane(((0.0, 640.0), (0.0, 480.0)))
    centre = np.zeros((1, 2))
    wide = ea.DirectionPosterior(pixels, centre, np.ones(1), centre, 1e6 * np.eye(2)[None])
    assert wide.credible_area(0.9) > 1e6


def test_too_little_memory_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of memory gives a sentence and exit code 2, not a traceback."""

    def exhausted() -> None:
        raise MemoryError

    monkeypatch.setattr("earatlas.cli.app.app", exhausted)
    monkeypatch.setattr("sys.argv", ["earatlas", "info", "x.wav"])
    with pytest.raises(SystemExit) as exit_info:
        cli._run()
    assert exit_info.value.code == 2
    assert "memory must suffice" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("seperate", "Did you mean separate?"), ("localise", "Did you mean localize?"),
     ("xyzzy", "See earatlas --help.")],
)  # fmt: skip
def test_a_misspelt_command_is_corrected(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    remedy: str,
) -> None:
    """The message names the most similar command, if there is one."""
    monkeypatch.setattr("sys.argv", ["earatlas", name, "x.wav"])
    with pytest.raises(SystemExit) as exit_info:
        cli._run()
    assert exit_info.value.code == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"got '{name}'. {remedy}" in message
