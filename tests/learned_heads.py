"""A cache of learned heads, for all workers of a session and for later sessions.

Learning takes many seconds, and most tests need a learned head without testing the learning.
Results are stored as atlas files, which are exact (tests/test_atlas.py), under a fingerprint of the
head, the settings, the code and the numerical packages; a change of any of them learns again.
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
from earatlas.code_hash import code_hash
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.ppam import calibration
from earatlas.training import learn_head as training
from earatlas.training import reverberant
from earatlas.training.learn_head import learn_head

__all__ = ["LearnedHeads"]

# Modules that `code_hash` leaves out, because they change no number: those that write the file
_FORMAT = ("container.py", "atlas.py", "atlas_format.py")


class LearnedHeads:
    """A folder of learned heads that processes share."""

    def __init__(self, folder: Path) -> None:
        """Open the folder for the current code; delete folders that were not used for a day."""
        self.folder = folder / code_fingerprint()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.touch()
        for other in folder.iterdir():
            if time.time() - other.stat().st_mtime > 86_400:
                shutil.rmtree(other, ignore_errors=True)

    def learn(self, head: Head, *, progress: object = None, **settings: Any) -> Atlas:
        """Return the atlas of `earatlas.learn`, from the cache if possible."""
        path = self.folder / f"{fingerprint(head, settings)}.atlas"
        with _exclusive(path.with_suffix(".lock")):
            if not path.exists():
                Atlas(**vars(learn_head(head, **settings))).save(path)
        return Atlas.load(path)


def code_fingerprint() -> str:
    """Return a fingerprint of what learning depends on, besides the head and the settings.

    These are the code that it reaches, the data of the package (`people.atlas` has the deviations
    of heads), the file format, and the numerical packages.
    """
    package = Path(earatlas.__file__).parent
    files = [*(package / name for name in _FORMAT), *sorted((package / "data").iterdir())]
    versions = [code_hash(learn_head), platform.python_version(), np.__version__, scipy.__version__]
    digest = hashlib.sha256(json.dumps(versions).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def fingerprint(head: Head, settings: dict[str, Any]) -> str:
    """Return a fingerprint of the head and the settings."""
    bound = inspect.signature(learn).bind(head, **settings)
    bound.apply_defaults()
    plain = {
        name: value.to_dict() if hasattr(value, "to_dict") else value
        for name, value in bound.arguments.items()
        if name not in ("head", "progress")
    }
    # Tests may reduce these numbers.
    counts = [
        training.LEARNING_SETTINGS.max_held_out,
        calibration._SETTINGS.min_sounds,
        reverberant.TRAINING_SETTINGS.scenes,
    ]
    values: list[Any] = [head.name, head.licence, head.provenance, plain, counts]
    if isinstance(head.ears, ImpulseResponses):
        values.append(head.ears.rate)
        ears = head.ears.samples
    else:
        values.append(head.ears.layout.to_dict())
        ears = head.ears.values
    digest = hashlib.sha256(json.dumps(values).encode())
    for array in (head.directions, ears):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    """Lock a file; without file locks a head may be learned twice."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the process ends
        yield
