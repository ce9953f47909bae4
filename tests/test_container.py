"""Tests of containers: exact round trips, and damaged or malicious files."""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from earatlas.container import read_container, write_container
from earatlas.errors import InputError


@pytest.fixture
def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return an array that is exact in float32, one that is not, and an empty one."""
    return {
        "narrow": np.arange(6.0).reshape(2, 3),
        "wide": rng.normal(size=(3, 4)),
        "empty": np.zeros((0, 5)),
    }


@pytest.fixture
def path(tmp_path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Return a valid file."""
    return write_container(tmp_path / "x.atlas", "atlas", 1, {"name": "ü"}, arrays)


def test_round_trip_is_exact(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Arrays and JSON values are exact, and stored as float32 where possible."""
    about, back = read_container(path, "atlas", 1)
    assert about == {"name": "ü"}
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == np.float64
    assert b'"F32","shape":[2,3]' in path.read_bytes()


def test_failed_write_leaves_no_files(tmp_path: Path) -> None:
    """A missing folder is an input error, and no temporary file remains."""
    with pytest.raises(InputError, match="folder exists"):
        write_container(tmp_path / "no" / "x.atlas", "atlas", 1, {}, {})
    (tmp_path / "x.atlas").mkdir()
    with pytest.raises(InputError, match="writ"):
        write_container(tmp_path / "x.atlas", "atlas", 1, {}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["x.atlas"]


def test_every_truncation_is_refused(path: Path) -> None:
    """A truncated file raises an InputError, at any length."""
    blob = path.read_bytes()
    for size in range(0, len(blob), 7):
        path.write_bytes(blob[:size])
        with pytest.raises(InputError, match="cannot be used"):
            read_container(path, "atlas", 1)


def test_changed_bytes_are_detected_or_irrelevant(
    path: Path, arrays: dict[str, np.ndarray]
) -> None:
    """A changed byte is detected, or it is white space that changes no value."""
    blob = path.read_bytes()
    for i in range(len(blob)):
        path.write_bytes(blob[:i] + bytes([blob[i] ^ 0x15]) + blob[i + 1 :])
        try:
            about, back = read_container(path, "atlas", 1)
        except InputError:
            continue
        assert about == {"name": "ü"}
        for name in back:
            np.testing.assert_array_equal(back[name], arrays[name])


def make_file(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return the bytes of a file with a JSON header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload


META = {"earatlas": json.dumps({"kind": "atlas", "version": 1, "digest": "", "about": {}})}


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x80\x04\x95" + b"os.system" * 20,  # a pickle
        b"PK\x03\x04" + b"\0" * 100,
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 50) + b"[" * 50,
        make_file({"__metadata__": META, "a": {"dtype": "F64", "shape": [1 << 40],
                 "data_offsets": [0, 1 << 43]}}, b"\0" * 64),
        make_file({"__metadata__": META, "a": {"dtype": "F64", "shape": [-1],
                 "data_offsets": [0, 8]}}, b"\0" * 8),
        make_file({"__metadata__": {"earatlas": "[1, 2]"}}),
        make_file({"__metadata__": {"other": "{}"}}),
        make_file({"no": 1}),
        make_file({"__metadata__": META}),
    ],
)  # fmt: skip
def test_malicious_files_are_refused(path: Path, blob: bytes) -> None:
    """Pickles, archives, huge sizes and invalid JSON raise an InputError."""
    path.write_bytes(blob)
    with pytest.raises(InputError, match="cannot be used"):
        read_container(path, "atlas", 1)


def test_oversized_file_is_not_read(tmp_path: Path) -> None:
    """A sparse file of 2 GB is refused without reading it."""
    with (tmp_path / "big.atlas").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(InputError, match=r"2\.0 GB"):
        read_container(tmp_path / "big.atlas", "atlas", 1)


def test_other_kinds_versions_and_paths(path: Path, tmp_path: Path) -> None:
    """Another kind or version, folders, missing and plain safetensors files are refused."""
    with pytest.raises(InputError, match="holds a 'atlas'"):
        read_container(path, "scene", 1)
    for version in (1, 3):
        with pytest.raises(InputError, match=f"version 2, got {version} in .*: learn the head"):
            read_container(write_container(path, "atlas", version, {}, {}), "atlas", 2)
    with pytest.raises(InputError, match="folder"):
        read_container(tmp_path, "atlas", 1)
    with pytest.raises(InputError, match="Check the name"):
        read_container(tmp_path / "none.atlas", "atlas", 1)
    path.write_bytes(save({"a": np.zeros(3)}))
    with pytest.raises(InputError, match="cannot be used"):
        read_container(path, "atlas", 1)


def _replace_values(path: Path, changes: dict[str, Any]) -> None:
    """Change JSON values of a file without changing its checksum."""
    blob = path.read_bytes()
    length = int.from_bytes(blob[:8], "little")
    outer = json.loads(blob[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["earatlas"])
    outer["__metadata__"]["earatlas"] = json.dumps({**inner, **changes})
    path.write_bytes(make_file(outer, blob[8 + length :]))


def test_checksum_covers_all_values(path: Path) -> None:
    """The checksum covers arrays, JSON values and version, but not their formatting."""
    _replace_values(path, {})
    assert read_container(path, "atlas", 1)[0] == {"name": "ü"}
    cases: list[tuple[dict[str, Any], int]] = [
        ({"about": {"name": "u"}}, 1),
        ({"about": {"name": "ü", "x": 1}}, 1),
        ({"version": 2}, 2),
    ]
    for changes, version in cases:
        write_container(path, "atlas", 1, {"name": "ü"}, {"a": np.arange(3.0)})
        _replace_values(path, changes)
        with pytest.raises(InputError, match="checksum does not match"):
            read_container(path, "atlas", version)


def _write_by_hand(path: Path, array: np.ndarray, header: dict[str, Any], covered: bytes) -> None:
    """Write one array with a checksum of it and of further bytes."""
    digest = hashlib.sha256(f"a {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    digest.update(covered)
    header = {**header, "digest": digest.hexdigest()}
    path.write_bytes(save({"a": array}, metadata={"earatlas": json.dumps(header)}))


def test_checksum_is_that_of_arrays_and_canonical_json(path: Path) -> None:
    """A file written by hand is read; one whose checksum covers the arrays only is refused."""
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    header = {"version": 1, "kind": "atlas", "about": {"x": 1}}
    _write_by_hand(path, array, header, b'{"about":{"x":1},"kind":"atlas","version":1}')
    about, back = read_container(path, "atlas", 1)
    assert about == {"x": 1}
    np.testing.assert_array_equal(back["a"], array)
    _write_by_hand(path, array, header, b"")
    with pytest.raises(InputError, match="checksum does not match"):
        read_container(path, "atlas", 1)


def test_arrays_of_other_types_are_refused(path: Path) -> None:
    """Integer and boolean arrays are refused."""
    for array in (np.arange(3), np.array([True])):
        header = {"kind": "atlas", "version": 1, "about": {}}
        _write_by_hand(path, array, header, b'{"about":{},"kind":"atlas","version":1}')
        with pytest.raises(InputError, match="not of real numbers"):
            read_container(path, "atlas", 1)


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    """Pipes and devices are refused without reading them."""
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="got the pipe or device"):
            read_container(source, "atlas", 1)
