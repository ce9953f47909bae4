"""ZIP files of recordings, made while they are sent: no archive is ever in memory or on disk.

The inputs are names and files of recordings, the output is the archive in chunks. Texts are
deflated, sounds and images are stored. Names are safe on all systems.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

__all__ = ["archive_chunks", "download_name", "safe_stem", "unique_stems"]

_CHUNK_BYTES = 1 << 18  # read from a file at a time
_TEXTS = (".csv", ".html", ".json", ".svg")
_FORBIDDEN = '<>:"/\\|?*'  # in file names of Windows
_RESERVED = {"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(10)}
_DATE = (2000, 1, 1, 0, 0, 0)  # equal files give equal archives


def safe_stem(name: str) -> str:
    """Return the name of a recording without its extension, as a file name for all systems.

    >>> safe_stem("party.wav"), safe_stem("../a:b?.flac"), safe_stem("con.wav"), safe_stem("...")
    ('party', 'a_b_', '_con', 'recording')
    """
    stem = PurePath(name.replace("\\", "/").rsplit("/", 1)[-1]).stem
    kept = "".join("_" if c in _FORBIDDEN or not c.isprintable() else c for c in stem)
    kept = kept.strip(" .")[:100].strip(" .") or "recording"
    return f"_{kept}" if kept.split(".")[0].lower() in _RESERVED else kept


def unique_stems(names: Sequence[str]) -> list[str]:
    """Return safe and different names, also for file systems that ignore upper case.

    >>> unique_stems(["a.wav", "A.flac", "b.wav"])
    ['a', 'A (2)', 'b']
    """
    taken: set[str] = set()
    stems = []
    for name in names:
        stem, number = safe_stem(name), 1
        unique = stem
        while unique.lower() in taken:
            number += 1
            unique = f"{stem} ({number})"
        taken.add(unique.lower())
        stems.append(unique)
    return stems


def download_name(stem: str, file: str) -> str:
    """Return the name under which a file of a recording is saved.

    >>> download_name("party", "mixture_source1.wav"), download_name("party", "report.html")
    ('party_source1.wav', 'party_report.html')
    """
    return file.replace("mixture", stem, 1) if file.startswith("mixture") else f"{stem}_{file}"


class _Sink(io.RawIOBase):
    """Collects what the archive writes until it is taken; it cannot be read or rewound."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        """Return and remove what was written."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def archive_chunks(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield a ZIP file of files by their names in it; those that no longer exist are left out."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, path in files.items():
            try:
                source = path.open("rb")
            except OSError:  # the recording was removed meanwhile
                continue
            info = zipfile.ZipInfo(name, _DATE)
            deflated = path.suffix in _TEXTS
            info.compress_type = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
            info.external_attr = 0o644 << 16
            with source, archive.open(info, "w", force_zip64=True) as target:
                while chunk := source.read(_CHUNK_BYTES):
                    target.write(chunk)
                    yield sink.take()
    yield sink.take()
