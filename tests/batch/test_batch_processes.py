"""Batches as users run them: real recordings, commands that are interrupted, and how to go on."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from learned_heads import LearnedHeads

import earatlas as ea
from earatlas.batch.sidecar import read_sidecar
from earatlas.cli.console import Warned

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "earatlas"]
RING = np.column_stack([np.arange(-180.0, 180.0, 15.0), np.zeros(24)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """A folder with the atlas of a ring, and recordings of a second: r/0.wav to r/9.wav."""
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
def whole(folder: Path) -> dict[str, bytes]:
    """The sounds of all recordings, as one process makes them."""
    out = folder / "whole"
    atlas = ea.Atlas.load(folder / "ring.atlas")
    for outcome in ea.map_recordings(
        atlas, folder / "r", out, task="separate", settings={"n_sources": 2}
    ):
        assert outcome.status == "done", outcome.error
    return sounds(out)


def sounds(folder: Path) -> dict[str, bytes]:
    """The sound files of a folder."""
    return {file.name: file.read_bytes() for file in folder.glob("*.wav")}


# --- in this process --------------------------------------------------------------------------


def test_localize_into_a_folder(run: Run, folder: Path, tmp_path: Path) -> None:
    """An answer a recording, skipped the next time; other settings are said and done again."""
    call = ["localize", folder / "ring.atlas", folder / "r", "-o", tmp_path / "o", "--resume"]
    first = run(*call)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("azimuth") == 10
    assert "done" in first.stdout.splitlines()[-3]
    told = json.loads((tmp_path / "o" / "3.json").read_text())
    atlas = ea.Atlas.load(folder / "ring.atlas")
    where = atlas.localize_file(folder / "r" / "3.wav").to_dict()
    assert {name: told["answer"][name] for name in where} == where
    assert told["atlas"] == atlas.digest
    assert told["settings"]["channels"] == [0, 1]
    again = run(*call, "--json")
    assert again.stderr.startswith("resume: 10 of 10 are done already.")
    answers = [json.loads(line) for line in again.stdout.splitlines()]
    assert [answer["skipped"] for answer in answers] == [True] * 10
    assert answers[3]["direction"] == where["direction"]
    other = run(*call, "--channels", 1, 0)
    assert "other settings: channels." in other.stderr
    assert "and 9 more" in other.stderr
    assert "of them again" in other.stdout
    lines = (tmp_path / "o" / "batch.jsonl").read_text().splitlines()
    assert {json.loads(line)["again"] for line in lines} == {"other settings: channels"}


def test_a_batch_with_bad_files(run: Run, folder: Path, tmp_path: Path) -> None:
    """They are named in the table, the exit code is 1, and they are tried again."""
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


def test_a_sidecar_of_somebody_else(run: Run, folder: Path, tmp_path: Path) -> None:
    """A file that no batch wrote is left alone, unless it is forced."""
    (tmp_path / "0.json").write_text('{"my": "notes"}')
    call = ["localize", folder / "ring.atlas", folder / "r" / "0.wav", "-o", tmp_path]
    result = run(*call)
    assert (result.returncode, "did not make" in result.stderr) == (2, True)
    assert (tmp_path / "0.json").read_text() == '{"my": "notes"}'
    assert run(*call, "--force").returncode == 0
    assert read_sidecar(tmp_path / "0.json") is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--resume"], "--resume must go with --output"), (["--jobs", "2"], "--jobs must go with"),
     (["--scheduler", "x"], "--scheduler must go with"),
     (["-o", "o", "--track", "t.csv"], "must go without --output")],
)  # fmt: skip
def test_options_that_go_together(
    run: Run, folder: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    """A batch is one in a folder."""
    call = ["localize", folder / "ring.atlas", folder / "r" / "0.wav", *options]
    result = run(*call, cwd=tmp_path)
    assert (result.returncode, words in result.stderr) == (2, True), result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("learned_quickly")
def test_several_heads(run: Run, folder: Path, tmp_path: Path) -> None:
    """An atlas and a scene each; a table is known by its recordings, too."""
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
        assert "two.csv: other contents of the file." in again.stderr
    one = run("learn", tmp_path / "heads" / "one.csv", "-o", tmp_path / "x.atlas", "--components",
              2, "--no-rooms")  # fmt: skip
    assert one.returncode == 0, one.stderr
    assert "x.json" not in {file.name for file in tmp_path.iterdir()}
    assert "24 directions on the circle" in one.stdout


def test_maps_are_checked_at_once(folder: Path, tmp_path: Path) -> None:
    """Before the first outcome is asked for: names of settings and tasks, and files that meet."""
    atlas = ea.Atlas.load(folder / "ring.atlas")
    r = folder / "r"
    with pytest.raises(ea.InputError, match="settings must be those of separate_file"):
        ea.map_recordings(atlas, r, tmp_path, task="separate", settings={"sources": 2})
    with pytest.raises(ea.InputError, match="task must be"):
        ea.map_recordings(atlas, r, tmp_path, task="listen")  # type: ignore[arg-type]
    with pytest.raises(ea.InputError, match="differ in their names"):
        ea.map_recordings(atlas, [r, tmp_path / "0.wav"], tmp_path)
    with pytest.raises(ea.InputError, match="jobs must be"):
        ea.map_recordings(atlas, r, tmp_path, jobs=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "0.json").write_text('{"speaker": "Ada"}')
    with pytest.raises(ea.InputError, match="file of yours"):
        ea.map_recordings(atlas, r, tmp_path / "mine")
    (tmp_path / "a.wav").touch()
    (tmp_path / "a_source1.wav").touch()
    with pytest.raises(ea.InputError, match="overwritten"):
        ea.map_recordings(atlas, tmp_path, tmp_path, task="separate")
    turned = next(ea.map_recordings(atlas, r, tmp_path, settings={"yaw": 30.0}))
    plain = atlas.localize_file(r / "0.wav").to_dict()
    assert turned.answer is not None
    assert turned.answer["direction"][0] == pytest.approx(plain["direction"][0] + 30, abs=0.02)


def test_results_among_the_recordings(run: Run, folder: Path, tmp_path: Path) -> None:
    """A batch in the recordings' own folder can be gone on with: its sounds are no recordings."""
    for n in range(2):
        shutil.copy(folder / "r" / f"{n}.wav", tmp_path)
    call = ["separate", folder / "ring.atlas", tmp_path, "-n", 2, "-o", tmp_path, "--resume"]
    assert run(*call).returncode == 0
    shutil.copy(folder / "r" / "2.wav", tmp_path)
    again = run(*call)
    assert again.returncode == 0, again.stderr
    assert "left out: 4 sounds that an earlier run made of the others." in again.stderr
    assert "2 of 3 are done already." in again.stderr
    assert len(list(tmp_path.glob("*_source*.wav"))) == 6
    atlas = ea.Atlas.load(folder / "ring.atlas")
    how = {"n_sources": 1}
    found = ea.map_recordings(atlas, tmp_path, tmp_path, task="separate", settings=how)
    assert [outcome.file.name for outcome in found] == ["0.wav", "1.wav", "2.wav"]
    assert {file.name for file in tmp_path.glob("*_source*.wav")} == {
        "0_source1.wav", "1_source1.wav", "2_source1.wav",
    }  # fmt: skip
    shutil.copy(folder / "r" / "3.wav", tmp_path / "0_source2.wav")  # of somebody else
    refused = run(*call)
    assert (refused.returncode, "is overwritten" in refused.stderr) == (2, True)


@pytest.mark.parametrize("changed", ["0_source1.wav", "0_source2.wav"])
def test_a_recording_under_the_name_of_a_result(
    run: Run, folder: Path, tmp_path: Path, changed: str
) -> None:
    """What a sidecar names and is no longer that sound is somebody's: it is not overwritten."""
    shutil.copy(folder / "r" / "0.wav", tmp_path)
    call = ["separate", folder / "ring.atlas", tmp_path, "-n", 2, "-o", tmp_path, "--resume"]
    assert run(*call).returncode == 0
    shutil.copy(folder / "r" / "3.wav", tmp_path / changed)
    refused = run(*call)
    assert (refused.returncode, f"holds '{tmp_path / changed}'" in refused.stderr) == (2, True)
    atlas = ea.Atlas.load(folder / "ring.atlas")
    with pytest.raises(ea.InputError, match="overwritten"):
        ea.map_recordings(atlas, tmp_path, tmp_path, task="separate", settings={"n_sources": 2})
    assert (tmp_path / changed).read_bytes() == (folder / "r" / "3.wav").read_bytes()


def test_a_sidecar_that_names_recordings(run: Run, folder: Path, tmp_path: Path) -> None:
    """Its own or another: they are no sounds that were made of it, and none is left out."""
    for n in range(2):
        shutil.copy(folder / "r" / f"{n}.wav", tmp_path)
    call = ["separate", folder / "ring.atlas", tmp_path, "-n", 2, "-o", tmp_path]
    assert run(*call).returncode == 0
    marks = [json.loads((tmp_path / f"{n}.json").read_text())["inputs"][0] for n in range(2)]
    for n in range(2):
        told = json.loads((tmp_path / f"{n}.json").read_text())
        told["outputs"] += [{**mark, "file": Path(mark["file"]).name} for mark in marks]
        (tmp_path / f"{n}.json").write_text(json.dumps(told, indent=1))
    again = run(*call, "--json")
    assert again.returncode == 0, again.stderr
    assert "left out: 4 sounds" in again.stderr
    files = [json.loads(line)["file"] for line in again.stdout.splitlines()]
    assert files == [str(tmp_path / f"{n}.wav") for n in range(2)]


def test_warnings_name_their_files(run: Run, folder: Path, tmp_path: Path) -> None:
    """Of several recordings the first is named, and the others are counted."""
    call = ["separate", folder / "ring.atlas", folder / "r", "-n", 2, "-o", tmp_path, "--dry"]
    told = run(*call).stderr.splitlines()
    assert told[0].startswith(f"warning: {folder / 'r' / '0.wav'}: this atlas was not made ready")
    assert [line for line in told[1:] if line.startswith("warning:")] == [
        line for line in told if line.startswith("warning: so for 9 more recordings: this atlas")
    ]
    wide = np.zeros((3, 16000))
    wide[:2] = ea.read_audio(folder / "r" / "0.wav").samples[:, :16000]
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", wide.T, 16000)
    said = run("localize", folder / "ring.atlas", tmp_path / "a.wav", tmp_path / "b.wav").stderr
    first, second = said.splitlines()
    assert first.startswith(f"warning: '{tmp_path / 'a.wav'}' has 3 channels: 0 and 1 are taken")
    assert second.startswith("warning: so for 1 more recordings: has 3 channels: 0 and 1 are taken")


@pytest.mark.parametrize("total", [1, 4])
def test_warnings_are_counted_without_names_and_numbers(
    total: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the same but for these: one line for the first, and one for all others.

    Of the first recording all are told; numbers that are not the same for all are not.
    """
    monkeypatch.setattr("earatlas.cli.console._warned", set())
    warned = Warned(total)
    for n in range(total):
        file = Path(f"day/{n}.wav")
        texts = [f"'out/it's {n}_source{m}.wav' is left. Delete it." for m in (2, 3)[: total - n]]
        warned.tell(file, [f"'{file}' has {n + 2} tops of 1.5 dB…: a head's flaw.", *texts])
    warned.close()
    told = capsys.readouterr().err.replace("warning: ", "").splitlines()
    assert told[0] == "'day/0.wav' has 2 tops of 1.5 dB…: a head's flaw."
    if total == 1:
        assert told[1:] == ["'out/it's 0_source2.wav' is left. Delete it."]
        return
    assert told[1:] == [
        "day/0.wav: 'out/it's 0_source2.wav' is left. Delete it.",
        "day/0.wav: 'out/it's 0_source3.wav' is left. Delete it.",
        "so for 3 more recordings: has … tops of 1.5 dB…: a head's flaw.",
        "so for 3 more recordings: is left. Delete it.",
    ]


def test_a_summary_that_cannot_be_written(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is told all the same, and what it is that is missing."""

    def full(path: Path, what: str) -> Any:
        raise ea.InputError(f"{what} must be a file that can be written, got '{path}'.")

    monkeypatch.setattr("earatlas.batch.batch.written_whole", full)
    result = run("localize", folder / "ring.atlas", folder / "r", "-o", tmp_path / "o")
    assert result.returncode == 2
    assert ["done", "10"] in [line.split()[:2] for line in result.stdout.splitlines()]
    assert result.stderr.splitlines()[-1].startswith("error: batch.jsonl must be a file")
    assert "batch:" not in result.stderr


# --- in processes that are ended --------------------------------------------------------------


def test_processes_of_a_command_without_streams(folder: Path, tmp_path: Path) -> None:
    """They begin without standard input and standard error as with them."""
    call = [*COMMAND, "localize", str(folder / "ring.atlas"), str(folder / "r"), "--jobs", "2",
            "-o", str(tmp_path / "o")]  # fmt: skip
    command = f"{shlex.join(call)} <&- 2>&-"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("azimuth") == 10


def members(session: int) -> list[int]:
    """The processes of a session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(own) == session and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture
def begun(folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A batch of two processes in a session of its own, three of whose recordings are done."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("processes are counted in /proc")
    call = ["separate", folder / "ring.atlas", folder / "r", "-n", "2", "--jobs", "2",
            "-o", tmp_path / "o"]  # fmt: skip
    process = subprocess.Popen(
        [*COMMAND, *map(str, call)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    with process:
        for _ in range(1200):
            if len(list(tmp_path.glob("o/*.json"))) >= 3 or process.poll() is not None:
                break
            time.sleep(0.05)
        yield process
        for left in members(process.pid):
            os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_terminal_that_ends_all_while_they_begin(folder: Path, tmp_path: Path, name: str) -> None:
    """Its signals go to all processes: those that are just starting have nothing to say."""
    call = ["separate", folder / "ring.atlas", folder / "r", "--jobs", "2", "-o", tmp_path / "o"]
    with subprocess.Popen(
        [*COMMAND, *map(str, call)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:  # fmt: skip
        while len(members(process.pid)) < 5 and process.poll() is None:
            time.sleep(0.005)  # itself, two that watch over locks, and two that work
        time.sleep(0.1)
        os.killpg(process.pid, getattr(signal, name))
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 128 + getattr(signal, name)
    assert said.startswith("stopped: 0 of 10 recordings are done.")
    assert said.count("\n") == 1, said


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_batch_that_is_ended(
    begun: subprocess.Popen[str], run: Run, folder: Path, tmp_path: Path,
    whole: dict[str, bytes], name: str,
) -> None:  # fmt: skip
    """All processes end, nothing is half-written, and the rest is done as if nothing had been."""
    assert begun.poll() is None, "it was to be ended in the middle"
    out, number = tmp_path / "o", getattr(signal, name)
    if name == "SIGINT":
        os.killpg(begun.pid, number)  # as the terminal does
    else:
        os.kill(begun.pid, number)
    start = time.monotonic()
    while members(begun.pid) and time.monotonic() - start < 20:
        time.sleep(0.02)
    # 0.4 to 0.5 s with nine other processes on two cores; twice a second is a fault, not a load.
    assert time.monotonic() - start < 2
    assert begun.stderr is not None
    said = begun.stderr.read()
    for sidecar in out.glob("[0-9].json"):
        told = read_sidecar(sidecar)
        assert told is not None
        assert all(mark.fits(out / mark.file) for mark in told.outputs)
    if name == "SIGKILL":
        assert begun.wait() == -number
    else:
        assert begun.wait() == 128 + number
        assert "of 10 recordings are done. Go on with: earatlas separate" in said
        assert said.rstrip().endswith("--resume")
        assert list(out.glob(".earatlas-*")) == []
        lines = [json.loads(line) for line in (out / "batch.jsonl").read_text().splitlines()]
        assert {line["status"] for line in lines} == {"done", "open"}
    assert "Traceback" not in said
    assert list(tmp_path.glob("earatlas-batch-*")) == []
    rest = run("separate", folder / "ring.atlas", folder / "r", "-n", 2, "-o", out, "--resume")
    assert rest.returncode == 0, rest.stderr
    assert "are done already." in rest.stderr
    assert sounds(out) == whole
    assert list(out.glob(".earatlas-*")) == []
