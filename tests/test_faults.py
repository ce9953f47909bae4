"""Files after kill -9 at any step of writing, on a full disk, and with two writers.

Commands run in forked processes with fast substitutes for the computations, so that every step of
writing can be tested as the last one.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import traceback
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
from head_files import write_responses
from learned_heads import LearnedHeads

import earatlas as ea
from earatlas.batch.sidecar import read_sidecar
from earatlas.features.audio_writer import incremental_wav_writer
from earatlas.files import recover_scratch
from earatlas.separation.pipeline import SeparationOptions, source_file_name
from earatlas.separation.result import SceneSummary

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs forks, disks and limits of Linux"
)

Run = Callable[..., subprocess.CompletedProcess[str]]
PEAK = 0.25  # amplitude of the recording
RING = np.column_stack([np.arange(-180.0, 180.0, 15.0), np.zeros(24)])


def fork(function: Callable[[], object]) -> int:
    """Run a function in a forked process; return the process number."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the threads of the test runner are idle
        process = os.fork()
    if process:
        return process
    try:
        function()
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())  # captured, and shown if the test fails
    finally:
        os._exit(77)


def killed_at(step: int, *command: object) -> bool:
    """Return whether a command was killed before this step of writing, or ended before."""

    def run_command() -> None:
        remaining = step

        def counted(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal remaining
                remaining -= 1
                if remaining < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*arguments, **options)

            return call

        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "touch"), (shutil, "rmtree")):
            setattr(owner, name, counted(getattr(owner, name)))
        assert in_process(*command).returncode == 0

    status = os.waitpid(fork(run_command), 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """An atlas, a table of a head's responses, and a recording."""
    folder = tmp_path_factory.mktemp("faults")
    head = ea.simulated_head(RING)
    learned_heads.learn(head, components=2, rooms=False).save(folder / "a.atlas")
    write_responses(folder / "head.csv", head)
    scene = ea.render_scene(head, [ea.synthetic_speech(0.6, seed=1)], [(30.0, 0.0)])
    loudest = np.abs(scene.mixture.samples).max()
    ea.Audio(scene.mixture.samples * PEAK / loudest, 16000).write(folder / "talk.wav")
    return folder


@pytest.fixture
def fast_computations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace learning by a known atlas, and separation by a gain of n."""
    atlas = ea.Atlas.load(folder / "a.atlas")

    def separated(
        _: object, recording: Any, out: Path, options: SeparationOptions, **__: object
    ) -> Any:
        sound = ea.read_audio(recording.path).samples * (options.n_sources or 1)
        names = [source_file_name(recording.path, m) for m in range(2)]
        with incremental_wav_writer(out, names, 16000) as append:
            append(np.stack([sound, sound]))
        return FakeScene(), [out / name for name in names]

    monkeypatch.setattr("earatlas.training.learn_head.learn_head", lambda *_, **__: atlas)
    monkeypatch.setattr("earatlas.batch.recordings.separate_file", separated)


class FakeScene:
    """The attributes of a scene that a sidecar records."""

    free_energies = (0.0,)
    rate, dry, seconds = 16000, False, 1.0
    doubts = ()

    class _Source:
        def to_dict(self) -> dict[str, Any]:
            return {"direction": [0.0, 0.0], "radius_90": 1.0, "share": 0.5, "doubts": []}

    sources = (_Source(), _Source())

    to_dict = SceneSummary.to_dict


def gains(out: Path) -> set[int]:
    """Return the gains of the two separated sounds; one number if they agree."""
    sounds = (soundfile.read(out / f"talk_source{m}.wav")[0] for m in (1, 2))
    return {round(float(np.abs(samples).max() / PEAK)) for samples in sounds}


# --- kill -9 ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("fast_computations")
def test_learning_killed_at_every_step(run: Run, folder: Path, tmp_path: Path) -> None:
    """The atlas is the old or the new one; the next run removes everything else."""
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


@pytest.mark.usefixtures("fast_computations")
def test_separating_killed_at_every_step(run: Run, folder: Path, tmp_path: Path) -> None:
    """The sounds are all old or all new, and --resume never confuses them."""
    call = ["separate", folder / "a.atlas", folder / "talk.wav", "-o", tmp_path / "o", "-n"]
    seen = set()
    for step in count():
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
        assert run(*call, 1).returncode == 0
        if not killed_at(step, *call, 2):
            break
        recover_scratch(tmp_path / "o")  # as the next writer does
        (gain,) = gains(tmp_path / "o")
        seen.add(gain)
        assert read_sidecar(tmp_path / "o" / "talk.json") is not None
        result = run(*call, 2, "--resume")
        assert result.returncode == 0, result.stderr
        assert gains(tmp_path / "o") == {2}
        assert sorted(file.name for file in (tmp_path / "o").iterdir()) == [
            "talk.json", "talk_source1.wav", "talk_source2.wav",
        ]  # fmt: skip
    assert step > 10
    assert seen == {1, 2}


# --- full and read-only disks -------------------------------------------------------------------


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that mounts small disks, or skip the test."""
    with ExitStack() as stack:

        def mount_tmpfs(options: str, *files: Path) -> Path:
            place = tmp_path / f"disk-{options}"
            place.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
            try:
                done = subprocess.run(command, capture_output=True)
            except OSError as error:
                pytest.skip(f"cannot mount a disk: {error}")
            if done.returncode:
                pytest.skip("cannot mount a disk: only root can")
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
            for file in files:
                shutil.copy(file, place)
            subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
            return place

        yield mount_tmpfs


def commands(folder: Path, out: Path) -> dict[str, list[object]]:
    """Return commands that write about 10 kB or more."""
    recording, learned = folder / "talk.wav", folder / "a.atlas"
    return {
        "learn": ["learn", folder / "head.csv", "-o", out / "x.atlas", "--no-rooms"],
        "separate": ["separate", learned, recording, "-n", 2, "-o", out],
        "simulate": ["simulate", "simulated", "--sound", f"{recording}:30:0", "-o", out / "scene"],
        "track": ["localize", learned, recording, "--track", out / "t.csv", "--hop", 0.008,
                  "--window", 0.1],
        "batch": ["localize", learned, recording, "-o", out],
        "listen": ["listen", "simulated", "--separate", "-o", out / "live", "--from", recording],
    }  # fmt: skip


@pytest.mark.usefixtures("fast_computations")
@pytest.mark.parametrize("name", ["learn", "separate", "simulate", "track", "batch"])
def test_full_disk(
    run: Run, folder: Path, tmp_path: Path, mount: Callable[..., Path], name: str
) -> None:
    """A full disk gives one sentence and exit code 2; old files stay, without partial ones."""
    out = mount("size=16k", folder / "head.csv")
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    (out / "rest").write_bytes(bytes(12 << 10))  # the table fills the remaining page
    result = run(*commands(folder, out)[name])
    assert_disk_full_error(result)
    left = {file.name: file.read_bytes() for file in out.iterdir() if file.name != "rest"}
    assert left == before


@pytest.mark.usefixtures("fast_computations")
@pytest.mark.parametrize("name", ["learn", "separate", "simulate", "track", "batch"])
def test_file_size_limit(folder: Path, tmp_path: Path, name: str) -> None:
    """A limit of the file size has the same effect, for users who cannot mount disks."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")

    def run_command() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        assert_disk_full_error(in_process(*commands(folder, out)[name]))

    assert os.waitpid(fork(run_command), 0)[1] == 0
    assert [file.name for file in out.iterdir()] == ["old"]


def assert_disk_full_error(result: subprocess.CompletedProcess[str]) -> None:
    """Assert one error about the file or the disk."""
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert (result.returncode, len(errors)) == (2, 1), result.stderr
    words = ("No space", "full disk", "too large", "room", "space")
    assert any(word in errors[0] for word in words), errors
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["learn", "separate", "simulate", "track", "batch", "listen"])
def test_read_only_disk(
    run: Run, folder: Path, mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A read-only disk is refused before the work."""

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the computation was started")

    out = mount("ro")
    for function in (
        "earatlas.training.learn_head.learn_head",
        "earatlas.batch.recordings.separate_file",
        "earatlas.cli.localize._localize_recording",
    ):
        monkeypatch.setattr(function, fail)
    result = run(*commands(folder, out)[name])
    assert result.returncode == 2, result.stderr
    assert "Read-only file system" in result.stderr
    assert "Traceback" not in result.stderr


# --- two writers ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("fast_computations")
def test_two_writers(run: Run, folder: Path, tmp_path: Path) -> None:
    """Two writers replace each other's results completely, and leave nothing else."""
    calls = [
        ["separate", folder / "a.atlas", folder / "talk.wav", "-o", tmp_path / "o", "-n", n]
        for n in (1, 2)
    ] + [["learn", folder / "head.csv", "-o", tmp_path / "x.atlas", "--no-rooms"]] * 2
    for _ in range(3):
        writers = [fork(lambda call=call: _assert_success(call)) for call in calls]  # type: ignore[misc]
        assert [os.waitpid(writer, 0)[1] for writer in writers] == [0] * 4
        assert len(gains(tmp_path / "o")) == 1
        ea.Atlas.load(tmp_path / "x.atlas")
        assert not list(tmp_path.rglob(".earatlas-*"))
    result = run(*calls[1], "--resume")
    assert result.returncode == 0, result.stderr
    assert gains(tmp_path / "o") == {2}


def _assert_success(call: list[object]) -> None:
    """Assert that a command succeeds."""
    result = in_process(*call)
    assert result.returncode == 0, result.stderr
