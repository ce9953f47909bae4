"""`earatlas studio`: localization and separation in the browser."""

from __future__ import annotations

import shutil
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

from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import print_line, print_note
from earatlas.errors import InputError, existing_file, missing_extra
from earatlas.files import exclusive_folder, output_folder

__all__ = ["app", "studio"]

app = command_app()


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas studio", "earatlas studio --head ku100.atlas", "earatlas studio --folder kept"
    ),
)
def studio(
    head: Annotated[
        Path | None,
        typer.Option(metavar="ATLAS", help="Atlas to start with. Default: that of people."),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the page; 0 uses any free port.")
    ] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the results in this folder. Default: delete them at the end.",
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, but do not open a browser.")
    ] = False,
) -> None:
    """Localize and separate recordings in the browser.

    Starts a local web page: drop a recording to see the directions of its sources, and listen to
    each of them.
    """
    server = _server()
    if head is not None:
        existing_file(head, "head")
        from earatlas.atlas import Atlas

        Atlas.load(head)  # refuse a bad atlas before the server starts
    with _bind(port) as bound, _results_folder(folder) as results:
        address, running = server(bound, results, head)
        print_line(address)
        sys.stdout.flush()
        print_note("", "Open this address in a browser on this computer. Press Ctrl-C to stop.")
        if not no_browser:
            # Some browsers block until they are closed.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        running()


def _server() -> Any:
    """Import the server, which needs the packages of an extra."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise missing_extra("studio", str(error.name)) from error
    from earatlas.studio.run import create_server

    return create_server


@contextmanager
def _bind(port: int) -> Iterator[socket.socket]:
    """Yield a listening socket that only this computer can reach."""
    with socket.socket() as bound:
        if sys.platform != "win32":  # on Windows it would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", port))
            bound.listen()  # accept connections before the server runs
        except (OSError, OverflowError) as error:
            raise InputError(
                f"port must be free and from 1024 to 65535, got {port} ({error}). Remove the "
                "option to use any free port."
            ) from error
        yield bound


@contextmanager
def _results_folder(folder: Path | None) -> Iterator[Path]:
    """Yield the folder for the results: the given one, or a temporary one."""
    if folder is not None:
        with output_folder(folder), exclusive_folder(folder, "studio"):
            yield folder
        return
    scratch = Path(tempfile.mkdtemp(prefix="earatlas-studio-"))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
