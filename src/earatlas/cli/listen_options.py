"""Options of `earatlas listen --separate`, parsed from the command line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from earatlas.cli.audio_input import PcmFormat
from earatlas.cli.listen_exports import ListenExports
from earatlas.errors import InputError
from earatlas.streaming.track_files import is_track_file

__all__ = ["ListenOptions", "parse_direction", "parse_socket"]


@dataclass(frozen=True)
class ListenOptions:
    """Outputs of a stream, and the input of the head yaw."""

    folder: Path | None = None  # for one sound file per track
    only: tuple[float, float] | None = None  # azimuth and elevation in degrees
    form: PcmFormat = PcmFormat.s16  # format of the samples on standard output
    as_json: bool = False
    every: float = 0.5  # seconds between reports
    socket: tuple[str, int] | None = None
    yaw_stream: str | None = None
    exports: ListenExports = field(default_factory=ListenExports)  # for other programs

    @classmethod
    def of(
        cls,
        output: Path | None,
        only: str | None,
        socket: str | None,
        yaw_stream: str | None,
        *,
        form: PcmFormat,
        as_json: bool,
        every: float,
        force: bool = False,
    ) -> ListenOptions:
        """Parse the options of the command line; if they are valid, create the output folder.

        `force` deletes the tracks of an earlier run in the folder.
        """
        options = cls(
            only=None if only is None else parse_direction(only),
            form=form,
            as_json=as_json,
            every=every,
            socket=None if socket is None else parse_socket(socket),
            yaw_stream=yaw_stream,
        )
        return replace(options, folder=_prepare_folder(output, force=force))


def _prepare_folder(output: Path | None, *, force: bool) -> Path | None:
    """Create the folder if needed; with `force`, delete all tracks of an earlier run in it.

    All of them are deleted, because old tracks with higher numbers would look like new ones.
    """
    if output is None:
        return None
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output must be a folder that can be created, got '{output}' ({error.strerror}). "
            "Choose another."
        ) from error
    existing = sorted(path for path in output.iterdir() if is_track_file(path.name))
    if existing and not force:
        raise InputError(
            f"output must be a folder without tracks of an earlier run, got '{output}'. Choose "
            "another, or pass --force to delete them."
        )
    try:
        for path in existing:
            path.unlink()
    except OSError as error:
        raise InputError(
            f"output must be a folder whose tracks can be deleted, got '{output}' "
            f"({error.strerror}). Choose another."
        ) from error
    return output


def parse_direction(text: str) -> tuple[float, float]:
    """Parse `AZ,EL` or `AZ` in degrees."""
    try:
        parts = [float(part) for part in text.split(",")]
        azimuth, elevation = (*parts, 0.0)[:2] if len(parts) == 1 else parts
    except ValueError:
        parts, azimuth, elevation = [], np.nan, np.nan
    if not (-360 <= azimuth <= 360 and -90 <= elevation <= 90):
        raise InputError(
            f"only must be azimuth,elevation in degrees, got '{text}'. For example: --only 30,0."
        )
    return azimuth, elevation


def parse_socket(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, or a port on this machine."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65_534:
        raise InputError(
            f"socket must be HOST:PORT or PORT, up to 65534, got '{text}'. For example: --socket "
            "9000, which also uses port 9001 for the sound."
        )
    return host or "127.0.0.1", int(port)
