"""What a command may overwrite: its own, and then it says so; nothing else, but for --force."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from learned_heads import LearnedHeads
from tests_support import refused

import earatlas as ea

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """A folder with a table of 24 responses on a ring, its atlas, and a recording."""
    folder = tmp_path_factory.mktemp("ring")
    head = ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 15)])
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        ea.Audio(head.responses().samples[n], 48000).write(folder / f"{n}.wav")
        lines.append(f"{n}.wav,{azimuth},{elevation}")
    (folder / "ring.csv").write_text("\n".join(lines))
    learned_heads.learn(head, components=2, rooms=False).save(folder / "ring.atlas")
    scene = ea.render_scene(head, [ea.synthetic_speech(1.0, seed=5)], [(60.0, 0.0)])
    scene.mixture.write(folder / "talker.wav")
    return folder


def cases(ring: Path) -> dict[str, tuple[list[object], str]]:
    """Commands that write one file, without its name."""
    localize = ["localize", ring / "ring.atlas", ring / "talker.wav"]
    return {
        "atlas": (["learn", ring / "ring.csv", "--components", 2, "--no-rooms", "-o"], "x.atlas"),
        "track": ([*localize, "--track"], "x.csv"),
        "track in JSON": ([*localize, "--track"], "x.json"),
        "posterior": ([*localize, "--plot"], "x.png"),
        "posterior as SVG": ([*localize, "--plot"], "x.svg"),
        "posterior as PDF": ([*localize, "--plot"], "x.pdf"),
        "head": (["info", ring / "ring.csv", "--plot"], "x.png"),
        "cues": (["cues", ring / "talker.wav", "--plot"], "x.png"),
    }


@pytest.mark.usefixtures("learned_before")
@pytest.mark.parametrize("case", list(cases(Path())))
def test_one_file(
    run: Run, ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Somebody's file is left alone unless it is forced; our own is replaced, and that is said."""
    monkeypatch.setattr("earatlas.plotting.style.DOTS_AN_INCH", 40)  # nobody looks at them
    call, name = cases(ring)[case]
    file = tmp_path / name
    file.write_text("file,azimuth,elevation\nmine.wav,0,0\n")
    before = file.read_bytes()
    refused(run(*call, file), "did not make", str(file), "--force")
    assert file.read_bytes() == before
    told = f"replaced: {file}\n"
    forced = run(*call, file, "--force")
    assert (forced.returncode, told in forced.stderr) == (0, True), forced.stderr
    again = run(*call, file)
    assert (again.returncode, told in again.stderr) == (0, True), again.stderr
    file.write_bytes(b"")
    assert told not in run(*call, file).stderr, "nothing is lost with an empty file"
    file.unlink()
    assert "replaced" not in run(*call, file).stderr


def test_a_scene(run: Run, ring: Path, tmp_path: Path) -> None:
    """A scene is replaced with its images; a mixture that belongs to no scene is not."""
    call = ["simulate", "simulated", "--sound", f"{ring / '0.wav'}:40:0", "-o", tmp_path]
    (tmp_path / "mixture.wav").write_text("mine")
    refused(run(*call), "did not make", "mixture.wav", "--force")
    assert [file.name for file in tmp_path.iterdir()] == ["mixture.wav"]
    (tmp_path / "mixture.wav").unlink()
    (tmp_path / "notes.txt").write_text("mine")
    assert run(*call).stderr == ""
    again = run(*call)
    assert again.returncode == 0
    assert "replaced: " in again.stderr
    assert str(tmp_path / "image1_0.wav") in again.stderr
    (tmp_path / "scene.json").write_text('{"my": "scene"}')
    refused(run(*call), "did not make")
    assert run(*call, "--force").returncode == 0
    assert json.loads((tmp_path / "scene.json").read_text())["mixture"] == "mixture.wav"
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_demo_leaves_a_mixture_alone(run: Run, tmp_path: Path) -> None:
    """Refused at once: the same folder may hold recordings of one's own."""
    for name in ("mixture.wav", "report.html", "simulated.atlas"):
        (tmp_path / name).write_text("mine")
        refused(run("demo", "-o", tmp_path), "did not make", name, "--force")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_sounds_and_their_page(run: Run, ring: Path, tmp_path: Path) -> None:
    """Sounds go by their names; a page that stands beside none is somebody else's."""
    call = ["separate", ring / "ring.atlas", ring / "talker.wav", "-n", 1, "--report",
            "-o", tmp_path]  # fmt: skip
    (tmp_path / "talker.html").write_text("mine")
    refused(run(*call), "did not make", "talker.html", "--force")
    assert [file.name for file in tmp_path.iterdir()] == ["talker.html"]
    assert f"replaced: {tmp_path / 'talker.html'}\n" in run(*call, "--force").stderr
    told = run(*call).stderr
    files = ", ".join(str(tmp_path / name) for name in ("talker_source1.wav", "talker.html"))
    assert f"replaced: {files}\n" in told
    assert told.count("replaced") == 1


def test_a_results_page(run: Run, tmp_path: Path) -> None:
    """The page of `reproduce` stands beside its rows; another results.md is not touched."""
    (tmp_path / "results.md").write_text("mine")
    call = ["reproduce", "figure2", "--draw-only", "-o", tmp_path]
    refused(run(*call), "did not make", "results.md")
    assert [file.name for file in tmp_path.iterdir()] == ["results.md"]
    assert run(*call, "--force").returncode == 0
    assert "earatlas reproduce" in (tmp_path / "results.md").read_text()


def test_manifolds(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page goes with the picture: both are replaced, or neither."""
    pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    small = ea.simulated_head(ea.Sphere().grid(25.0))
    monkeypatch.setattr("earatlas.hrtf.loading.simulated_head", lambda: small)
    call = ["manifold", "simulated", "-o", tmp_path, "--json"]
    (tmp_path / "simulated.html").write_text("mine")
    refused(run(*call), "did not make", "simulated.html")
    (tmp_path / "simulated.html").unlink()
    assert "replaced" not in run(*call).stderr
    files = ", ".join(str(tmp_path / f"simulated.{ending}") for ending in ("png", "html"))
    assert f"replaced: {files}\n" in run(*call).stderr


def test_what_was_there_stays_when_the_work_fails(run: Run, ring: Path, tmp_path: Path) -> None:
    """A track of an earlier run is not lost to a recording that cannot be read."""
    track = tmp_path / "t.csv"
    run("localize", ring / "ring.atlas", ring / "talker.wav", "--track", track)
    before = track.read_bytes()
    soundfile.write(tmp_path / "silent.wav", np.zeros((16000, 2)), 16000)
    refused(run("localize", ring / "ring.atlas", tmp_path / "silent.wav", "--track", track))
    assert track.read_bytes() == before


@pytest.mark.usefixtures("learned_before")
def test_what_was_meant_is_told(run: Run, ring: Path, tmp_path: Path) -> None:
    """Arguments the wrong way round, a file for a folder, an atlas called a sound: what to do."""
    atlas, talker = ring / "ring.atlas", ring / "talker.wav"
    refused(run("localize", talker, atlas), "atlas comes first")
    file = tmp_path / "out"
    file.write_text("mine")
    refused(run("separate", atlas, talker, "-o", file), f"got '{file}' (it is a file)")
    assert file.read_text() == "mine"
    learn = ["learn", ring / "ring.csv", "--components", 2, "-o"]
    refused(run(*learn, tmp_path / "z.wav"), "z.wav", "Name it z.atlas")
    assert run(*learn, tmp_path / "z.atlas").returncode == 0
