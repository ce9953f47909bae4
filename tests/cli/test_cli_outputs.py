"""Rules for overwriting: a command replaces its own files and reports it; others need --force."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from head_files import write_responses
from learned_heads import LearnedHeads
from tests_support import refused

import earatlas as ea

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """A folder with a table of 24 responses on a ring, its atlas, and a recording."""
    folder = tmp_path_factory.mktemp("ring")
    head = ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 15)])
    write_responses(folder / "ring.csv", head)
    learned_heads.learn(head, components=2, rooms=False).save(folder / "ring.atlas")
    scene = ea.render_scene(head, [ea.synthetic_speech(1.0, seed=5)], [(60.0, 0.0)])
    scene.mixture.write(folder / "talker.wav")
    return folder


def cases(ring: Path) -> dict[str, tuple[list[object], str]]:
    """Return commands that write one file, without its name."""
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


@pytest.mark.usefixtures("cached_learning")
@pytest.mark.parametrize("case", list(cases(Path())))
def test_overwriting_one_file(run: Run, ring: Path, tmp_path: Path, case: str) -> None:
    """A foreign file is kept unless forced; an own file is replaced, and its name is printed."""
    call, name = cases(ring)[case]
    file = tmp_path / name
    file.write_text("file,azimuth,elevation\nmine.wav,0,0\n")
    before = file.read_bytes()
    refused(run(*call, file), "did not create", str(file), "--force")
    assert file.read_bytes() == before
    message = f"replaced: {file}\n"
    forced = run(*call, file, "--force")
    assert (forced.returncode, message in forced.stderr) == (0, True), forced.stderr
    again = run(*call, file)
    assert (again.returncode, message in again.stderr) == (0, True), again.stderr
    if file.suffix in (".svg", ".pdf"):
        return  # the rest does not depend on how a picture is recognized
    file.write_bytes(b"")
    assert message not in run(*call, file).stderr, "an empty file may be replaced"
    file.unlink()
    assert "replaced" not in run(*call, file).stderr


def test_overwriting_a_scene(run: Run, ring: Path, tmp_path: Path) -> None:
    """A scene is replaced with its images; a mixture without a scene is not."""
    (ring / "mono").mkdir()
    dry = ea.Audio(ea.read_mono(ring / "0.wav", rate=16_000)[None], 16_000)
    sound = dry.write(ring / "mono" / "0.wav")
    call = ["simulate", "simulated", "--sound", f"{sound}:40:0", "-o", tmp_path]
    (tmp_path / "mixture.wav").write_text("mine")
    refused(run(*call), "did not create", "mixture.wav", "--force")
    assert [file.name for file in tmp_path.iterdir()] == ["mixture.wav"]
    (tmp_path / "mixture.wav").unlink()
    (tmp_path / "notes.txt").write_text("mine")
    assert run(*call).stderr == ""
    again = run(*call)
    assert again.returncode == 0
    assert "replaced: " in again.stderr
    assert str(tmp_path / "image1_0.wav") in again.stderr
    (tmp_path / "scene.json").write_text('{"my": "scene"}')
    refused(run(*call), "did not create")
    assert run(*call, "--force").returncode == 0
    assert json.loads((tmp_path / "scene.json").read_text())["mixture"] == "mixture.wav"
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_demo_keeps_foreign_files(run: Run, tmp_path: Path) -> None:
    """Foreign files in the folder are refused before the work."""
    for name in ("mixture.wav", "report.html", "simulated.atlas"):
        (tmp_path / name).write_text("mine")
        refused(run("demo", "-o", tmp_path), "did not create", name, "--force")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_overwriting_sounds_and_reports(run: Run, ring: Path, tmp_path: Path) -> None:
    """Sounds are recognized by their comment; a report without sounds is a foreign file."""
    call = ["separate", ring / "ring.atlas", ring / "talker.wav", "-n", 1, "--report",
            "-o", tmp_path]  # fmt: skip
    (tmp_path / "talker.html").write_text("mine")
    refused(run(*call), "did not create", "talker.html", "--force")
    assert [file.name for file in tmp_path.iterdir()] == ["talker.html"]
    assert f"replaced: {tmp_path / 'talker.html'}\n" in run(*call, "--force").stderr
    message = run(*call).stderr
    files = ", ".join(str(tmp_path / name) for name in ("talker_source1.wav", "talker.html"))
    assert f"replaced: {files}\n" in message
    assert message.count("replaced") == 1
    # Neither a sound of the user, nor a result that was edited since, is replaced.
    call.remove("--report")
    sound = tmp_path / "talker_source1.wav"
    for samples in (ea.read_audio(ring / "talker.wav"), ea.read_audio(sound)):
        samples.write(sound)
        before = sound.read_bytes()
        for more in ([], ["--resume"]):
            refused(run(*call, *more), "did not create", "talker_source1.wav", "--force")
        assert sound.read_bytes() == before
        atlas = ea.Atlas.load(ring / "ring.atlas")
        with pytest.raises(ea.InputError, match="must not contain other files"):
            ea.map_recordings(atlas, ring / "talker.wav", tmp_path, task="separate")
        assert run(*call, "--force").returncode == 0
        assert sound.read_bytes() != before


def test_overwriting_a_results_page(run: Run, tmp_path: Path) -> None:
    """The page of `reproduce` is beside its rows; another results.md is kept."""
    (tmp_path / "results.md").write_text("mine")
    call = ["reproduce", "figure2", "--draw-only", "-o", tmp_path]
    refused(run(*call), "did not create", "results.md")
    assert [file.name for file in tmp_path.iterdir()] == ["results.md"]
    assert run(*call, "--force").returncode == 0
    assert "earatlas reproduce" in (tmp_path / "results.md").read_text()


def test_overwriting_manifolds(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page and the picture are replaced together, or not at all."""
    pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    small = ea.simulated_head(ea.Sphere().grid(25.0))
    monkeypatch.setattr("earatlas.hrtf.loading.simulated_head", lambda: small)
    call = ["manifold", "simulated", "-o", tmp_path, "--json"]
    (tmp_path / "simulated.html").write_text("mine")
    refused(run(*call), "did not create", "simulated.html")
    (tmp_path / "simulated.html").unlink()
    assert "replaced" not in run(*call).stderr
    files = ", ".join(str(tmp_path / f"simulated.{ending}") for ending in ("png", "html"))
    assert f"replaced: {files}\n" in run(*call).stderr


def test_failures_keep_the_old_track(run: Run, ring: Path, tmp_path: Path) -> None:
    """A track of an earlier run survives a recording that cannot be read."""
    track = tmp_path / "t.csv"
    run("localize", ring / "ring.atlas", ring / "talker.wav", "--track", track)
    before = track.read_bytes()
    soundfile.write(tmp_path / "silent.wav", np.zeros((16000, 2)), 16000)
    refused(run("localize", ring / "ring.atlas", tmp_path / "silent.wav", "--track", track))
    assert track.read_bytes() == before


@pytest.mark.usefixtures("cached_learning")
def test_remedies_for_swapped_arguments(run: Run, ring: Path, tmp_path: Path) -> None:
    """Swapped arguments, a file as folder and a wrong suffix name the remedy."""
    atlas, talker = ring / "ring.atlas", ring / "talker.wav"
    refused(run("localize", talker, atlas), "atlas comes first")
    file = tmp_path / "out"
    file.write_text("mine")
    refused(run("separate", atlas, talker, "-o", file), f"got '{file}' (it is a file)")
    assert file.read_text() == "mine"
    learn = ["learn", ring / "ring.csv", "--components", 2, "-o"]
    refused(run(*learn, tmp_path / "z.wav"), "z.wav", "Name it z.atlas")
    assert run(*learn, tmp_path / "z.atlas").returncode == 0
