"""Rules for overwriting files.

A command replaces existing files that it clearly wrote itself, and prints their names
(`replaced: …`). Any other existing file is an error before the work starts, unless `--force` is
given. Files are recognized as follows:

    atlas      by its contents
    track      by its first line (CSV) or its first field (JSON)
    picture    by the name of this package in its metadata
    scene      by its scene.json, which also covers the other files of `simulate` and `demo`
    sounds     by the comment in their header, or by the sidecar that lists them
    reports    by the sounds, the scene or the picture that are always beside them

`reproduce` continues with the results in its own folder, so nothing is replaced there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from earatlas.cli.console import print_note
from earatlas.errors import InputError
from earatlas.files import check_writable

__all__ = [
    "OutputFiles",
    "atlas_header",
    "check_atlas_name",
    "claim_scene",
    "is_atlas",
    "is_picture",
    "is_scene",
    "is_track",
    "print_replaced",
]


class OutputFiles:
    """Files that a command will write: checked before the work, reported after it."""

    def __init__(self, *, force: bool) -> None:
        self.force = force
        self._replaced: list[str] = []

    def claim(self, path: Path, is_own: Callable[[Path], bool], argument: str = "output") -> None:
        """Check that a file may be written; `is_own` recognizes files of the same command."""
        check_writable(path, argument)
        self.claim_in_folder(path, not path.is_file() or is_own(path))

    def claim_in_folder(self, path: Path, own: bool) -> None:
        """Check that a file may be written to a folder, which may not exist yet."""
        # An empty file may be replaced; a pipe or a device may not.
        if not path.exists() or (path.is_file() and path.stat().st_size == 0):
            return
        if not (own or self.force):
            raise InputError(
                f"output must not be a file that this command did not create, got '{path}'. "
                "Choose another name, or pass --force to replace it."
            )
        self._replaced.append(str(path))

    def claim_picture(self, path: Path) -> None:
        """Check that a picture may be written, and that its suffix is known."""
        from earatlas.plotting.style import check_figure_path

        check_figure_path(path)
        self.claim(path, is_picture, "plot")

    def report(self) -> None:
        """Print the names of the replaced files."""
        print_replaced(self._replaced)


def claim_scene(outputs: OutputFiles, folder: Path, others: Iterable[str] = ()) -> None:
    """Check that a scene may be written to a folder, and the `others` that go with it."""
    own = is_scene(folder)
    images = sorted(file.name for file in folder.glob("image[0-9]*_*.wav"))
    for name in ("mixture.wav", "noise.wav", "scene.json", *images, *others):
        outputs.claim_in_folder(folder / name, own)


def print_replaced(files: list[str]) -> None:
    """Print the names of replaced files on standard error, if there are any."""
    if files:
        print_note("[yellow]replaced:[/]", ", ".join(files))


def atlas_header(path: Path) -> dict[str, Any] | None:
    """Return the header of an atlas (kind, version, …), or None for any other file."""
    try:
        if not path.is_file():  # opening a pipe would block
            return None
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= 1 << 20:
                return None
            header = json.loads(json.loads(file.read(length))["__metadata__"]["earatlas"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return header if isinstance(header, dict) and header.get("kind") == "atlas" else None


def check_atlas_name(output: Path) -> None:
    """Refuse the suffix of a sound, a head or a table for an atlas."""
    if output.suffix.lower() in {".csv", ".flac", ".json", ".sofa", ".wav"}:
        raise InputError(
            f"output must have the suffix of an atlas, got '{output}'. "
            f"Name it {output.with_suffix('.atlas').name}."
        )


def is_atlas(path: Path) -> bool:
    """Whether `learn` wrote the file."""
    return atlas_header(path) is not None


def is_track(path: Path) -> bool:
    """Whether `localize --track` wrote the file."""
    start = _read_start(path)
    return start.startswith((b"time,azimuth,elevation,", b'[{"time": ')) or start.strip() == b"[]"


def is_picture(path: Path) -> bool:
    """Whether the metadata of the picture names this package."""
    return b"earatlas" in _read_start(path, path.stat().st_size)


def is_scene(folder: Path) -> bool:
    """Whether the folder has a scene.json that `simulate` or `demo` wrote."""
    from earatlas.simulation.scene import read_scene_file

    try:
        scene = read_scene_file(folder / "scene.json")
        return bool(scene["mixture"] and scene["sources"][0]["file"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _read_start(path: Path, size: int = 64) -> bytes:
    """Return the first bytes of a file, or none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
