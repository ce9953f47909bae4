"""What a command may overwrite.

One gentle rule. What is there already and was clearly made by the same command is replaced, and a
line says so (`replaced: …`); what was not is left alone: the command says so before it works, and
`--force` overrides it. Clearly made are:

    an atlas      by its contents
    a track       by its first line (CSV) or its first field (JSON)
    a picture     by the name of the library that drew it, which it carries
    a scene       by its scene.json, which vouches for the other files of `simulate` and `demo`
    sounds        by their names, which nobody else gives: party_source1.wav
    pages         by the sounds, the scene or the picture that they always come with

`reproduce` goes on with what it finds in its own folder, so it has nothing to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from earatlas.cli.console import note
from earatlas.errors import InputError
from earatlas.files import check_writable

__all__ = [
    "Outputs",
    "atlas_header",
    "claim_scene",
    "is_atlas",
    "is_picture",
    "is_scene",
    "is_track",
    "tell_replaced",
]


class Outputs:
    """What a command is about to write: claimed before the work, told after it."""

    def __init__(self, *, force: bool) -> None:
        self.force = force
        self._replaced: list[str] = []

    def claim(self, path: Path, is_ours: Callable[[Path], bool], what: str = "output") -> None:
        """A file that will be written; an InputError if it is somebody else's."""
        check_writable(path, what)
        self.claim_in_folder(path, not path.is_file() or is_ours(path))

    def claim_in_folder(self, path: Path, ours: bool) -> None:
        """The same for a file of a folder that is made where it is missing."""
        # An empty file is nobody's loss; a pipe or a device is not empty.
        if not path.exists() or (path.is_file() and path.stat().st_size == 0):
            return
        if not (ours or self.force):
            raise InputError(
                f"output must not be a file that this command did not make, got '{path}'. "
                "Choose another name, or pass --force to replace it."
            )
        self._replaced.append(str(path))

    def claim_picture(self, path: Path) -> None:
        """A picture, by its ending and what is there."""
        from earatlas.plotting.style import check_picture

        check_picture(path)
        self.claim(path, is_picture, "plot")

    def tell(self) -> None:
        """Say what was replaced."""
        tell_replaced(self._replaced)


def claim_scene(outputs: Outputs, folder: Path, others: Iterable[str] = ()) -> None:
    """The files of a scene that will be written to a folder, and others that go with it."""
    ours = is_scene(folder)
    images = sorted(file.name for file in folder.glob("image[0-9]*_*.wav"))
    for name in ("mixture.wav", "noise.wav", "scene.json", *images, *others):
        outputs.claim_in_folder(folder / name, ours)


def tell_replaced(files: list[str]) -> None:
    """A line on standard error, if there is something to tell."""
    if files:
        note("[yellow]replaced:[/]", ", ".join(files))


def atlas_header(path: Path) -> dict[str, Any] | None:
    """What an atlas says of itself (kind, version, …), or None for any other file."""
    try:
        if not path.is_file():  # a pipe would never begin
            return None
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= 1 << 20:
                return None
            header = json.loads(json.loads(file.read(length))["__metadata__"]["earatlas"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return header if isinstance(header, dict) and header.get("kind") == "atlas" else None


def is_atlas(path: Path) -> bool:
    """Whether `learn` wrote it."""
    return atlas_header(path) is not None


def is_track(path: Path) -> bool:
    """Whether `localize --track` wrote it."""
    begin = _beginning(path)
    return begin.startswith((b"time,azimuth,elevation,", b'[{"time": ')) or begin.strip() == b"[]"


def is_picture(path: Path) -> bool:
    """Whether it says that earatlas drew it."""
    return b"earatlas" in _beginning(path, path.stat().st_size)


def is_scene(folder: Path) -> bool:
    """Whether `simulate` or `demo` wrote the scene.json of a folder."""
    from earatlas.simulation.scene import read_scene_file

    try:
        about = read_scene_file(folder / "scene.json")
        return bool(about["mixture"] and about["sources"][0]["file"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _beginning(path: Path, size: int = 64) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
