"""A file format for plain arrays and JSON values, in which an atlas is stored.

The format is safetensors: a JSON header, then raw little-endian numbers. The JSON values are stored
under `__metadata__` with a checksum of everything: names, shapes and values of the arrays, and the
JSON values in canonical form. Size, header, bounds and checksum are verified before any number is
used, so that a damaged or malicious file can neither execute code nor allocate much memory.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.errors import InputError, check_path, existing_file
from earatlas.files import atomic_write
from earatlas.types import Array

__all__ = ["ATLAS_VERSION", "container_digest", "read_container", "write_container"]

ATLAS_VERSION = 3  # of the file format of atlases; no other one is read

_HALF_PRECISION = "population."  # beginning of the names of arrays that are stored as float16


def write_container(
    path: str | Path, kind: str, version: int, about: dict[str, Any], arrays: dict[str, Array]
) -> Path:
    """Write arrays and JSON values atomically; arrays become narrower where that is exact."""
    from safetensors.numpy import save

    path = check_path(path)
    stored = {name: _narrowest_if_exact(name, array) for name, array in arrays.items()}
    header = {"kind": kind, "version": version, "about": about}
    header["digest"] = container_digest(kind, version, about, stored)
    blob = save(stored, metadata={"earatlas": json.dumps(header)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(blob)
    return path


def container_digest(
    kind: str, version: int, about: dict[str, Any], arrays: dict[str, Array]
) -> str:
    """Return the checksum that a file with these contents has."""
    stored = {name: _narrowest_if_exact(name, array) for name, array in arrays.items()}
    header = {"kind": kind, "version": version, "about": about}
    return _checksum(stored, json.loads(json.dumps(header)))


def read_container(
    path: str | Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the JSON values and the arrays (as float64) of a file of one format version."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = check_path(path)
    blob = _read_bytes(path, kind)
    try:
        header = _header(blob)
        arrays = load(blob)
    except (SafetensorError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _unusable(path, kind, str(error) or type(error).__name__) from error
    del blob
    if header.get("kind") != kind:
        raise _unusable(path, kind, f"it holds a {header.get('kind')!r}")
    if header.get("version") != version:
        raise InputError(
            f"{kind} must have format version {version}, got {header.get('version')!r} in "
            f"'{path}': learn the head again with this version of earatlas."
        )
    if not _is_unchanged(header, arrays) or not isinstance(header.get("about"), dict):
        raise _unusable(path, kind, "its checksum does not match its contents")
    if any(array.dtype not in (np.float16, np.float32, np.float64) for array in arrays.values()):
        raise _unusable(path, kind, "its arrays are not of real numbers")
    return header["about"], {name: array.astype(np.float64) for name, array in arrays.items()}


def _narrowest_if_exact(name: str, array: Array) -> NDArray[Any]:
    """Return the array as float32, or float16 in a population, if that is exact; else float64."""
    narrow_types = [np.float16, np.float32] if name.startswith(_HALF_PRECISION) else [np.float32]
    for narrow in narrow_types:
        with np.errstate(over="ignore"):  # an overflow makes the arrays unequal
            rounded = np.ascontiguousarray(array, dtype=narrow)
        if np.array_equal(rounded.astype(np.float64), array):
            return rounded
    return np.ascontiguousarray(array, dtype=np.float64)


def _is_unchanged(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
    """Return whether the checksum matches the contents."""
    values = {name: value for name, value in header.items() if name != "digest"}
    return bool(header.get("digest") == _checksum(arrays, values))


def _checksum(arrays: dict[str, NDArray[Any]], values: dict[str, Any]) -> str:
    """Return the SHA-256 of arrays and JSON values, as hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data if array.size else b"")
    digest.update(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def _read_bytes(path: Path, kind: str) -> bytes:
    """Return the contents of a file of limited size."""
    path = existing_file(path, kind)
    try:
        size = path.stat().st_size
        if size > 1 << 30:  # an atlas of the sphere with 10,000 components has a quarter of this
            raise _unusable(path, kind, f"it has {size / 2**30:.1f} GB")
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{kind} must be a file that can be read, got '{path}' ({error.strerror}). "
            "Check the name."
        ) from error


def _header(blob: bytes) -> dict[str, Any]:
    """Return the JSON values of a file; raise a ValueError or similar for an invalid header."""
    length = int.from_bytes(blob[:8], "little")
    if not 2 <= length <= min(1 << 20, len(blob) - 8):
        raise ValueError("its header is invalid")
    header = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["earatlas"])
    if not isinstance(header, dict):
        raise ValueError("its header is invalid")
    return header


def _unusable(path: Path, kind: str, reason: str) -> InputError:
    """Return the error for a file that is not of the expected kind, or damaged."""
    return InputError(
        f"{kind} must be a file that earatlas wrote, got '{path}', which cannot be used "
        f"({reason.splitlines()[0][:120]}). Copy it again, or create it again."
    )
