"""Change SOFA files through the HDF5 library: links, cycles, external and virtual datasets."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from earatlas.hrtf.hdf5_links import hdf5_library

__all__ = ["HOSTILE_CHANGES"]

_Id = ctypes.c_int64


def _library() -> ctypes.CDLL:
    library = hdf5_library()
    assert library is not None
    for name in ("H5Gopen2", "H5Gcreate2", "H5Dopen2", "H5Dcreate2", "H5Dget_space",
                 "H5Dget_create_plist", "H5Pcreate"):  # fmt: skip
        getattr(library, name).restype = _Id
    return library


def _changed(path: Path, change: Callable[[ctypes.CDLL, _Id], None]) -> None:
    """Open a file for writing and change it."""
    library = _library()
    file = library.H5Fopen(os.fsencode(path), 1, 0)
    assert file >= 0
    change(library, _Id(file))
    assert library.H5Fclose(file) >= 0


def _text(value: str | Path) -> ctypes.c_char_p:
    return ctypes.c_char_p(os.fsencode(value))


def external_link(path: Path, other: Path) -> None:
    """Replace the responses by a link to those of another file."""

    def change(library: ctypes.CDLL, file: _Id) -> None:
        zero = _Id(0)
        assert library.H5Ldelete(file, _text("Data.IR"), zero) >= 0
        arguments = (_text(other), _text("/Data.IR"), file, _text("Data.IR"), zero, zero)
        assert library.H5Lcreate_external(*arguments) >= 0

    _changed(path, change)


def soft_link(path: Path, other: Path) -> None:
    """Add a soft link that leads to itself."""
    _changed(path, lambda library, file: library.H5Lcreate_soft(
        _text("/x"), file, _text("x"), _Id(0), _Id(0)
    ))  # fmt: skip


def group_cycle(path: Path, other: Path) -> None:
    """Add a group that contains itself, ten times."""

    def change(library: ctypes.CDLL, file: _Id) -> None:
        zero = _Id(0)
        group = _Id(library.H5Gcreate2(file, _text("g"), zero, zero, zero))
        for n in range(10):
            name = _text(f"g{n}")
            assert library.H5Lcreate_hard(file, _text("g"), group, name, zero, zero) >= 0
        library.H5Gclose(group)

    _changed(path, change)


def _replace_responses(path: Path, configure: Callable[[ctypes.CDLL, _Id, _Id], None]) -> None:
    """Create the responses again, with creation properties that `configure` sets."""

    def change(library: ctypes.CDLL, file: _Id) -> None:
        zero = _Id(0)
        old = _Id(library.H5Dopen2(file, _text("Data.IR"), zero))
        space = _Id(library.H5Dget_space(old))
        double = _Id.in_dll(library, "H5T_IEEE_F64LE_g")
        create = _Id.in_dll(library, "H5P_CLS_DATASET_CREATE_ID_g")
        properties = _Id(library.H5Pcreate(create))
        configure(library, properties, space)
        assert library.H5Ldelete(file, _text("Data.IR"), zero) >= 0
        new = library.H5Dcreate2(file, _text("Data.IR"), double, space, zero, properties, zero)
        assert new >= 0
        for identifier in (old, _Id(new)):
            library.H5Dclose(identifier)
        library.H5Sclose(space)
        library.H5Pclose(properties)

    _changed(path, change)


def external_storage(path: Path, other: Path) -> None:
    """Let the responses be the bytes of another file."""

    def configure(library: ctypes.CDLL, properties: _Id, _: _Id) -> None:
        everything = ctypes.c_uint64(0xFFFFFFFFFFFFFFFF)  # H5F_UNLIMITED
        result = library.H5Pset_external(properties, _text(other), ctypes.c_int64(0), everything)
        assert result >= 0

    _replace_responses(path, configure)


def virtual_dataset(path: Path, other: Path) -> None:
    """Let the responses be a virtual dataset of those of another file."""

    def configure(library: ctypes.CDLL, properties: _Id, space: _Id) -> None:
        arguments = (properties, space, _text(other), _text("/Data.IR"), space)
        assert library.H5Pset_virtual(*arguments) >= 0

    _replace_responses(path, configure)


# By name: a change of the file `path`, which refers to the file `other`.
HOSTILE_CHANGES: dict[str, Callable[[Path, Path], None]] = {
    change.__name__: change
    for change in (external_link, soft_link, group_cycle, external_storage, virtual_dataset)
}
