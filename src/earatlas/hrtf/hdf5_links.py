"""Refusal of SOFA files that refer to other files or contain groups.

A SOFA file is a netCDF-4 file, and thereby an HDF5 file. HDF5 can store a dataset in another file
(external storage), assemble it from other files (virtual dataset), and link to objects of other
files. All three would let a file that someone sends read other files of the user, or wait for a
pipe forever. Groups do not occur in SOFA files, but a group that contains itself makes netCDF
allocate memory without end.

The input is a file. The output is what it contains that SOFA files do not, found by the functions
of the HDF5 library that netCDF4 has loaded, without opening anything that is linked. Files are not
examined where these functions are missing: on Windows, and with HDF5 before 1.12.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path

__all__ = ["ForeignObject", "find_foreign_object", "hdf5_library"]

_HARD_LINK = 0  # H5L_TYPE_HARD
_GROUP, _DATASET = 2, 5  # H5I_GROUP, H5I_DATASET
_VIRTUAL = 3  # H5D_VIRTUAL
_DEFAULT = 0  # H5P_DEFAULT, H5E_DEFAULT, H5F_ACC_RDONLY, H5_INDEX_NAME

_Id = ctypes.c_int64  # hid_t
_VISITOR = ctypes.CFUNCTYPE(
    ctypes.c_int, _Id, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
)


class ForeignObject(Enum):
    """What a SOFA file must not contain; the values are words for messages."""

    LINK = "links to other objects or files"
    GROUP = "groups"
    EXTERNAL_STORAGE = "data that are stored in another file"
    VIRTUAL_DATASET = "data that are assembled from other files"


@cache
def hdf5_library() -> ctypes.CDLL | None:
    """Return the HDF5 library that netCDF4 has loaded, or None if its functions are missing.

    On Windows, the functions of libraries that a module needs are not visible through it. HDF5
    before 1.12 has no H5Literate2.
    """
    from netCDF4 import _netCDF4

    library = ctypes.CDLL(_netCDF4.__file__)
    if not hasattr(library, "H5Literate2"):
        return None
    for name in ("H5Fopen", "H5Oopen", "H5Dget_create_plist"):
        getattr(library, name).restype = _Id
    for name in ("H5Fclose", "H5Oclose", "H5Pclose", "H5Iget_type", "H5Dget_create_plist",
                 "H5Pget_layout", "H5Pget_external_count"):  # fmt: skip
        getattr(library, name).argtypes = [_Id]
    library.H5Fopen.argtypes = [ctypes.c_char_p, ctypes.c_uint, _Id]
    library.H5Oopen.argtypes = [_Id, ctypes.c_char_p, _Id]
    library.H5Eset_auto2.argtypes = [_Id, ctypes.c_void_p, ctypes.c_void_p]
    library.H5Literate2.argtypes = [
        _Id, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, _VISITOR, ctypes.c_void_p,
    ]  # fmt: skip
    library.H5open()
    library.H5Eset_auto2(_DEFAULT, None, None)  # print no messages
    return library


def find_foreign_object(path: Path) -> ForeignObject | None:
    """Return the first object of a file that a SOFA file must not contain.

    The result is None for files that are not HDF5 files, too, and for damaged objects, which
    netCDF reports.
    """
    library = hdf5_library()
    if library is None:
        return None
    found: list[ForeignObject] = []

    def visit(group: int, name: bytes, link_type: ctypes._Pointer[ctypes.c_int], _: int) -> int:
        kind = _inspect_link(library, group, name, link_type[0])
        found.extend(() if kind is None else (kind,))
        return len(found)  # not 0 ends the iteration

    with _closing(library.H5Fopen(os.fsencode(path), _DEFAULT, _DEFAULT), library.H5Fclose) as file:
        if file >= 0:
            library.H5Literate2(file, _DEFAULT, _DEFAULT, None, _VISITOR(visit), None)
    return found[0] if found else None


@contextmanager
def _closing(identifier: int, close: ctypes._NamedFuncPointer) -> Iterator[int]:
    """Yield an identifier of the library, which is negative after an error; close it at the end."""
    try:
        yield identifier
    finally:
        if identifier >= 0:
            close(identifier)


def _inspect_link(
    library: ctypes.CDLL, group: int, name: bytes, link_type: int
) -> ForeignObject | None:
    """Return what is foreign about a link of a group or the object that it leads to."""
    if link_type != _HARD_LINK:
        return ForeignObject.LINK
    with _closing(library.H5Oopen(group, name, _DEFAULT), library.H5Oclose) as opened:
        kind = library.H5Iget_type(opened) if opened >= 0 else None
        if kind == _GROUP:
            return ForeignObject.GROUP
        if kind != _DATASET:
            return None
        with _closing(library.H5Dget_create_plist(opened), library.H5Pclose) as properties:
            if properties < 0:
                return None
            if library.H5Pget_layout(properties) == _VIRTUAL:
                return ForeignObject.VIRTUAL_DATASET
            if library.H5Pget_external_count(properties) > 0:
                return ForeignObject.EXTERNAL_STORAGE
    return None
