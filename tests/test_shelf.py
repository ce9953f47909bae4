"""What waits on disk comes back as it was, in order; a full disk is told in plain words."""

import pickle

import numpy as np
import pytest

from earatlas.errors import InputError
from earatlas.hearing.shelf import Shelf


def test_parts_come_back_in_order(rng: np.random.Generator) -> None:
    """Arrays of any kind and size, none of which is held."""
    parts = [(n, rng.normal(size=(n, 3)).astype(np.float32)) for n in (4, 0, 7)]
    with Shelf[tuple[int, np.ndarray]]() as shelf:
        for part in parts:
            shelf.put(part)
        for (n, array), (number, found) in zip(parts, shelf.taken(), strict=True):
            assert n == number
            assert found.dtype == np.float32
            np.testing.assert_array_equal(array, found)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder and what to do."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pickle, "dump", full)
    words = r"must have room .*, got No space left on device\. Set"
    with Shelf[int]() as shelf, pytest.raises(InputError, match=words):
        shelf.put(1)
