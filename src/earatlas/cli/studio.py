"""`earatlas studio`: look, listen and try in the browser."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.console import note, say
from earatlas.errors import InputError, existing_file, missing_extra
from earatlas.files import output_folder

__all__ = ["app", "studio"]

app = one_command()


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas studio", "earatlas studio --head ku100.atlas", "earatlas studio --folder kept"
    ),
)
def studio(
    head: Annotated[
        Path | None,
        typer.Option(metavar="ATLAS", help="An atlas to begin with. Default: a simulated head."),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Of the page. Default: any that is free.")
    ] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep results there. Default: removed at the end."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open nothing.")
    ] = False,
) -> None:
    """Look, listen and try in the browser: drop a recording, see where everything is, hear it."""
    server = _server()
    if head is not None:
        existing_file(head, "head")
        from earatlas.atlas import Atlas

        Atlas.load(head)  # what is none is refused before there is a page
    with _ended_gently(), _bound(port) as bound, _results(folder) as results:
        address, running = server(bound, results, head)
        say(address)
        sys.stdout.flush()
        note("", "Open this address in a browser of this computer. End with Ctrl-C.")
        if not no_browser:
            # Some browsers do not come back before they are closed.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        running()


def _server() -> Any:
    """The part that needs packages of the extra."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise missing_extra("studio", str(error.name)) from error
    from earatlas.studio.run import prepared

    return prepared


@contextmanager
def _ended_gently() -> Iterator[None]:
    """A request to end (SIGTERM) is an exit, so that what is to be removed at the end is.

    The server ends its work at the first signal, and then raises that signal once more.
    """

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)  # as shells have it

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bound(port: int) -> Iterator[socket.socket]:
    """A socket of this computer alone."""
    with socket.socket() as bound:
        if sys.platform != "win32":  # there it would share the port with others
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", port))
            bound.listen()  # who opens the address at once is not turned away
        except (OSError, OverflowError) as error:
            raise InputError(
                f"port must be free and from 1024 to 65535, got {port} ({error}). Leave it out for "
                "any that is free."
            ) from error
        yield bound


@contextmanager
def _results(folder: Path | None) -> Iterator[Path]:
    """Where results are: a folder that is kept, or one that is gone at the end."""
    if folder is not None:
        with output_folder(folder):
            yield folder
        return
    scratch = Path(tempfile.mkdtemp(prefix="earatlas-studio-"))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
