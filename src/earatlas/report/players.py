"""Players for a page: sounds as FLAC inside it, the openings of long ones, and links to files.

In: `Audio` or sound files by name. Out: HTML text by name. FLAC at 16 bits loses nothing that can
be heard, is half of a WAV file, and all current browsers play it.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import numpy as np
import soundfile

from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_seconds, read_blocks
from earatlas.wording import length_words

__all__ = ["players"]

_SECONDS = 60.0  # of a sound, at most, inside the page
_MEGABYTES = 8.0  # of all sounds together


def _opening(sound: Audio | Path, seconds: float) -> Audio:
    """The first seconds of a sound."""
    if isinstance(sound, Audio):
        return Audio(sound.samples[:, : max(round(seconds * sound.rate), 1)], sound.rate)
    return next(read_blocks(sound, block_seconds=seconds, warn=False))


def _flac(sound: Audio, gain: float) -> bytes:
    file = BytesIO()
    soundfile.write(file, gain * sound.samples.T, sound.rate, "PCM_16", format="FLAC")
    return file.getvalue()


def _embedded(sounds: Mapping[str, Audio | Path]) -> tuple[dict[str, bytes], float]:
    """FLAC files of the sounds' openings, as long as all fit in together, and that length."""
    seconds = _SECONDS
    while True:
        clips = {name: _opening(sound, seconds) for name, sound in sounds.items()}
        peak = max((float(np.abs(c.samples).max(initial=0.0)) for c in clips.values()), default=0.0)
        gain = min(1.0, 0.99 / peak) if peak > 0 else 1.0  # one for all: loudness can be compared
        coded = {name: _flac(clip, gain) for name, clip in clips.items()}
        size = sum(map(len, coded.values())) * 4 / 3  # as base64
        if size <= 1e6 * _MEGABYTES or seconds < 1.0:
            return coded, seconds
        seconds *= 0.9 * 1e6 * _MEGABYTES / size


def _link(file: Path, folder: Path) -> str:
    """A link to a file, by its name as seen from the page."""
    try:
        address = quote(Path(os.path.relpath(file, folder)).as_posix())
    except ValueError:  # on another drive
        address = file.resolve().as_uri()
    # A name such as "a:b.wav" would be taken for a scheme without the dot.
    address = address if address.startswith((".", "file:")) else f"./{address}"
    return f'<a href="{escape(address)}">{escape(file.name)}</a>'


def players(
    sounds: Mapping[str, Audio | Path], files: Mapping[str, Path], folder: Path
) -> dict[str, str]:
    """The HTML of a player for each sound and a link to each file, by name.

    `folder` is where the page will be: links are relative to it.
    """
    coded, seconds = _embedded(sounds)
    html = {}
    for name in (*sounds, *(name for name in files if name not in sounds)):
        parts, notes = [], []
        if name in coded:
            data = b64encode(coded[name]).decode("ascii")
            parts.append(
                f'<audio controls preload="metadata" aria-label="Listen to {escape(name)}" '
                f'src="data:audio/flac;base64,{data}"></audio>'
            )
            sound = sounds[name]
            length = sound.seconds if isinstance(sound, Audio) else audio_seconds(sound)
            if length > seconds + 0.05:
                notes.append(f"The first {seconds:.0f} s of {length_words(length)} are here.")
        if name in files:
            notes.append(f"The whole file: {_link(files[name], folder)}")
        if notes:
            parts.append(f'<p class="note">{" ".join(notes)}</p>')
        html[name] = "".join(parts)
    return html
