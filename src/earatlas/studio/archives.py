"""ZIP files of recordings, made while they are sent: no archive is ever in memory or on disk.

The inputs are names and files of recordings, the output is the archive in chunks. Texts are
deflated, sounds and images are stored. Names are safe on all systems.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

__all__ = [
    "PICTURES",
    "archive_chunks",
    "download_names",
    "safe_name",
    "safe_stem",
    "unique_names",
    "unique_stems",
]

PICTURES = "pictures"  # folder of the pictures, in that of a separation
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
    return safe_name(PurePath(name.replace("\\", "/").rsplit("/", 1)[-1]).stem) or "recording"


def safe_name(text: str) -> str:
    """Return a text as a file name for all systems; "" if nothing of it is left.

    >>> safe_name("Dr. No"), safe_name("AC/DC"), safe_name("nul"), safe_name(" .")
    ('Dr. No', 'AC_DC', '_nul', '')
    """
    kept = "".join("_" if c in _FORBIDDEN or not c.isprintable() else c for c in text)
    kept = kept.strip(" .")[:100].strip(" .")
    return f"_{kept}" if kept.split(".")[0].lower() in _RESERVED else kept


def unique_stems(names: Sequence[str]) -> list[str]:
    """Return safe and different names, also for file systems that ignore upper case.

    >>> unique_stems(["a.wav", "A.flac", "b.wav"])
    ['a', 'A (2)', 'b']
    """
    return _different([safe_stem(name) for name in names])


def unique_names(texts: Sequence[str]) -> list[str]:
    """Return texts, such as the names of sources, as different file names.

    >>> unique_names(["AC/DC", "ac:dc", "..."])
    ['AC_DC', 'ac_dc (2)', 'source']
    """
    return _different([safe_name(text) or "source" for text in texts])


def download_names(
    stem: str, files: Sequence[str], labels: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the names under which the files of a recording are saved.

    They begin with the name of the recording. `labels` has the names of sources by their files.

    >>> files = ["mixture.wav", "mixture_source1.wav", "report.html"]
    >>> list(download_names("party", files, {"mixture_source1.wav": "Ada"}).values())
    ['party.wav', 'party_Ada.wav', 'party_report.html']
    """
    stems = []
    for file in files:
        own, label = PurePath(file).stem, safe_name((labels or {}).get(file, ""))
        if label:
            stems.append(f"{stem}_{label}")
        else:
            stems.append(
                own.replace("mixture", stem, 1) if own.startswith("mixture") else f"{stem}_{own}"
            )
    saved = _different(stems, [PurePath(file).suffix for file in files])
    return dict(zip(files, saved, strict=True))


def _different(stems: Sequence[str], suffixes: Sequence[str] | None = None) -> list[str]:
    """Return names with suffixes; those that occurred before have a number."""
    taken: set[str] = set()
    names = []
    for stem, suffix in zip(stems, suffixes or [""] * len(stems), strict=True):
        number, name = 1, f"{stem}{suffix}"
        while name.lower() in taken:
            number += 1
            name = f"{stem} ({number}){suffix}"
        taken.add(name.lower())
        names.append(name)
    return names


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
