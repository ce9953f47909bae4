"""Containers: exact round trips, and every way that a file can be broken or hostile."""

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
    """One array that float32 holds, one that it does not, and an empty one."""
    return {
        "narrow": np.arange(6.0).reshape(2, 3),
        "wide": rng.normal(size=(3, 4)),
        "empty": np.zeros((0, 5)),
    }


@pytest.fixture
def path(tmp_path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """A good file."""
    return write_container(tmp_path / "x.atlas", "atlas", 1, {"name": "ü"}, arrays)


def test_round_trip_is_exact(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Every bit of every array, and the JSON; float32 where nothing is lost."""
    about, back = read_container(path, "atlas", 1)
    assert about == {"name": "ü"}
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == np.float64
    assert b'"F32","shape":[2,3]' in path.read_bytes()


def test_nothing_is_left_of_a_failed_write(tmp_path: Path) -> None:
    """A folder that is not there is an error in words; no scratch file stays."""
    with pytest.raises(InputError, match="folder exists"):
        write_container(tmp_path / "no" / "x.atlas", "atlas", 1, {}, {})
    (tmp_path / "x.atlas").mkdir()
    with pytest.raises(InputError, match="writ"):
        write_container(tmp_path / "x.atlas", "atlas", 1, {}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["x.atlas"]


def test_every_truncation_is_refused(path: Path) -> None:
    """Cut anywhere, it is an InputError and nothing else."""
    blob = path.read_bytes()
    for size in range(0, len(blob), 7):
        path.write_bytes(blob[:size])
        with pytest.raises(InputError, match="cannot be used"):
            read_container(path, "atlas", 1)


def test_every_flipped_byte_is_refused_or_harmless(
    path: Path, arrays: dict[str, np.ndarray]
) -> None:
    """A changed byte is found out, or it was white space: never another number."""
    blob = path.read_bytes()
    for place in range(len(blob)):
        path.write_bytes(blob[:place] + bytes([blob[place] ^ 0x15]) + blob[place + 1 :])
        try:
            about, back = read_container(path, "atlas", 1)
        except InputError:
            continue
        assert about == {"name": "ü"}
        for name in back:
            np.testing.assert_array_equal(back[name], arrays[name])


def hostile(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """A file with this JSON header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload


META = {"earatlas": json.dumps({"kind": "atlas", "version": 1, "sha256": "", "about": {}})}


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x80\x04\x95" + b"os.system" * 20,  # a pickle
        b"PK\x03\x04" + b"\0" * 100,
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 50) + b"[" * 50,
        hostile({"__metadata__": META, "a": {"dtype": "F64", "shape": [1 << 40],
                 "data_offsets": [0, 1 << 43]}}, b"\0" * 64),
        hostile({"__metadata__": META, "a": {"dtype": "F64", "shape": [-1],
                 "data_offsets": [0, 8]}}, b"\0" * 8),
        hostile({"__metadata__": {"earatlas": "[1, 2]"}}),
        hostile({"__metadata__": {"other": "{}"}}),
        hostile({"no": 1}),
        hostile({"__metadata__": META}),
    ],
)  # fmt: skip
def test_hostile_files_are_refused(path: Path, blob: bytes) -> None:
    """Pickles, archives, huge promises, wrong JSON: one sentence each."""
    path.write_bytes(blob)
    with pytest.raises(InputError, match="cannot be used"):
        read_container(path, "atlas", 1)


def test_oversized_file_is_not_read(tmp_path: Path) -> None:
    """A sparse file of 2 GB is refused by its size alone."""
    with (tmp_path / "big.atlas").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(InputError, match=r"2\.0 GB"):
        read_container(tmp_path / "big.atlas", "atlas", 1)


def test_other_kinds_versions_and_places(path: Path, tmp_path: Path) -> None:
    """Another kind, a newer version, a folder, a missing file, a plain safetensors file."""
    with pytest.raises(InputError, match="holds a 'atlas'"):
        read_container(path, "scene", 1)
    with pytest.raises(InputError, match="Update earatlas"):
        read_container(write_container(path, "atlas", 2, {}, {}), "atlas", 1)
    with pytest.raises(InputError, match="folder"):
        read_container(tmp_path, "atlas", 1)
    with pytest.raises(InputError, match="Check the name"):
        read_container(tmp_path / "none.atlas", "atlas", 1)
    path.write_bytes(save({"a": np.zeros(3)}))
    with pytest.raises(InputError, match="cannot be used"):
        read_container(path, "atlas", 1)


def _resealed(path: Path, changes: dict[str, Any]) -> None:
    """The file with other JSON and the checksum that it had: what a changed byte does."""
    blob = path.read_bytes()
    length = int.from_bytes(blob[:8], "little")
    outer = json.loads(blob[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["earatlas"])
    outer["__metadata__"]["earatlas"] = json.dumps({**inner, **changes})
    path.write_bytes(hostile(outer, blob[8 + length :]))


def test_the_checksum_covers_all_that_is_said(path: Path) -> None:
    """Arrays, JSON, kind and version; how the JSON is spelt does not matter."""
    _resealed(path, {})
    assert read_container(path, "atlas", 1)[0] == {"name": "ü"}
    for changes in ({"about": {"name": "u"}}, {"about": {"name": "ü", "x": 1}}, {"version": 0}):
        write_container(path, "atlas", 1, {"name": "ü"}, {"a": np.arange(3.0)})
        _resealed(path, changes)
        with pytest.raises(InputError, match="checksum does not match"):
            read_container(path, "atlas", 1)


def test_a_checksum_of_arrays_alone_is_that_of_earlier_files(path: Path) -> None:
    """They are read as they are; a file of today is not taken for one of them."""
    arrays = {"a": np.arange(6.0, dtype=np.float32).reshape(2, 3)}
    digest = hashlib.sha256(b"a <f4 (2, 3) " + arrays["a"].tobytes()).hexdigest()
    header = {"kind": "atlas", "version": 1, "sha256": digest, "about": {"x": 1}}
    path.write_bytes(save(arrays, metadata={"earatlas": json.dumps(header)}))
    about, back = read_container(path, "atlas", 1)
    assert about == {"x": 1}
    np.testing.assert_array_equal(back["a"], arrays["a"])
    header["digest"] = header["sha256"]
    path.write_bytes(save(arrays, metadata={"earatlas": json.dumps(header)}))
    with pytest.raises(InputError, match="checksum does not match"):
        read_container(path, "atlas", 1)


def test_arrays_of_other_kinds_are_refused(path: Path) -> None:
    """Whole numbers and truth values are never written."""
    for array in (np.arange(3), np.array([True])):
        digest = hashlib.sha256(f"a {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        header = {"kind": "atlas", "version": 1, "sha256": digest.hexdigest(), "about": {}}
        path.write_bytes(save({"a": array}, metadata={"earatlas": json.dumps(header)}))
        with pytest.raises(InputError, match="not of real numbers"):
            read_container(path, "atlas", 1)


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    """They have no end, or never begin."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="got the pipe or device"):
            read_container(place, "atlas", 1)
