"""WAV details: file names as bytes, large files, timestamps, and a comment in results.

libsndfile stores the largest sample of a float WAV file in a PEAK chunk, together with the time of
writing. Setting that time to zero makes files with equal samples equal byte by byte.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from earatlas.features.containers import read_chunks

__all__ = [
    "RESULT_COMMENT",
    "clear_peak_timestamp",
    "has_result_comment",
    "libsndfile_path",
    "wav_format",
]

# Comment in the header of separated sounds, by which a later run recognizes its own files.
RESULT_COMMENT = "separated by earatlas"
_MAX_LIST_BYTES = 65_536  # bytes of texts in which the comment is searched

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
        for name, position, _ in read_chunks(file):
            if name == b"data":
                return
            if name == b"PEAK":
                file.seek(position + 4)  # skip the version of the chunk
                file.write(bytes(4))
                return


def has_result_comment(path: Path) -> bool:
    """Return whether a file is a WAV file with the comment `RESULT_COMMENT`."""
    try:
        with path.open("rb") as file:
            for name, position, length in read_chunks(file):
                if name == b"data":
                    return False
                if name == b"LIST":
                    file.seek(position)
                    if RESULT_COMMENT.encode() in file.read(min(length, _MAX_LIST_BYTES)):
                        return True
    except OSError:
        return False
    return False
