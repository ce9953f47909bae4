"""The command line: every command reads files and says what it found.

Answers go to standard output (with `--json` as JSON), progress and warnings to standard error. Bad
input gets one sentence and exit code 2; a bug of ours keeps its traceback (see `earatlas.errors`).

A file a command, which is imported when it is called: `menu` has their names. Nothing is imported
here, so that an interruption at any moment ends quietly.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
from contextlib import suppress

__all__ = ["Stopped", "main"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Stopped(SystemExit):
    """The exit of a command that a signal ended, and that has tidied up."""


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        _fill_closed_streams()
        _run()
    except Stopped as stopped:
        # What waits for the end is done, but the interpreter is not taken down: that took half a
        # second, of the one that users have.
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError, AttributeError):  # the terminal may be gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(int(stopped.code or 0))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # the reader, such as head(1), has had enough
        sys.stderr.close()
        sys.exit(0)


def _fill_closed_streams() -> None:
    """Where a stream is closed (`>&-`), the next file would be given its number: fill the gap.

    Standard output must be open: an answer that nobody gets is lost work.
    """
    import os

    if sys.stdin is not None and sys.stdout is not None and sys.stderr is not None:
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)  # processes of a batch that begin without one end at once
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115, it is open as long as we are
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr.write(
            "error: standard output must be open, got a closed one. Send it to a file or to "
            "/dev/null.\n"
        )
        sys.exit(2)


def _check_options() -> None:
    """Refuse options that would steer the terminal when they are called unknown."""
    from earatlas.errors import InputError, harmless

    for option in sys.argv[1:]:
        if option.startswith("-") and harmless(option) != option:
            raise InputError(f"options must be plain text, got '{option}'. See earatlas --help.")


def _give_up_output() -> None:
    """What waits to be written goes nowhere: the interpreter would try again, and complain."""
    with suppress(OSError, ValueError, AttributeError):  # it may be closed, or no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    import io
    import warnings

    from earatlas.cli.app import app
    from earatlas.cli.console import note, show_warnings_once
    from earatlas.errors import InputError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a degree sign on a terminal that has none
    try:
        with warnings.catch_warnings():
            show_warnings_once()
            _check_options()
            app()
    except InputError as error:
        note("[bold red]error:[/]", str(error))
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        note("[bold red]error:[/]", "output must have room, got a full disk. Free some space.")
        _give_up_output()
        sys.exit(2)
