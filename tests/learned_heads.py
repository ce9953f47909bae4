"""Learned heads, each learned once: for all workers of a session, and for the sessions to come.

Learning takes many seconds, and most tests want a learned head for other reasons than to try the
learning. What `earatlas.learn` gave is kept in a file (an atlas comes back bit by bit:
tests/test_atlas.py) under a name made of the head, the settings, the code that learns and the
packages that it computes with: a change in any of them learns again.
"""

import hashlib
import inspect
import json
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import earatlas
from earatlas.atlas import Atlas, learn
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.ppam import calibration
from earatlas.training import learn_head as training
from earatlas.training import reverberant
from earatlas.training.learn_head import learn_head

__all__ = ["LearnedHeads"]

# What learning may import (the layers in pyproject.toml say so), and what keeps the atlas.
_PACKAGES = ("training", "localization", "ppam", "simulation", "hrtf", "features", "geometry")
_FILES = ("container.py", "files.py", "errors.py", "types.py", "threads.py", "atlas.py")


class LearnedHeads:
    """A folder of learned heads, shared by processes."""

    def __init__(self, folder: Path) -> None:
        """The files of this code; those of code that was not tried for a day are deleted."""
        self.folder = folder / code_fingerprint()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.touch()
        for other in folder.iterdir():
            if time.time() - other.stat().st_mtime > 86_400:
                shutil.rmtree(other, ignore_errors=True)

    def learn(self, head: Head, *, progress: object = None, **settings: Any) -> Atlas:
        """The atlas of `earatlas.learn`, which is called if nobody has done so before."""
        path = self.folder / f"{fingerprint(head, settings)}.atlas"
        with _alone(path.with_suffix(".lock")):
            if not path.exists():
                Atlas(**vars(learn_head(head, **settings))).save(path)
        return Atlas.load(path)


def code_fingerprint() -> str:
    """Changes with the code that learns, and with the packages that it computes with."""
    package = Path(earatlas.__file__).parent
    files = [package / name for name in _FILES]
    files += sorted(
        file for package_name in _PACKAGES for file in (package / package_name).rglob("*.py")
    )
    versions = [platform.python_version(), np.__version__, scipy.__version__]
    digest = hashlib.sha256(json.dumps(versions).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def fingerprint(head: Head, settings: dict[str, Any]) -> str:
    """Changes with the head, and with whatever is not its default."""
    told = inspect.signature(learn).bind(head, **settings)
    told.apply_defaults()
    plain = {
        name: value.to_dict() if hasattr(value, "to_dict") else value
        for name, value in told.arguments.items()
        if name not in ("head", "progress")
    }
    # Tests may wish for fewer.
    sounds = [training._MOST_HELD_OUT, calibration._FEWEST_SOUNDS, reverberant._SCENES]
    words: list[Any] = [head.name, head.licence, head.provenance, plain, sounds]
    if isinstance(head.ears, ImpulseResponses):
        words.append(head.ears.rate)
        heard = head.ears.samples
    else:
        words.append(head.ears.layout.to_dict())
        heard = head.ears.values
    digest = hashlib.sha256(json.dumps(words).encode())
    for array in (head.directions, heard):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; a system without such locks learns a head twice at worst."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # gone with its process, however that ends
        yield
