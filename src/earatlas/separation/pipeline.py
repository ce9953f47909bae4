"""Separate a recording: how many sources, where each is, and each by itself.

In: a `Separator` (a learned head, made ready) and a recording. Out: a `Scene`, or a `FoundScene`
and sound files. `taking_apart` finds the sources and says what of each block is whose; here their
sounds are put together, neighbouring blocks cross-faded, and each source is placed.

Sources are found at the rate of the head's cues; their sounds have the recording's own rate, or the
one that is asked for (`earatlas.separation.demixing.band_extension`).
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from earatlas.errors import EaratlasWarning
from earatlas.features.audio import Audio
from earatlas.features.audio_writer import growing_sound_files
from earatlas.features.cues import checked_audio
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.recording import FileRecording, MemoryRecording, Recording
from earatlas.files import output_folder
from earatlas.localization.diagnostics import Doubt
from earatlas.localization.localizer import localize
from earatlas.localization.result import anywhere
from earatlas.separation.assembly import Assembly, Output
from earatlas.separation.blocks import overlap_samples
from earatlas.separation.moving_sources import FollowedScene
from earatlas.separation.options import Separating
from earatlas.separation.progress import Passes
from earatlas.separation.result import FoundScene, Placed, Scene, Source
from earatlas.separation.separator import ROOM_SECONDS, Separator
from earatlas.separation.source_directions import (
    doubles_told,
    may_be_more,
    placed_sources,
    scene_doubts,
)
from earatlas.separation.source_estimation import Found, take_apart
from earatlas.types import Progress, field_values

__all__ = ["separate", "separate_file", "sound_file"]


def separate(separator: Separator, audio: Audio, how: Separating) -> Scene:
    """The sources of a recording in memory; all their sound and masks are kept.

    The sounds add up to the mixture. With one source, its posterior is that of `localize`.
    """
    narrow, wide = checked_audio(audio, separator.layout), MemoryRecording(audio).centred()
    if wide.offset.any():
        narrow = wide.audio.at_rate(separator.layout.rate)
    recording = MemoryRecording(narrow, wide.offset)
    how = how.of(wide)
    found = take_apart(separator, recording, how)
    assembly = _assembly(separator, wide, found, how)
    stretches = []
    for block in found.blocks:
        stretches.append(assembly.add(block))
        found.note(block)
    scene = _scene(separator, recording, found, how, assembly)
    sounds = np.concatenate([stretch.sounds for stretch in stretches], axis=-1)
    masks = np.concatenate([stretch.masks for stretch in stretches], axis=-1)
    sources = tuple(
        Source(**field_values(source), audio=Audio(sounds[m], scene.rate), mask=masks[m])
        for m, source in enumerate(scene.sources)
    )
    mixture = audio
    if scene.rate != audio.rate:
        mixture = Audio(wide.audio.at_rate(scene.rate).samples + wide.offset, scene.rate)
    return Scene(**{**field_values(scene), "sources": sources}, mixture=mixture)


def separate_file(
    separator: Separator,
    recording: FileRecording,
    folder: str | Path,
    how: Separating,
    *,
    progress: Progress | None = None,
) -> tuple[FoundScene, list[Path]]:
    """The sources of a file of any length, written to `folder` as they come: bounded memory.

    The files are named after the recording (party_source1.wav, …), at its rate or the wished one.
    They appear when all are complete, or not at all. `progress` is told the share that is done.
    """
    folder, passes = Path(folder), Passes(progress)
    with output_folder(folder):
        how, recording = how.of(recording), recording.centred()
        found = take_apart(separator, recording, how, passes)
        passes.find()
        assembly = _assembly(separator, recording, found, how)
        names = [sound_file(recording.path, m) for m in range(found.n_sources)]
        rate = assembly.rate
        samples = round(found.samples * rate / separator.layout.rate)
        with growing_sound_files(folder, names, rate, samples=samples) as append:
            for block in found.blocks:
                append(assembly.add(block).sounds)
                found.note(block)
                passes.again(block.end / found.samples)
            scene = _scene(separator, recording, found, how, assembly)
    return scene, [folder / name for name in names]


def sound_file(path: str | Path, m: int) -> str:
    """The name that `separate_file` gives to the sound of source m of a recording."""
    return f"{Path(path).stem}_source{m + 1}.wav"


def _assembly(
    separator: Separator, recording: Recording, found: Found | FollowedScene, how: Separating
) -> Assembly:
    layout = separator.layout
    rate = how.rate or layout.rate
    overlap = overlap_samples(layout, rate)
    rooms = separator.head.rooms
    gate = None if rooms is None or not found.drowned else rooms.sound.gate
    if how.dry and not found.in_room:
        warnings.warn(_not_dried(found.onsets), EaratlasWarning, stacklevel=4)
    in_room = None if found.may_be_room else found.in_room
    dry = how.dry and found.in_room
    output = Output(
        how.rendering,
        rate,
        recording.chunks(rate),
        recording.offset,
        gate=gate,
        in_room=in_room,
        dry=dry,
    )
    return Assembly(layout, found.n_sources, samples=found.samples, overlap=overlap, output=output)


def _not_dried(onsets: OnsetBins | None) -> str:
    """Why a recording is given as it is although dry sounds were asked for."""
    usual = "so dry=True (--dry) changes nothing: the usual sounds are given, which add up to it"
    if onsets is None:
        return f"this atlas was not made ready for rooms, {usual}. Learn the head again."
    if np.isnan(onsets.decay_seconds):
        return f"too little is heard to tell how long the room rings, {usual}."
    return (
        f"nothing in the recording is reverberant (sound falls by 60 dB in "
        f"{onsets.decay_seconds:.2f} s, in rooms in {ROOM_SECONDS} s or more), {usual}."
    )


def _scene(
    separator: Separator,
    recording: Recording,
    found: Found | FollowedScene,
    how: Separating,
    assembly: Assembly,
) -> FoundScene:
    """What was found, once all blocks are there."""
    if isinstance(found, FollowedScene):
        placed, doubts = found.placed(separator)
    else:
        placed, doubts = _placed(separator, recording, found, how, assembly.onsets())
    return assembly.scene(placed, doubts, found.free_energies)


def _placed(
    separator: Separator,
    recording: Recording,
    found: Found,
    how: Separating,
    alone: list[OnsetBins],
) -> tuple[list[Placed], tuple[Doubt, ...]]:
    """Where each source is: alone, as `localize` says; among others, as onsets and masks do.

    And what makes all of that doubtful. `alone` are the onsets of each source by itself.
    """
    sources, head = found.sources, separator.head
    arrivals = replace(sources.heard, separated=tuple(alone))
    placed = placed_sources(head, sources.state, sources.misfits, arrivals, found.whose)
    more = may_be_more(sources.heard.nearly)
    if len(placed) > 1:
        seconds = found.samples / separator.layout.rate
        doubts = scene_doubts(head, placed, sources.heard.onsets, seconds)
        if any(doubt.word == "nothing directional" for doubt in doubts):
            placed = [replace(own, posterior=anywhere(own.posterior)) for own in placed]
        return doubles_told(placed), (*doubts, *more)
    only = localize(head, recording, threshold=how.threshold, again=True)
    return [replace(placed[0], posterior=only.posterior, doubts=())], (*only.doubts, *more)
