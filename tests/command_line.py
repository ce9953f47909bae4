"""The command line in this process: `main()` with its own streams, folder and environment.

A separate process takes a second to start, and is not counted for coverage. So most tests use the
fixture `run`. Tests of pipes, signals, start-up, worker processes and terminal encodings use
`run_process`.
"""

import io
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import IO
from unittest import mock

from rich.console import Console

import earatlas.cli
from earatlas.cli import console

__all__ = ["default_signals", "in_process", "real_process"]


def in_process(
    *arguments: object,
    stdin: IO[bytes] | bytes | int | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `earatlas ARGUMENTS`; unexpected exceptions are raised."""
    command = ["earatlas", *map(str, arguments)]
    out, err = _stream(), _stream()
    code: str | int | None = 0
    with (
        mock.patch.multiple(sys, argv=command, stdin=_input(stdin), stdout=out, stderr=err),
        # The name of the program in messages, however pytest was started
        mock.patch.object(sys.modules["__main__"], "__package__", ""),
        nullcontext() if cwd is None else chdir(cwd),
        mock.patch.dict(os.environ, env or {}, clear=env is not None),
        warnings.catch_warnings(),  # main() formats them itself
        _fresh_state(),
    ):
        try:
            earatlas.cli.main()
        except SystemExit as end:
            code = end.code
    if isinstance(code, str):  # as the interpreter does
        err.write(f"{code}\n")
        code = 1
    return subprocess.CompletedProcess(command, code or 0, _text(out), _text(err))


def real_process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `earatlas ARGUMENTS` in its own process, as a user does."""
    command = [sys.executable, "-m", "earatlas", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


def default_signals() -> None:
    """Restore the signals of a new process (`preexec_fn`); nohup and shells may ignore some."""
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, signal.SIG_DFL)


def _stream(data: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")


def _input(stdin: IO[bytes] | bytes | int | None) -> io.TextIOWrapper:
    """Return standard input with these bytes or the content of a file; else it is empty."""
    if stdin is None or isinstance(stdin, int):
        return _stream()
    return _stream(stdin if isinstance(stdin, bytes) else stdin.read())


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


@contextmanager
def _fresh_state() -> Iterator[None]:
    """Clear the caches of the commands, and reset the streams and widths of the consoles."""
    for name, module in list(sys.modules.items()):
        if name.startswith("earatlas.cli"):
            for value in vars(module).values():
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
    for value in vars(console).values():
        if isinstance(value, Console):
            Console.__init__(value, stderr=value.stderr, emoji=False)
    yield
