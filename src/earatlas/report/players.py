"""Audio players for pages: embedded FLAC excerpts, and links to the files.

The inputs are `Audio` or sound files by name, the output is HTML by name. FLAC with 16 bits is
lossless for listening, half as large as WAV, and played by all current browsers.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import numpy as np
import soundfile

from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_seconds, read_blocks
from earatlas.wording import format_duration

__all__ = ["EmbeddedSoundLimits", "players"]


# Evidence: docs/figures/settings/report.md, "players".
@dataclass(frozen=True, slots=True)
class EmbeddedSoundLimits:
    """Limits of the sounds that a page contains."""

    seconds: float = 60.0  # longest excerpt of a sound
    megabytes: float = 8.0  # size of all excerpts together


_LIMITS = EmbeddedSoundLimits()


def _excerpt(sound: Audio | Path, seconds: float) -> Audio:
    """Return the first seconds of a sound."""
    if isinstance(sound, Audio):
        return Audio(sound.samples[:, : max(round(seconds * sound.rate), 1)], sound.rate)
    return next(read_blocks(sound, block_seconds=seconds, warn=False))


def _flac(sound: Audio, gain: float) -> bytes:
    """Encode a sound as FLAC with 16 bits."""
    file = BytesIO()
    soundfile.write(file, gain * sound.samples.T, sound.rate, "PCM_16", format="FLAC")
    return file.getvalue()


def _encode_excerpts(
    sounds: Mapping[str, Audio | Path], limits: EmbeddedSoundLimits
) -> tuple[dict[str, bytes], float]:
    """Return FLAC excerpts of equal length that fit into the page together, and their length."""
    seconds = limits.seconds
    while True:
        clips = {name: _excerpt(sound, seconds) for name, sound in sounds.items()}
        peak = max((float(np.abs(c.samples).max(initial=0.0)) for c in clips.values()), default=0.0)
        # One gain for all sounds keeps their loudness comparable.
        gain = min(1.0, 0.99 / peak) if peak > 0 else 1.0
        encoded = {name: _flac(clip, gain) for name, clip in clips.items()}
        size = sum(map(len, encoded.values())) * 4 / 3  # as base64
        if size <= 1e6 * limits.megabytes or seconds < 1.0:
            return encoded, seconds
        seconds *= 0.9 * 1e6 * limits.megabytes / size


def _link(file: Path, folder: Path) -> str:
    """Return a link to a file, relative to the folder of the page."""
    try:
        address = quote(Path(os.path.relpath(file, folder)).as_posix())
    except ValueError:  # on another drive
        address = file.resolve().as_uri()
    # Without the dot, a name such as "a:b.wav" would be read as a URL scheme.
    address = address if address.startswith((".", "file:")) else f"./{address}"
    return f'<a href="{escape(address)}">{escape(file.name)}</a>'


def players(
    sounds: Mapping[str, Audio | Path],
    files: Mapping[str, Path],
    folder: Path,
    limits: EmbeddedSoundLimits | None = None,
) -> dict[str, str]:
    """Return the HTML of a player for each sound and a link to each file, by name.

    Links are relative to `folder`, where the page will be written.
    """
    encoded, seconds = _encode_excerpts(sounds, limits or _LIMITS)
    html = {}
    for name in (*sounds, *(name for name in files if name not in sounds)):
        parts, notes = [], []
        if name in encoded:
            data = b64encode(encoded[name]).decode("ascii")
            parts.append(
                f'<audio controls preload="metadata" aria-label="Play {escape(name)}" '
                f'src="data:audio/flac;base64,{data}"></audio>'
            )
            sound = sounds[name]
            length = sound.seconds if isinstance(sound, Audio) else audio_seconds(sound)
            if length > seconds + 0.05:
                notes.append(f"Excerpt: the first {seconds:.0f} s of {format_duration(length)}.")
        if name in files:
            notes.append(f"Full file: {_link(files[name], folder)}")
        if notes:
            parts.append(f'<p class="note">{" ".join(notes)}</p>')
        html[name] = "".join(parts)
    return html
