"""Tests of `earatlas studio`: printed address, kept files, signals and bad options."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import default_signals

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to a process there")
def test_start_and_interrupt(tmp_path: Path) -> None:
    """The page is available when its address is printed; Ctrl-C stops it; the folder is kept."""
    command = [sys.executable, "-m", "earatlas", "studio", "--no-browser", "--folder", "kept"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        preexec_fn=default_signals,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert len(address.split("/")[3]) >= 32
        with urllib.request.urlopen(address) as answer:
            assert b"earatlas studio" in answer.read()
        bare = address[: address.index("/", 8) + 1]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(bare)
        request = urllib.request.Request(f"{address}api/sessions", method="POST")
        with urllib.request.urlopen(request) as answer:
            assert b"session" in answer.read()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest == ""
    assert errors.count("\n") == 1
    assert [path.name[:8] for path in (tmp_path / "kept").iterdir()] == ["session-"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM cannot be sent to a process there")
def test_sigterm_removes_temporary_files(tmp_path: Path) -> None:
    """SIGTERM stops the studio like Ctrl-C, and its temporary folder is removed."""
    command = [sys.executable, "-m", "earatlas", "studio", "--no-browser"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        preexec_fn=default_signals,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        request = urllib.request.Request(f"{address}api/sessions", method="POST")
        with urllib.request.urlopen(request) as answer:
            assert b"session" in answer.read()
        assert list(tmp_path.glob("earatlas-studio-*/session-*"))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.count("\n") == 1
    assert not list(tmp_path.glob("earatlas-studio-*"))


def test_bad_port(run: Run) -> None:
    """A port that is in use or out of range is an error with a remedy."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        for port in (other.getsockname()[1], 70_000):
            result = run("studio", "--no-browser", "--port", port)
            assert result.returncode == 2
            assert f"port must be free and from 1024 to 65535, got {port}" in result.stderr


def test_missing_head(run: Run) -> None:
    """A missing head is reported before the server starts."""
    result = run("studio", "--no-browser", "--head", "no.atlas")
    assert (result.returncode, result.stdout) == (2, "")
    assert "head must be an existing file, got 'no.atlas'" in result.stderr


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "websockets"])
def test_missing_extra(run: Run, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """The error names the missing package and how to install it."""
    monkeypatch.setitem(sys.modules, package, None)
    result = run("studio", "--no-browser")
    assert result.returncode == 2
    assert f"needs the package {package}" in result.stderr
    assert "pip install 'earatlas[studio]'" in result.stderr


def test_browser_is_opened(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser opens the printed address; a temporary folder is removed at the end."""
    from earatlas.cli import studio

    opened: list[str] = []
    folders: list[Path] = []

    def create_server(bound: socket.socket, folder: Path, head: Path | None) -> object:
        folders.append(folder)
        assert folder.is_dir()
        assert bound.getsockname()[0] == "127.0.0.1"
        return "http://127.0.0.1:1/token/", lambda: None

    monkeypatch.setattr(studio, "_server", lambda: create_server)
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = run("studio")
    assert result.returncode == 0
    assert result.stdout == "http://127.0.0.1:1/token/\n"
    assert opened == ["http://127.0.0.1:1/token/"]
    assert not folders[0].exists()


def test_server_imports_no_numerical_library() -> None:
    """The server process imports no numerical library, so that the page is available quickly."""
    script = "import sys, earatlas.studio.run; print({'numpy', 'scipy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout == "set()\n"
