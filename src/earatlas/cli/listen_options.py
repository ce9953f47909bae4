"""What a user wants of `earatlas listen --separate`, read from the words of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from earatlas.cli.audio_input import PcmFormat
from earatlas.errors import InputError
from earatlas.streaming.track_files import is_track_file

__all__ = ["Wishes", "parsed_direction", "parsed_socket"]


@dataclass(frozen=True)
class Wishes:
    """What is made of a stream."""

    folder: Path | None = None
    only: tuple[float, float] | None = None  # degrees
    form: PcmFormat = PcmFormat.s16  # of the sound on standard output
    as_json: bool = False
    every: float = 0.5  # seconds between reports
    socket: tuple[str, int] | None = None
    yaw_stream: str | None = None

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
    ) -> Wishes:
        """Of options as they were given; the folder is made.

        With `force`, tracks of before in it are deleted.
        """
        return cls(
            folder=_folder(output, force=force),
            only=None if only is None else parsed_direction(only),
            form=form,
            as_json=as_json,
            every=every,
            socket=None if socket is None else parsed_socket(socket),
            yaw_stream=yaw_stream,
        )


def _folder(output: Path | None, *, force: bool) -> Path | None:
    """The folder, made if it is missing; what another run left there goes only if that is wished.

    All of it: new tracks beside old ones of higher numbers would look like one run.
    """
    if output is None:
        return None
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output must be a folder that can be made, got '{output}' ({error.strerror}). "
            "Choose another."
        ) from error
    before = sorted(path for path in output.iterdir() if is_track_file(path.name))
    if before and not force:
        raise InputError(
            f"output must be a folder without tracks of before, got '{output}'. Choose another, or "
            "pass --force to delete them: a live sound cannot be had again."
        )
    try:
        for path in before:
            path.unlink()
    except OSError as error:
        raise InputError(
            f"output must be a folder whose tracks can be deleted, got '{output}' "
            f"({error.strerror}). Choose another."
        ) from error
    return output


def parsed_direction(text: str) -> tuple[float, float]:
    """`AZ,EL` or `AZ` in degrees."""
    try:
        parts = [float(part) for part in text.split(",")]
        azimuth, elevation = (*parts, 0.0)[:2] if len(parts) == 1 else parts
    except ValueError:
        parts, azimuth, elevation = [], np.nan, np.nan
    if not (-360 <= azimuth <= 360 and -90 <= elevation <= 90):
        raise InputError(
            f"only must be azimuth,elevation in degrees, got '{text}'. Such as --only 30,0."
        )
    return azimuth, elevation


def parsed_socket(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or a port of this machine alone."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65_534:
        raise InputError(
            f"socket must be HOST:PORT or PORT, up to 65534, got '{text}'. Such as --socket 9000; "
            "sound is on the port after it."
        )
    return host or "127.0.0.1", int(port)
