"""What was heard of a long recording and waits on disk until it is known what of it counts.

Parts go in one after the other, and come out in the same order. Memory holds one of them.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from earatlas.errors import InputError

__all__ = ["Shelf"]

Part = TypeVar("Part")


class Shelf(Generic[Part]):
    """A file without a name, within a `with`: it is gone after it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 -- this is the context
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, part: Part) -> None:
        """Keep a part."""
        try:
            pickle.dump(part, self._file, protocol=5)  # arrays as they stand in memory
        except OSError as error:
            raise InputError(
                f"temporary folder '{tempfile.gettempdir()}' must have room for half a gigabyte "
                f"an hour of sound, got {error.strerror}. Set TMPDIR to another folder."
            ) from error
        self._count += 1

    def taken(self) -> Iterator[Part]:
        """All parts."""
        self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)
