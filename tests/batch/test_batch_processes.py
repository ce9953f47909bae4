"""Batches as users run them: real recordings, interrupted commands and resuming."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from command_line import default_signals
from learned_heads import LearnedHeads

import earatlas as ea
from earatlas.batch import worker_pool
from earatlas.batch.sidecar import read_sidecar
from earatlas.cli.console import FileWarnings

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "earatlas"]
RING = np.column_stack([np.arange(-180.0, 180.0, 15.0), np.zeros(24)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """A folder with an atlas of 24 horizontal directions and recordings r/0.wav to r/9.wav."""
    folder = tmp_path_factory.mktemp("batch")
    head = ea.simulated_head(RING)
    learned_heads.learn(head, components=2, rooms=False).save(folder / "ring.atlas")
    (folder / "r").mkdir()
    for n in range(10):
        voices = [ea.synthetic_speech(1.0, seed=2 * n), ea.synthetic_speech(1.0, seed=2 * n + 1)]
        scene = ea.render_scene(head, voices, [(15.0 * (n % 5), 0.0), (-60.0, 0.0)])
        scene.mixture.write(folder / "r" / f"{n}.wav")
    return folder


@pytest.fixture(scope="module")
def expected_sounds(folder: Path) -> dict[str, bytes]:
    """The separated sounds of all recordings, from one process."""
    out = folder / "whole"
    atlas = ea.Atlas.load(folder / "ring.atlas")
    for outcome in ea.map_recordings(
        atlas, folder / "r", out, task="separate", settings={"n_sources": 2}
    ):
        assert outcome.status == "done", outcome.error
    return sounds(out)


def sounds(folder: Path) -> dict[str, bytes]:
    """Return the sound files of a folder."""
    return {file.name: file.read_bytes() for file in folder.glob("*.wav")}


# --- in this process --------------------------------------------------------------------------


def test_localize_into_a_folder(run: Run, folder: Path, tmp_path: Path) -> None:
    """Each recording has an answer and is skipped the next time, unless settings change."""
    call = ["localize", folder / "ring.atlas", folder / "r", "-o", tmp_path / "o", "--resume"]
    first = run(*call)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("bins observed") == 10
    assert "done" in first.stdout.splitlines()[-3]
    content = json.loads((tmp_path / "o" / "3.json").read_text())
    atlas = ea.Atlas.load(folder / "ring.atlas")
    where = atlas.localize_file(folder / "r" / "3.wav").to_dict()
    assert {name: content["answer"][name] for name in where} == where
    assert content["atlas"] == atlas.digest
    assert content["settings"]["channels"] == [0, 1]
    again = run(*call, "--json")
    assert again.stderr.startswith("resume: 10 of 10 are done already.")
    answers = [json.loads(line) for line in again.stdout.splitlines()]
    assert [answer["skipped"] for answer in answers] == [True] * 10
    assert answers[3]["direction"] == where["direction"]
    other = run(*call, "--channels", 1, 0)
    assert "other settings: channels." in other.stderr
    assert "and 9 more" in other.stderr
    assert "of them processed again" in other.stdout
    lines = (tmp_path / "o" / "batch.jsonl").read_text().splitlines()
    assert {json.loads(line)["again"] for line in lines} == {"other settings: channels"}


def test_batch_with_bad_files(run: Run, folder: Path, tmp_path: Path) -> None:
    """Bad files are listed in the table and tried again; the exit code is 1."""
    (tmp_path / "noise.wav").write_bytes(b"RIFF")
    (tmp_path / "list.txt").write_text(f"{folder / 'r' / '0.wav'}\nnoise.wav\ngone.wav\n")
    call = ["localize", folder / "ring.atlas", f"@{tmp_path / 'list.txt'}", "-o", tmp_path / "o"]
    for skipped in (0, 1):
        result = run(*call, "--resume")
        assert result.returncode == 1
        rows = [line.split() for line in result.stdout.splitlines()]
        assert ["skipped", str(skipped)] in [row[:2] for row in rows]
        assert ["failed", "2"] in rows
        assert any(row[0] == "noise.wav:" for row in rows)
        assert result.stderr.splitlines()[-1] == "error: 2 of 3 recordings failed."


def test_other_file_with_the_name_of_a_sidecar(run: Run, folder: Path, tmp_path: Path) -> None:
    """A file that no batch wrote is not overwritten, except with --force."""
    (tmp_path / "0.json").write_text('{"my": "notes"}')
    call = ["localize", folder / "ring.atlas", folder / "r" / "0.wav", "-o", tmp_path]
    result = run(*call)
    assert (result.returncode, "did not create" in result.stderr) == (2, True)
    assert (tmp_path / "0.json").read_text() == '{"my": "notes"}'
    assert run(*call, "--force").returncode == 0
    assert read_sidecar(tmp_path / "0.json") is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--resume"], "--resume must be used with --output"),
     (["--jobs", "2"], "--jobs must be used with"),
     (["--scheduler", "x"], "--scheduler must be used with"),
     (["-o", "o", "--track", "t.csv"], "must be used without --output")],
)  # fmt: skip
def test_invalid_combinations_of_options(
    run: Run, folder: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    """Batch options require an output folder."""
    call = ["localize", folder / "ring.atlas", folder / "r" / "0.wav", *options]
    result = run(*call, cwd=tmp_path)
    assert (result.returncode, words in result.stderr) == (2, True), result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("fast_learning")
def test_batch_of_heads(run: Run, folder: Path, tmp_path: Path) -> None:
    """Each head has an atlas and a scene; a table is identified by its recordings, too."""
    head = ea.simulated_head(RING)
    for table in ("one", "two"):
        (tmp_path / "heads" / table).mkdir(parents=True)
        lines = ["file,azimuth,elevation"]
        for n, (azimuth, elevation) in enumerate(head.directions):
            ea.Audio(head.responses().samples[n], 48000).write(
                tmp_path / "heads" / table / f"{n}.wav"
            )
            lines.append(f"{table}/{n}.wav,{azimuth},{elevation}")
        (tmp_path / "heads" / f"{table}.csv").write_text("\n".join(lines))
    (tmp_path / "heads" / "broken.csv").write_text("file;azimuth\n")
    learn = ["learn", tmp_path / "heads", "-o", tmp_path / "atlases", "--components", 2, "--json",
             "--no-rooms", "--resume"]  # fmt: skip
    sound = f"{folder / 'r' / '0.wav'}:30:0"
    simulate = ["simulate", tmp_path / "heads" / "*.csv", "-o", tmp_path / "scenes", "--sound",
                sound, "--json", "--resume"]  # fmt: skip
    for call in (learn, simulate):
        first = run(*call)
        assert first.returncode == 1
        assert "error: 1 of 3 heads failed." in first.stderr
        assert [json.loads(line).get("skipped") for line in first.stdout.splitlines()] == [None] * 3
    assert ea.Atlas.load(tmp_path / "atlases" / "two.atlas").about["head"] == "two"
    assert (tmp_path / "scenes" / "one" / "scene.json").is_file()
    assert (tmp_path / "scenes" / "one.json").is_file()
    response = tmp_path / "heads" / "two" / "7.wav"
    ea.Audio(2 * ea.read_audio(response).samples, 48000).write(response)
    for call in (learn, simulate):
        again = run(*call)
        answers = [json.loads(line) for line in again.stdout.splitlines()]
        assert [answer.get("skipped") for answer in answers] == [True, None, None]
        assert "two.csv: the contents of '7.wav' changed." in again.stderr
    one = run("learn", tmp_path / "heads" / "one.csv", "-o", tmp_path / "x.atlas", "--components",
              2, "--no-rooms")  # fmt: skip
    assert one.returncode == 0, one.stderr
    assert "x.json" not in {file.name for file in tmp_path.iterdir()}
    assert "24 directions on the circle" in one.stdout


def test_map_recordings_checks_its_arguments_at_once(folder: Path, tmp_path: Path) -> None:
    """Settings, tasks and file names are checked before the first outcome is requested."""
    atlas = ea.Atlas.load(folder / "ring.atlas")
    r = folder / "r"
    with pytest.raises(ea.InputError, match="settings must be keyword arguments of separate_file"):
        ea.map_recordings(atlas, r, tmp_path, task="separate", settings={"sources": 2})
    with pytest.raises(ea.InputError, match="task must be"):
        ea.map_recordings(atlas, r, tmp_path, task="listen")  # type: ignore[arg-type]
    with pytest.raises(ea.InputError, match="differ in their names"):
        ea.map_recordings(atlas, [r, tmp_path / "0.wav"], tmp_path)
    with pytest.raises(ea.InputError, match="jobs must be"):
        ea.map_recordings(atlas, r, tmp_path, jobs=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "0.json").write_text('{"speaker": "Ada"}')
    with pytest.raises(ea.InputError, match="must not contain other files"):
        ea.map_recordings(atlas, r, tmp_path / "mine")
    (tmp_path / "a.wav").touch()
    (tmp_path / "a_source1.wav").touch()
    with pytest.raises(ea.InputError, match="overwritten"):
        ea.map_recordings(atlas, tmp_path, tmp_path, task="separate")
    rotated = next(ea.map_recordings(atlas, r, tmp_path, settings={"yaw": 30.0}))
    plain = atlas.localize_file(r / "0.wav").to_dict()
    assert rotated.answer is not None
    assert rotated.answer["direction"][0] == pytest.approx(plain["direction"][0] + 30, abs=0.02)


def test_resuming_in_the_folder_of_the_recordings(run: Run, folder: Path, tmp_path: Path) -> None:
    """Sounds that the batch wrote are not taken for recordings."""
    for n in range(2):
        shutil.copy(folder / "r" / f"{n}.wav", tmp_path)
    call = ["separate", folder / "ring.atlas", tmp_path, "-n", 2, "-o", tmp_path, "--resume"]
    assert run(*call).returncode == 0
    shutil.copy(folder / "r" / "2.wav", tmp_path)
    again = run(*call)
    assert again.returncode == 0, again.stderr
    assert "skipped: 4 sounds that an earlier run separated from the others." in again.stderr
    assert "2 of 3 are done already." in again.stderr
    assert len(list(tmp_path.glob("*_source*.wav"))) == 6
    atlas = ea.Atlas.load(folder / "ring.atlas")
    options = {"n_sources": 1}
    found = ea.map_recordings(atlas, tmp_path, tmp_path, task="separate", settings=options)
    assert [outcome.file.name for outcome in found] == ["0.wav", "1.wav", "2.wav"]
    assert {file.name for file in tmp_path.glob("*_source*.wav")} == {
        "0_source1.wav", "1_source1.wav", "2_source1.wav",
    }  # fmt: skip
    shutil.copy(folder / "r" / "3.wav", tmp_path / "0_source2.wav")  # not a result
    refused = run(*call)
    assert (refused.returncode, "is overwritten" in refused.stderr) == (2, True)


@pytest.mark.parametrize("changed", ["0_source1.wav", "0_source2.wav"])
def test_recording_with_the_name_of_a_result(
    run: Run, folder: Path, tmp_path: Path, changed: str
) -> None:
    """A file that no longer has the contents of the result is not overwritten."""
    shutil.copy(folder / "r" / "0.wav", tmp_path)
    call = ["separate", folder / "ring.atlas", tmp_path, "-n", 2, "-o", tmp_path, "--resume"]
    assert run(*call).returncode == 0
    shutil.copy(folder / "r" / "3.wav", tmp_path / changed)
    refused = run(*call)
    assert (refused.returncode, f"contains '{tmp_path / changed}'" in refused.stderr) == (2, True)
    atlas = ea.Atlas.load(folder / "ring.atlas")
    with pytest.raises(ea.InputError, match="overwritten"):
        ea.map_recordings(atlas, tmp_path, tmp_path, task="separate", settings={"n_sources": 2})
    assert (tmp_path / changed).read_bytes() == (folder / "r" / "3.wav").read_bytes()


def test_sidecar_that_lists_recordings_as_results(run: Run, folder: Path, tmp_path: Path) -> None:
    """Recordings are never excluded, whatever a sidecar lists."""
    for n in range(2):
        shutil.copy(folder / "r" / f"{n}.wav", tmp_path)
    call = ["separate", folder / "ring.atlas", tmp_path, "-n", 2, "-o", tmp_path]
    assert run(*call).returncode == 0
    marks = [json.loads((tmp_path / f"{n}.json").read_text())["inputs"][0] for n in range(2)]
    for n in range(2):
        content = json.loads((tmp_path / f"{n}.json").read_text())
        content["outputs"] += [
            {**fingerprint, "file": Path(fingerprint["file"]).name} for fingerprint in marks
        ]
        (tmp_path / f"{n}.json").write_text(json.dumps(content, indent=1))
    again = run(*call, "--json")
    assert again.returncode == 0, again.stderr
    assert "skipped: 4 sounds" in again.stderr
    files = [json.loads(line)["file"] for line in again.stdout.splitlines()]
    assert files == [str(tmp_path / f"{n}.wav") for n in range(2)]


def test_warnings_name_their_files(run: Run, folder: Path, tmp_path: Path) -> None:
    """For several recordings the first is named and the others are counted."""
    call = ["separate", folder / "ring.atlas", folder / "r", "-n", 2, "-o", tmp_path, "--dry"]
    content = run(*call).stderr.splitlines()
    assert content[0].startswith(
        f"warning: {folder / 'r' / '0.wav'}: Dereverberation has no effect"
    )
    assert [line for line in content[1:] if line.startswith("warning:")] == [
        line
        for line in content
        if line.startswith("warning: the same for 9 more recordings: Dereverberation")
    ]
    wide = np.zeros((3, 16000))
    wide[:2] = ea.read_audio(folder / "r" / "0.wav").samples[:, :16000]
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", wide.T, 16000)
    stderr_text = run(
        "localize", folder / "ring.atlas", tmp_path / "a.wav", tmp_path / "b.wav"
    ).stderr
    first, second = stderr_text.splitlines()
    assert first.startswith("warning: ")
    assert f"'{tmp_path / 'a.wav'}' has 3 channels; the first two are used" in first
    assert second.startswith("warning: the same for 1 more recordings: ")
    assert "has 3 channels; the first two are used" in second
    assert "b.wav" not in second


@pytest.mark.parametrize("total", [1, 4])
def test_warnings_are_counted_without_names_and_numbers(
    total: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings that differ only in names and numbers are shown once and then counted.

    All warnings of the first recording are shown; numbers that vary are omitted from the count.
    """
    monkeypatch.setattr("earatlas.cli.console._shown_warnings", set())
    warned = FileWarnings(total)
    for n in range(total):
        file = Path(f"day/{n}.wav")
        texts = [f"'out/it's {n}_source{m}.wav' is left. Delete it." for m in (2, 3)[: total - n]]
        warned.add(file, [f"'{file}' has {n + 2} tops of 1.5 dB…: a head's flaw.", *texts])
    warned.close()
    content = capsys.readouterr().err.replace("warning: ", "").splitlines()
    assert content[0] == "'day/0.wav' has 2 tops of 1.5 dB…: a head's flaw."
    if total == 1:
        assert content[1:] == ["'out/it's 0_source2.wav' is left. Delete it."]
        return
    assert content[1:] == [
        "day/0.wav: 'out/it's 0_source2.wav' is left. Delete it.",
        "day/0.wav: 'out/it's 0_source3.wav' is left. Delete it.",
        "the same for 3 more recordings: has … tops of 1.5 dB…: a head's flaw.",
        "the same for 3 more recordings: is left. Delete it.",
    ]


def test_summary_that_cannot_be_written(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is printed, and the error names the summary."""

    def full(path: Path, file_kind: str) -> Any:
        raise ea.InputError(f"{file_kind} must be a file that can be written, got '{path}'.")

    monkeypatch.setattr("earatlas.batch.batch.atomic_write", full)
    result = run("localize", folder / "ring.atlas", folder / "r", "-o", tmp_path / "o")
    assert result.returncode == 2
    assert ["done", "10"] in [line.split()[:2] for line in result.stdout.splitlines()]
    assert result.stderr.splitlines()[-1].startswith("error: batch.jsonl must be a file")
    assert "batch:" not in result.stderr


# --- interrupted processes --------------------------------------------------------------------


def test_worker_processes_without_standard_streams(folder: Path, tmp_path: Path) -> None:
    """Workers start with closed standard input and standard error."""
    call = [*COMMAND, "localize", str(folder / "ring.atlas"), str(folder / "r"), "--jobs", "2",
            "-o", str(tmp_path / "o")]  # fmt: skip
    command = f"{shlex.join(call)} <&- 2>&-"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("bins observed") == 10


def session_processes(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, process_session = (
                    (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                )
            except OSError:
                continue
            if int(process_session) == session and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture
def running_batch(folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A batch of two processes in its own session, with three finished recordings."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("processes are counted in /proc")
    call = ["separate", folder / "ring.atlas", folder / "r", "-n", "2", "--jobs", "2",
            "-o", tmp_path / "o"]  # fmt: skip
    process = subprocess.Popen(
        [*COMMAND, *map(str, call)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=default_signals,
    )  # fmt: skip
    with process:
        for _ in range(1200):
            if len(list(tmp_path.glob("o/*.json"))) >= 3 or process.poll() is not None:
                break
            time.sleep(0.05)
        yield process
        for process_id in session_processes(process.pid):
            os.kill(process_id, signal.SIGKILL)


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_terminal_signals_during_startup(folder: Path, tmp_path: Path, name: str) -> None:
    """Signals reach all processes; those that are starting print nothing."""
    call = ["separate", folder / "ring.atlas", folder / "r", "--jobs", "2", "-o", tmp_path / "o"]
    with subprocess.Popen(
        [*COMMAND, *map(str, call)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=default_signals,
    ) as process:  # fmt: skip
        while len(session_processes(process.pid)) < 5 and process.poll() is None:
            time.sleep(0.005)  # the command, two resource trackers and two workers
        time.sleep(0.1)
        os.killpg(process.pid, getattr(signal, name))
        assert process.stderr is not None
        stderr_text = process.stderr.read()
    assert process.returncode == 128 + getattr(signal, name)
    assert stderr_text.startswith("stopped: 0 of 10 recordings are done.")
    assert stderr_text.count("\n") == 1, stderr_text


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_ended_batch_can_be_resumed(
    running_batch: subprocess.Popen[str], run: Run, folder: Path, tmp_path: Path,
    expected_sounds: dict[str, bytes], name: str,
) -> None:  # fmt: skip
    """All processes end, nothing is half-written, and the remaining files give the same results."""
    assert running_batch.poll() is None, "the batch must be interrupted before its end"
    out, number = tmp_path / "o", getattr(signal, name)
    if name == "SIGINT":
        os.killpg(running_batch.pid, number)  # like a terminal
    else:
        os.kill(running_batch.pid, number)
    start = time.monotonic()
    while session_processes(running_batch.pid) and time.monotonic() - start < 60:
        time.sleep(0.02)
    assert not session_processes(running_batch.pid)
    assert len(list(out.glob("[0-9].json"))) < 10, "it ends before its last recording"
    assert running_batch.stderr is not None
    stderr_text = running_batch.stderr.read()
    for sidecar in out.glob("[0-9].json"):
        content = read_sidecar(sidecar)
        assert content is not None
        assert all(fingerprint.matches(out / fingerprint.file) for fingerprint in content.outputs)
    if name == "SIGKILL":
        assert running_batch.wait() == -number
    else:
        assert running_batch.wait() == 128 + number
        assert "of 10 recordings are done. Continue with: earatlas separate" in stderr_text
        assert stderr_text.rstrip().endswith("--resume")
        assert list(out.glob(".earatlas-*")) == []
        lines = [json.loads(line) for line in (out / "batch.jsonl").read_text().splitlines()]
        assert {line["status"] for line in lines} == {"done", "open"}
    assert "Traceback" not in stderr_text
    assert list(tmp_path.glob("earatlas-batch-*")) == []
    rest = run("separate", folder / "ring.atlas", folder / "r", "-n", 2, "-o", out, "--resume")
    assert rest.returncode == 0, rest.stderr
    assert "are done already." in rest.stderr
    assert sounds(out) == expected_sounds
    assert list(out.glob(".earatlas-*")) == []


def test_killed_pool_with_queued_files_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of a pool are dead after `_kill_pool`, and no thread has raised an error."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda error: raised.append(error.exc_type))
    context = worker_pool._TrackingContext()
    pool = worker_pool._create_pool(tmp_path, 1, context)
    pool.submit(time.sleep, 0).result()  # the worker has started
    submitted = [pool.submit(time.sleep, 60) for _ in range(12)]
    while not any(future.running() for future in submitted):
        time.sleep(0.01)
    worker_pool._kill_pool(pool, context, submitted)
    assert not any(process.is_alive() for process in context.processes)
    assert all(future.done() for future in submitted)
    assert raised == []
