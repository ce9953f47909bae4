"""The atlas of a command: named by its first argument, or the atlas of people.

Input: the arguments of a command, `[ATLAS] RECORDING...`. Output: `ChosenAtlas` and recordings. The
first argument is a recording, not an atlas, if it is a sound file, a folder, a pattern or a list.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from earatlas.atlas import Atlas
from earatlas.cli.adaptation_text import format_adaptation, format_segments
from earatlas.cli.console import print_note, progress
from earatlas.cli.outputs import OutputFiles, is_atlas
from earatlas.errors import InputError
from earatlas.features.audio_files import read_audio
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.files import output_folder
from earatlas.packaged_atlases import PACKAGED_ATLASES, PEOPLE

__all__ = ["LISTENER_FILE", "ChosenAtlas", "is_recording", "split_atlas"]


LISTENER_FILE = "listener.atlas"  # the adapted atlas in a folder of results


@dataclass(frozen=True, eq=False)
class ChosenAtlas:
    """The atlas of a command."""

    atlas: Atlas
    # Fields of an answer that describe it: `atlas` ("people") and `adaptation` (the verdict).
    fields: dict[str, str]
    named: bool = True  # False: the atlas of people, because none was named

    @classmethod
    def load(cls, path: Path | None) -> ChosenAtlas:
        """Load the atlas that was named, or that of people if none was."""
        people = path is None or (str(path) == PEOPLE and not path.exists())
        atlas = Atlas.load(PEOPLE if path is None else path)
        return cls(atlas, {"atlas": PEOPLE} if people else {}, path is not None)

    def note_default(self, recordings: Sequence[Path] | None = None) -> None:
        """Print that no atlas was named, unless none of the recordings exists.

        Commands call this once their arguments are checked, so that an error stands alone.
        """
        if self.named or (recordings is not None and not any(map(Path.exists, recordings))):
            return
        print_note(
            "[cyan]note:[/]",
            "no atlas was named, so the atlas of people is used (earatlas info people). "
            "The atlas of your own head is more accurate; without a measurement of it, adapt "
            "this one: earatlas adapt people RECORDINGS -o me.atlas.",
        )

    def adapted(
        self, files: Sequence[Path], channels: tuple[int, int], folder: Path | None, *, force: bool
    ) -> ChosenAtlas:
        """Adapt to the listener of the recordings; if this does not help, keep the atlas.

        An adapted atlas is saved in the folder of the results, if there is one. Recordings that
        cannot be read are left to the command, which reports them.
        """
        path = None if folder is None else folder / LISTENER_FILE
        if path is not None:
            OutputFiles(force=force).claim_in_folder(path, is_atlas(path))
        readable = []
        for file in files:
            with suppress(InputError):
                readable.append(read_audio(file, channels=channels))
        with progress(f"adapting to {len(readable)} recordings"):
            atlas, adaptation = self.atlas.adapt(readable)
        if adaptation.adapted:
            print_note("[cyan]adapted:[/]", f"{format_adaptation(adaptation, len(readable))}.")
            if folder is not None and path is not None:
                with output_folder(folder):
                    atlas.save(path)
        else:
            print_note(
                "[yellow]not adapted:[/]",
                f"{adaptation.verdict} ({format_segments(adaptation)}). "
                "The atlas is used as it is.",
            )
        verdict = {"adaptation": adaptation.verdict.name.lower()}
        return ChosenAtlas(atlas, self.fields | verdict, self.named)


def is_recording(argument: Path) -> bool:
    """Whether the first argument names recordings; a name that no file has may be an atlas."""
    name = str(argument)
    if _names_atlas(argument):
        return False
    if argument.suffix.lower() in RECORDING_SUFFIXES or argument.is_dir():
        return True
    return not argument.exists() and (name.startswith("@") or glob.has_magic(name))


def split_atlas(arguments: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Return the atlas, None for the default, and the recordings."""
    first, *others = arguments
    if is_recording(first):
        for other in others:
            if _names_atlas(other):
                raise InputError(
                    f"atlas must be the first argument, got '{other}' after '{first}'. "
                    "The atlas comes first, recordings after it."
                )
        return None, list(arguments)
    if others:
        return first, others
    if not (_names_atlas(first) or first.exists()):
        raise InputError(
            f"recording must be an existing file, got '{first}'. Check the name, and its suffix."
        )
    raise InputError(
        f"recordings must be named after the atlas, got only '{first}'. Name one or more: sound "
        "files or folders."
    )


def _names_atlas(argument: Path) -> bool:
    """Whether an argument can only be an atlas, which may be missing."""
    packaged = str(argument) in PACKAGED_ATLASES and not argument.exists()
    return packaged or argument.suffix.lower() == ".atlas" or is_atlas(argument)
