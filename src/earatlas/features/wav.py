"""WAV details that libsndfile does not handle: file names as bytes, large files, timestamps.

libsndfile stores the largest sample of a float WAV file in a PEAK chunk, together with the time of
writing. Setting that time to zero makes files with equal samples equal byte by byte.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["clear_peak_timestamp", "libsndfile_path", "wav_format"]

_MAX_WAV_BYTES = 4e9  # WAV headers store sizes in 32 bits; RF64 stores them in 64 bits


def wav_format(n_values: int) -> str:
    """Return the libsndfile format for `n_values` 32-bit values: "WAV", or "RF64" if too large."""
    return "WAV" if 4 * n_values < _MAX_WAV_BYTES else "RF64"


def libsndfile_path(path: Path) -> str | bytes:
    """Return a file name as libsndfile accepts it, including names that are not UTF-8."""
    return str(path) if sys.platform == "win32" else os.fsencode(path)


def clear_peak_timestamp(path: Path) -> None:
    """Set the time of writing in the PEAK chunk of a WAV file to zero; leave other files alone."""
    with path.open("r+b") as file:
        if file.read(12)[:4] not in (b"RIFF", b"RF64"):
            return
        while len(header := file.read(8)) == 8 and header[:4] != b"data":
            if header[:4] == b"PEAK":
                file.seek(4, 1)  # skip the version of the chunk
                file.write(bytes(4))
                return
            length = int.from_bytes(header[4:], "little")
            file.seek(length + length % 2, 1)
