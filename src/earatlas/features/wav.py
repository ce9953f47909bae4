"""What libsndfile does not do: any bytes as a name, and WAV files without a date or an end.

The same sound is the same bytes, whenever it is written. libsndfile puts the loudest sample of a
float file into a chunk of its own, PEAK, and the time of writing beside it. Nobody reads that time;
it is set to 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["blank_date", "library_name", "wav_kind"]

_LARGEST_WAV = 4e9  # bytes: the lengths in its header have 32 bits; RF64 is WAV with 64


def wav_kind(values: int) -> str:
    """What a file of so many 32-bit values must be: WAV, or RF64 where that cannot hold them."""
    return "WAV" if 4 * values < _LARGEST_WAV else "RF64"


def library_name(path: Path) -> str | bytes:
    """The name of a file as libsndfile takes it: any bytes, not only those of UTF-8."""
    return str(path) if sys.platform == "win32" else os.fsencode(path)


def blank_date(path: Path) -> None:
    """Set the time of writing in a WAV file's PEAK chunk to 0; other files stay as they are."""
    with path.open("r+b") as file:
        if file.read(12)[:4] not in (b"RIFF", b"RF64"):
            return
        while len(head := file.read(8)) == 8 and head[:4] != b"data":
            if head[:4] == b"PEAK":
                file.seek(4, 1)  # its version
                file.write(bytes(4))
                return
            length = int.from_bytes(head[4:], "little")
            file.seek(length + length % 2, 1)
