"""What is on the disk after kill -9 at any step of writing, on a full one, and of two writers.

A fault needs a process of its own to end, not one that starts anew: these are forked, with what
computes replaced by something quick, so that every step of writing can be the last.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from command_line import in_process
from learned_heads import LearnedHeads

import earatlas as ea
from earatlas.batch.sidecar import read_sidecar
from earatlas.features.audio_writer import growing_sound_files
from earatlas.files import clear_scratch
from earatlas.separation.options import Separating
from earatlas.separation.pipeline import sound_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, disks and limits of Linux")

Run = Callable[..., subprocess.CompletedProcess[str]]
PEAK = 0.25  # of the recording
RING = np.column_stack([np.arange(-180.0, 180.0, 15.0), np.zeros(24)])


def forked(act: Callable[[], object]) -> int:
    """The number of a process that does it, with this one's memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test runner's threads do nothing
        number = os.fork()
    if number:
        return number
    try:
        act()
        os._exit(0)
    finally:
        os._exit(77)


def killed_at(step: int, *command: object) -> bool:
    """Whether kill -9 came before so many steps of writing were done, or else the command ended."""

    def act() -> None:
        left = step

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "touch"), (shutil, "rmtree")):
            setattr(owner, name, counted(getattr(owner, name)))
        assert in_process(*command).returncode == 0

    status = os.waitpid(forked(act), 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """An atlas, a table of a head's responses, and a recording."""
    folder = tmp_path_factory.mktemp("faults")
    head = ea.simulated_head(RING)
    learned_heads.learn(head, components=2, rooms=False).save(folder / "a.atlas")
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        ea.Audio(head.responses().samples[n], 48000).write(folder / f"{n}.wav")
        lines.append(f"{n}.wav,{azimuth},{elevation}")
    (folder / "head.csv").write_text("\n".join(lines))
    scene = ea.render_scene(head, [ea.synthetic_speech(0.6, seed=1)], [(30.0, 0.0)])
    loudest = np.abs(scene.mixture.samples).max()
    ea.Audio(scene.mixture.samples * PEAK / loudest, 16000).write(folder / "talk.wav")
    return folder


@pytest.fixture
def quick(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed: learning gives a known atlas, separating the recording times n."""
    atlas = ea.Atlas.load(folder / "a.atlas")

    def separated(_: object, recording: Any, out: Path, how: Separating, **__: object) -> Any:
        sound = ea.read_audio(recording.path).samples * (how.n_sources or 1)
        names = [sound_file(recording.path, m) for m in range(2)]
        with growing_sound_files(out, names, 16000) as append:
            append(np.stack([sound, sound]))
        return FoundNothing(), [out / name for name in names]

    monkeypatch.setattr("earatlas.atlas.learn_head", lambda *_, **__: atlas)
    monkeypatch.setattr("earatlas.batch.recordings.separate_file", separated)


class FoundNothing:
    """As much of a scene as a sidecar tells of."""

    free_energies = (0.0,)
    rate, dry, seconds = 16000, False, 1.0
    doubts = ()

    class _Source:
        def to_dict(self) -> dict[str, Any]:
            return {"direction": [0.0, 0.0], "radius_90": 1.0, "share": 0.5, "doubts": []}

    sources = (_Source(), _Source())


def loudness(out: Path) -> set[int]:
    """How many times as loud as the recording the two sounds are; one number: they agree."""
    sounds = (soundfile.read(out / f"talk_source{m}.wav")[0] for m in (1, 2))
    return {round(float(np.abs(samples).max() / PEAK)) for samples in sounds}


# --- kill -9 ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_learning_killed_at_every_step(run: Run, folder: Path, tmp_path: Path) -> None:
    """The atlas of before or the new one, whole; the next run leaves nothing else behind."""
    path = tmp_path / "x.atlas"
    call = ["learn", folder / "head.csv", "-o", path, "--no-rooms"]
    old = ea.Atlas.load(folder / "a.atlas")
    before = ea.Atlas(**{**vars(old), "about": {**old.about, "head": "before"}})
    names = set()
    for step in count():
        before.save(path)
        if not killed_at(step, *call):
            break
        names.add(ea.Atlas.load(path).about["head"])
    assert step > 4
    assert names == {"before", old.about["head"]}
    assert [file.name for file in tmp_path.iterdir()] == ["x.atlas"]


@pytest.mark.usefixtures("quick")
def test_separating_killed_at_every_step(run: Run, folder: Path, tmp_path: Path) -> None:
    """Sounds are all old or all new, and `--resume` never takes the ones for the others."""
    call = ["separate", folder / "a.atlas", folder / "talk.wav", "-o", tmp_path / "o", "-n"]
    seen = set()
    for step in count():
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
        assert run(*call, 1).returncode == 0
        if not killed_at(step, *call, 2):
            break
        clear_scratch(tmp_path / "o")  # as the next writer does
        (now,) = loudness(tmp_path / "o")
        seen.add(now)
        assert read_sidecar(tmp_path / "o" / "talk.json") is not None
        result = run(*call, 2, "--resume")
        assert result.returncode == 0, result.stderr
        assert loudness(tmp_path / "o") == {2}
        assert sorted(file.name for file in (tmp_path / "o").iterdir()) == [
            "talk.json", "talk_source1.wav", "talk_source2.wav",
        ]  # fmt: skip
    assert step > 10
    assert seen == {1, 2}


# --- disks that are full or read-only -----------------------------------------------------------


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Small disks of their own, where the system lets us have them."""
    with ExitStack() as stack:

        def mount(options: str, *files: Path) -> Path:
            place = tmp_path / f"disk-{options}"
            place.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
            try:
                done = subprocess.run(command, capture_output=True)
            except OSError as error:
                pytest.skip(f"no disk of one's own: {error}")
            if done.returncode:
                pytest.skip("no disk of one's own: only root mounts one")
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
            for file in files:
                shutil.copy(file, place)
            subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
            return place

        yield mount


def commands(folder: Path, out: Path) -> dict[str, list[object]]:
    """Commands that write some 10 kB and more."""
    talk, learned = folder / "talk.wav", folder / "a.atlas"
    return {
        "learn": ["learn", folder / "head.csv", "-o", out / "x.atlas", "--no-rooms"],
        "separate": ["separate", learned, talk, "-n", 2, "-o", out],
        "simulate": ["simulate", "simulated", "--sound", f"{talk}:30:0", "-o", out / "scene"],
        "track": ["localize", learned, talk, "--track", out / "t.csv", "--hop", 0.008,
                  "--window", 0.1],
        "batch": ["localize", learned, talk, "-o", out],
        "listen": ["listen", learned, "--separate", "-o", out / "live", "--from", talk],
    }  # fmt: skip


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["learn", "separate", "simulate", "track", "batch"])
def test_a_full_disk(
    run: Run, folder: Path, tmp_path: Path, mounted: Callable[..., Path], name: str
) -> None:
    """One sentence and exit code 2; what was there before is, and nothing half-written."""
    out = mounted("size=16k", folder / "head.csv")
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    (out / "rest").write_bytes(bytes(12 << 10))  # a page has the table: there is none left
    result = run(*commands(folder, out)[name])
    told_of_no_room(result)
    left = {file.name: file.read_bytes() for file in out.iterdir() if file.name != "rest"}
    assert left == before


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["learn", "separate", "simulate", "track", "batch"])
def test_files_that_may_not_grow(folder: Path, tmp_path: Path, name: str) -> None:
    """The same where the system limits the length of a file: for who may not mount disks."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")

    def act() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        told_of_no_room(in_process(*commands(folder, out)[name]))

    assert os.waitpid(forked(act), 0)[1] == 0
    assert [file.name for file in out.iterdir()] == ["old"]


def told_of_no_room(result: subprocess.CompletedProcess[str]) -> None:
    """One sentence, of a file or of the disk."""
    said = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert (result.returncode, len(said)) == (2, 1), result.stderr
    words = ("No space", "full disk", "too large", "room", "free some space")
    assert any(word in said[0] for word in words), said
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["learn", "separate", "simulate", "track", "batch", "listen"])
def test_a_read_only_disk(
    run: Run, folder: Path, mounted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Refused before the work."""

    def fail(*_: object, **__: object) -> None:
        pytest.fail("it began to work")

    out = mounted("ro")
    for work in ("earatlas.atlas.learn_head", "earatlas.batch.recordings.separate_file",
                 "earatlas.cli.localize._found"):  # fmt: skip
        monkeypatch.setattr(work, fail)
    result = run(*commands(folder, out)[name])
    assert result.returncode == 2, result.stderr
    assert "Read-only file system" in result.stderr
    assert "Traceback" not in result.stderr


# --- two at a time --------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_two_writers(run: Run, folder: Path, tmp_path: Path) -> None:
    """They replace each other's results as a whole, whoever comes last, and leave nothing else."""
    calls = [
        ["separate", folder / "a.atlas", folder / "talk.wav", "-o", tmp_path / "o", "-n", n]
        for n in (1, 2)
    ] + [["learn", folder / "head.csv", "-o", tmp_path / "x.atlas", "--no-rooms"]] * 2
    for _ in range(3):
        writers = [forked(lambda call=call: _ends_well(call)) for call in calls]  # type: ignore[misc]
        assert [os.waitpid(writer, 0)[1] for writer in writers] == [0] * 4
        assert len(loudness(tmp_path / "o")) == 1
        ea.Atlas.load(tmp_path / "x.atlas")
        assert not list(tmp_path.rglob(".earatlas-*"))
    result = run(*calls[1], "--resume")
    assert result.returncode == 0, result.stderr
    assert loudness(tmp_path / "o") == {2}


def _ends_well(call: list[object]) -> None:
    assert in_process(*call).returncode == 0
