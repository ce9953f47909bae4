"""Cache folder of the user for arrays that take minutes to compute.

The input is a name and a function that makes the arrays. The output are the arrays, from the file
of that name if it exists. The name must contain a hash of everything that determines the arrays.
The folder is `$EARATLAS_CACHE`, or `earatlas` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from earatlas.errors import InputError
from earatlas.files import atomic_write
from earatlas.types import Single

__all__ = ["cache_folder", "cached_arrays"]


def cache_folder() -> Path:
    """Return the cache folder, which need not exist."""
    own = os.environ.get("EARATLAS_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "earatlas"


def cached_arrays(name: str, make: Callable[[], dict[str, Single]]) -> dict[str, Single]:
    """Return the arrays stored under a name, or make and store them.

    A damaged file is replaced. If the folder is not writable, the arrays are made every time.
    """
    path = cache_folder() / f"{name}.npz"
    with (
        suppress(OSError, ValueError, BadZipFile, EOFError, KeyError),
        path.open("rb") as file,
        np.load(file) as stored,
    ):
        return {key: stored[key] for key in stored.files}
    arrays = make()
    by_name: dict[str, Any] = {**arrays}
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as scratch, scratch.open("wb") as new:
            np.savez(new, **by_name)
    return arrays
