"""The command line: every command reads files and says what it found.

Answers go to standard output (with `--json` as JSON), progress and warnings to standard error. Bad
input gets one sentence and exit code 2; a bug of ours keeps its traceback (see `earatlas.errors`).

A file a command, which is imported when it is called: `menu` has their names. Nothing is imported
here, so that an interruption at any moment ends quietly.
"""

from __future__ import annotations

import errno
import sys

__all__ = ["main"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # the reader, such as head(1), has had enough
        sys.stderr.close()
        sys.exit(0)


def _run() -> None:
    import io
    import warnings

    from earatlas.cli.console import note, show_warnings_once
    from earatlas.cli.menu import app
    from earatlas.errors import InputError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a degree sign on a terminal that has none
    try:
        with warnings.catch_warnings():
            show_warnings_once()
            app()
    except InputError as error:
        note("[bold red]error:[/]", str(error))
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        note("[bold red]error:[/]", "output must have room, got a full disk. Free some space.")
        sys.exit(2)
