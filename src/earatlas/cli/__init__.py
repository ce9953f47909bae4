"""The command line, with one module per command.

Results go to standard output (as JSON with `--json`), progress and warnings to standard error. Bad
input gives one sentence and exit code 2; a bug keeps its traceback (see `earatlas.errors`).

A command is imported when it is called; `app` lists their names. This module imports nothing
heavy, so that an interruption at any moment ends quietly.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["StoppedBySignal", "main", "paused_garbage_collection", "stop_on_signals"]


class StoppedBySignal(SystemExit):
    """Exit of a command that was ended by a signal and has cleaned up."""


def main() -> None:
    """Run the command line; this is the entry point of the package."""
    # Memory is released with the process, without a last garbage collection of all modules.
    atexit.register(gc.freeze)
    try:
        _replace_closed_streams()
        with stop_on_signals():
            _run()
    except StoppedBySignal as stopped:
        # Run the exit handlers, but skip the shutdown of the interpreter, which takes long.
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError, AttributeError):  # the terminal may be closed
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(int(stopped.code or 0))
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, the convention of shells
    except BrokenPipeError:  # the reader, such as head(1), closed the pipe
        sys.stderr.close()
        sys.exit(0)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exit that removes temporary files."""

    def stop(number: int, frame: object) -> None:
        raise StoppedBySignal(128 + number)  # the convention of shells

    previous = {}
    for kind in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")):
        if kind is not None and signal.getsignal(kind) is signal.SIG_DFL:  # nohup(1) ignores SIGHUP
            with suppress(ValueError):  # only the main thread can set handlers
                previous[kind] = signal.signal(kind, stop)
    try:
        yield
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Import modules without garbage collections: their objects stay, so that none is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _replace_closed_streams() -> None:
    """Open closed standard streams (`>&-`), so that no other file gets their descriptors.

    A closed standard output is an error, because the result would be lost.
    """
    import os

    if sys.stdin is not None and sys.stdout is not None and sys.stderr is not None:
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # worker processes need them, too
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115, stays open until exit
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr.write(
            "error: standard output must be open, got a closed stream. Redirect it to a file or to "
            "/dev/null.\n"
        )
        sys.exit(2)


def _check_options() -> None:
    """Refuse options with control characters, which an error message would send to the terminal."""
    from earatlas.errors import InputError, sanitize

    for option in sys.argv[1:]:
        if option.startswith("-") and sanitize(option) != option:
            raise InputError(f"options must be plain text, got '{option}'. See earatlas --help.")


def _discard_output() -> None:
    """Send buffered output to the null device; at exit the interpreter would fail to write it."""
    with suppress(OSError, ValueError, AttributeError):  # it may be closed, or not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    """Run the command of `sys.argv`, with errors and warnings as single lines."""
    import io
    import warnings

    with paused_garbage_collection():
        from earatlas.cli.app import app
        from earatlas.cli.console import print_note, show_warnings_once
        from earatlas.errors import InputError, exceeded_limit

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the encoding may have no degree sign
    try:
        with warnings.catch_warnings():
            show_warnings_once()
            _check_options()
            app()
    except InputError as error:
        print_note("[bold red]error:[/]", str(error))
        sys.exit(2)
    except (OSError, MemoryError) as error:
        sentence = exceeded_limit(error)
        if sentence is None:
            raise
        print_note("[bold red]error:[/]", sentence)
        _discard_output()
        sys.exit(2)
