"""One file of plain arrays and JSON: how an atlas is kept on disk.

The format is safetensors (a JSON header, then raw little-endian numbers: nothing in it can run),
with what the arrays mean as JSON under `__metadata__` and a checksum over all of it: the arrays
with their names and shapes, and the JSON in its one canonical spelling. Reading checks size,
header, bounds and checksum before a number is used: a broken or hostile file costs one sentence,
never code or a large allocation.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.errors import InputError, existing_file
from earatlas.files import written_whole
from earatlas.types import Array

__all__ = ["container_digest", "read_container", "write_container"]


_LARGEST_FILE = 1 << 30  # a whole-sphere atlas of 10,000 components is a quarter of this
_LARGEST_HEADER = 1 << 20


def write_container(
    path: str | Path, kind: str, version: int, about: dict[str, Any], arrays: dict[str, Array]
) -> Path:
    """Write arrays (kept as float32 where that loses nothing) and JSON values; all or nothing."""
    from safetensors.numpy import save

    path = Path(path)
    small = {name: _narrowed(array) for name, array in arrays.items()}
    header = {"kind": kind, "version": version, "about": about}
    header["digest"] = container_digest(kind, version, about, small)
    blob = save(small, metadata={"earatlas": json.dumps(header)})
    with written_whole(path) as scratch:
        scratch.write_bytes(blob)
    return path


def container_digest(
    kind: str, version: int, about: dict[str, Any], arrays: dict[str, Array]
) -> str:
    """The hash that a file of this has: the same for the same contents, wherever they are."""
    small = {name: _narrowed(array) for name, array in arrays.items()}
    header = {"kind": kind, "version": version, "about": about}
    return _checksum(small, json.loads(json.dumps(header)))


def read_container(
    path: str | Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON values and the arrays (float64) of a file of this kind, up to this version."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    blob = _bytes(path, kind)
    try:
        header = _header(blob)
        arrays = load(blob)
    except (SafetensorError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _refused(path, kind, str(error) or type(error).__name__) from error
    del blob
    if header.get("kind") != kind:
        raise _refused(path, kind, f"it holds a {header.get('kind')!r}")
    if not isinstance(header.get("version"), int) or header["version"] > version:
        raise InputError(
            f"{kind} must be of format version {version} or older, got {header.get('version')!r} "
            f"in '{path}'. Update earatlas, or make the file again."
        )
    if not _is_unchanged(header, arrays) or not isinstance(header.get("about"), dict):
        raise _refused(path, kind, "its checksum does not match its contents")
    if any(array.dtype not in (np.float32, np.float64) for array in arrays.values()):
        raise _refused(path, kind, "its arrays are not of real numbers")
    return header["about"], {name: array.astype(np.float64) for name, array in arrays.items()}


def _narrowed(array: Array) -> NDArray[Any]:
    """The array in half the space if every number survives it."""
    with np.errstate(over="ignore"):  # it is then not the same
        narrow = np.ascontiguousarray(array, dtype=np.float32)
    same = np.array_equal(narrow.astype(np.float64), array)
    return narrow if same else np.ascontiguousarray(array, dtype=np.float64)


def _is_unchanged(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether the checksum is that of the contents.

    Files of earlier versions have one of the arrays alone, under another name: no change of a byte
    makes one of the other.
    """
    if "digest" in header:
        told = {name: value for name, value in header.items() if name != "digest"}
        return bool(header["digest"] == _checksum(arrays, told))
    return bool(header.get("sha256") == _checksum(arrays))


def _checksum(arrays: dict[str, NDArray[Any]], told: dict[str, Any] | None = None) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data if array.size else b"")
    if told is not None:
        digest.update(json.dumps(told, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def _bytes(path: Path, kind: str) -> bytes:
    path = existing_file(path, kind)
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise _refused(path, kind, f"it is {size / 2**30:.1f} GB large")
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{kind} must be a file that can be read, got '{path}' ({error.strerror}). "
            "Check the name."
        ) from error


def _header(blob: bytes) -> dict[str, Any]:
    length = int.from_bytes(blob[:8], "little")
    if not 2 <= length <= min(_LARGEST_HEADER, len(blob) - 8):
        raise ValueError("its header is broken")
    header = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["earatlas"])
    if not isinstance(header, dict):
        raise ValueError("its header is broken")
    return header


def _refused(path: Path, kind: str, why: str) -> InputError:
    return InputError(
        f"{kind} must be a file that earatlas wrote, got '{path}', which cannot be used "
        f"({why.splitlines()[0][:120]}). Copy it again, or make it anew."
    )
