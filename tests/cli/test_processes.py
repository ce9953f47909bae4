"""Tests that need their own process: pipes, signals, full disks, start-up and live input."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import default_signals

import earatlas as ea
from earatlas.cli import StoppedBySignal, stop_on_signals
from earatlas.files import atomic_write

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "earatlas"]
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes and signals")


def test_module_and_script_are_the_same(run_process: Run) -> None:
    """`python -m earatlas` and `earatlas` agree, with nothing on standard error."""
    result = run_process("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"earatlas {ea.__version__}\n"
    script = Path(sys.executable).with_name("earatlas")
    if script.exists():
        script_result = subprocess.run(
            [script, "--version"], capture_output=True, text=True, timeout=60
        )
        assert (script_result.returncode, script_result.stdout) == (0, result.stdout)


def test_exit_code_of_bad_input_is_2(run_process: Run) -> None:
    """The exit code in the shell is 2, with one sentence on standard error."""
    result = run_process("cues", "gone.wav")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@posix
def test_closed_pipe() -> None:
    """`earatlas info simulated | head -1` gives no traceback and no error."""
    process = subprocess.Popen(
        [*COMMAND, "info", "simulated"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) in (
        0,
        1,
    )  # 1 is set by click; 120 would be an error at interpreter shutdown
    process.stderr.close()


@posix
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_command_removes_its_temporary_files(
    tmp_path: Path, kind: signal.Signals
) -> None:
    """SIGTERM and SIGHUP unwind the command; the former handlers return afterwards."""
    before = signal.signal(kind, signal.SIG_DFL)  # nohup(1) ignores SIGHUP
    try:
        with (
            pytest.raises(StoppedBySignal) as stopped,
            stop_on_signals(),
            atomic_write(tmp_path / "answer.json"),
        ):
            os.kill(os.getpid(), kind)
        assert stopped.value.code == 128 + kind
        assert not list(tmp_path.iterdir())
        assert signal.getsignal(kind) is signal.SIG_DFL
    finally:
        signal.signal(kind, before)


@posix
@pytest.mark.parametrize("arguments", [["--version"], ["info", "simulated", "--json"]])
def test_full_disk(arguments: list[str]) -> None:
    """Output that cannot be written gives one sentence and exit code 2, also with JSON."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    # As in a shell: output is buffered, and the interpreter flushes it at exit.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=buffered,
        )
    assert result.returncode == 2, result.stderr
    assert result.stderr == "error: output must have room, got a full disk. Free some space.\n"


@posix
def test_listening_while_sound_arrives(run_process: Run, tmp_path: Path, atlas: ea.Atlas) -> None:
    """Results arrive before the input ends, from blocks of odd sizes; Ctrl-C gives code 130."""
    atlas.save(tmp_path / "head.atlas")
    direction = (63.0, 11.0)
    scene = ea.render_scene(
        ea.simulated_head([direction]), [ea.synthetic_speech(2.0, seed=5)], [direction]
    )
    samples = (scene.mixture.samples * 32767).astype("<i2")
    raw = samples.T.tobytes()
    process = subprocess.Popen(
        [*COMMAND, "listen", "head.atlas", "--stdin", "--rate", "16000", "--json"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=default_signals,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        second = 4 * 16_000
        for start in range(0, second, 4999):  # not a multiple of the frame size
            process.stdin.write(raw[start : min(start + 4999, second)])
            process.stdin.flush()
        localizer = atlas.localizer(rate=16_000, memory_seconds=1.0)
        for end in (8_000, 16_000):
            localizer.push(samples[:, end - 8_000 : end] / 32768.0)
            answer = json.loads(process.stdout.readline())
            assert answer == {"time": end / 16_000, **localizer.where().to_dict()}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
