"""An atlas: everything that was learned of one head, in one file, and what can be done with it.

In: a `Head`. Out: an `Atlas`: a PPAM with the layout of its cues and the space of its directions,
how far the answers were off on directions that were held out, and a calibration that makes the
beliefs honest. It localizes and separates; it is saved as one file of plain arrays and JSON.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from earatlas.container import read_container, write_container
from earatlas.errors import InputError
from earatlas.heads.head import Head
from earatlas.hearing.audio import Audio
from earatlas.hearing.cues import checked_audio
from earatlas.hearing.layout import CueLayout, Threshold
from earatlas.hearing.recording import FileRecording, MemoryRecording
from earatlas.learning.calibration import Calibration
from earatlas.learning.direct_learning import learn_rooms
from earatlas.learning.learn import MODEL_ARRAYS, learn_head
from earatlas.learning.learned import Accuracy, LearnedHead
from earatlas.learning.ppam import PPAM
from earatlas.learning.rooms import RoomHearing
from earatlas.localization.answer import Localization
from earatlas.localization.recording import localize
from earatlas.localization.stream import Localizer
from earatlas.localization.track import Track, Windows, track
from earatlas.separation.recording import Separating, separate, separate_file
from earatlas.separation.scene import FoundScene, Scene
from earatlas.separation.separator import Separator
from earatlas.separation.sound.rendering import Rendering
from earatlas.space.spaces import Space, space_from_dict
from earatlas.types import Array, Progress, field_values

__all__ = ["Atlas", "learn"]

_VERSION = 2  # 1 kept coarser models beside the one that is used


@dataclass(frozen=True, eq=False, repr=False)
class Atlas(LearnedHead):
    """A learned head: `localize` and its siblings turn recordings into directions and sounds."""

    def with_rooms(self, head: Head, *, seed: int = 0) -> Self:
        """The atlas made ready for rooms that were never learned; `head` is what it was learned of.

        One sound is then localized by its direct sound where it does not fit the open: `localize`,
        `localize_file` and `localizer`. Tracks and `separate` are as before.
        """
        if sum(self.space.within(head.directions)) != self.about.get("directions"):
            raise InputError(
                f"head must be the one that the atlas was learned of, got '{head.name}' with other "
                f"directions than '{self.about.get('head')}'. Give the same head."
            )
        known = head.subset(self.space.within(head.directions))
        rooms = learn_rooms(known, self.model, self.layout, self.calibration, seed=seed)
        return replace(self, rooms=rooms)

    # --- one sound -----------------------------------------------------------------------------

    def localize(self, audio: Audio, *, threshold: Threshold | None = None) -> Localization:
        """Where the one sound of a recording comes from."""
        return localize(self, MemoryRecording(audio), threshold=threshold)

    def localize_file(
        self,
        path: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        threshold: Threshold | None = None,
    ) -> Localization:
        """The answer of `localize` for a file of any length, in one pass and constant memory."""
        return localize(self, FileRecording(path, channels), threshold=threshold)

    def localize_frames(
        self,
        audio: Audio,
        *,
        window_seconds: float = Windows.window_seconds,
        hop_seconds: float = Windows.hop_seconds,
        threshold: Threshold | None = None,
    ) -> Track:
        """Where the sound is over time: one answer each hop, from a window of sound.

        Both are rounded to whole frames, and the window to whole hops. What counts as heard is
        relative to the peak and the noise of the whole recording.
        """
        windows = Windows(window_seconds, hop_seconds, threshold)
        windows.frames(self.layout)
        return track(self, MemoryRecording(checked_audio(audio, self.layout)), windows)

    def localize_file_frames(
        self,
        path: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        window_seconds: float = Windows.window_seconds,
        hop_seconds: float = Windows.hop_seconds,
        threshold: Threshold | None = None,
    ) -> Track:
        """The track of `localize_frames` for a file, of which only blocks are held in memory."""
        windows = Windows(window_seconds, hop_seconds, threshold)
        return track(self, FileRecording(path, channels), windows)

    def localizer(
        self,
        *,
        rate: int | None = None,
        memory_seconds: float | None = None,
        threshold: Threshold | None = None,
    ) -> Localizer:
        """A `Localizer` of a live stream at `rate`; with a memory, it follows a moving sound."""
        return Localizer(self, rate=rate, memory_seconds=memory_seconds, threshold=threshold)

    # --- several sounds ------------------------------------------------------------------------

    @cached_property
    def separator(self) -> Separator:
        """The model made ready for mixtures; made once."""
        return Separator(self)

    def separate(
        self,
        audio: Audio,
        *,
        n_sources: int | None = None,
        rendering: Rendering = Separating.rendering,
        threshold: Threshold | None = None,
        rate: int | None = None,
    ) -> Scene:
        """The sources of a recording: where each is, and each by itself.

        With `n_sources` None their number is found out. The sounds add up to the mixture, at its
        own rate unless another `rate` (Hz) is asked for.
        """
        how = Separating(n_sources, rendering, threshold or Threshold(), rate)
        return separate(self.separator, audio, how)

    def separate_file(
        self,
        path: str | Path,
        folder: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        n_sources: int | None = None,
        rendering: Rendering = Separating.rendering,
        threshold: Threshold | None = None,
        rate: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FoundScene, list[Path]]:
        """The sources of a file of any length, written to a folder, in bounded memory.

        The files (party_source1.wav, …) have the recording's rate, or the `rate` (Hz) that is asked
        for. They appear when all are complete, or not at all. `progress(done, total)` is called as
        the work goes on.
        """
        how = Separating(n_sources, rendering, threshold or Threshold(), rate)
        recording = FileRecording(path, channels)
        return separate_file(self.separator, recording, folder, how, progress=progress)

    # --- its file ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write one file; `load` gives back every bit."""
        arrays = {name: getattr(self.model, name) for name in MODEL_ARRAYS}
        calibration = self.calibration
        if calibration.frame_noise is not None:
            arrays["frame_noise"] = calibration.frame_noise
        if self.rooms is not None:
            arrays |= self.rooms.to_arrays()
        about = {
            "layout": self.layout.to_dict(),
            "space": self.space.to_dict(),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            "calibration": {
                "temperature": calibration.temperature,
                "widths": list(calibration.widths),
                "shares": list(calibration.shares),
                "frame_share": calibration.frame_share,
                "prior_frames": calibration.prior_frames,
                "misfit": None if math.isinf(calibration.misfit) else calibration.misfit,
            },
            "about": self.about,
            "rooms": None if self.rooms is None else self.rooms.to_dict(),
        }
        return write_container(path, "atlas", _VERSION, about, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, now or in an earlier version; anything else is an InputError."""
        if Path(path).suffix.lower() in {".sofa", ".csv"} and Path(path).is_file():
            raise InputError(
                f"atlas must be a file that `earatlas learn` wrote, got the head '{path}'. "
                f"Learn it first: earatlas learn {path} -o {Path(path).stem}.atlas."
            )
        about, arrays = read_container(path, "atlas", _VERSION)
        try:
            # Version 1 has coarser models too, scale0 … ; the last is the one that is used.
            prefix = f"scale{int(about['scales']) - 1}." if "scales" in about else ""
            model = _model(space_from_dict(about["space"]), arrays, prefix)
            calibration = _calibration(about["calibration"], arrays.get("frame_noise"))
            accuracy = None if about["accuracy"] is None else Accuracy(**about["accuracy"])
            layout = CueLayout.from_dict(about["layout"])
            rooms = None
            if about.get("rooms") is not None:
                rooms = RoomHearing.from_arrays(model.space, arrays, about["rooms"])
            atlas = cls(model, layout, calibration, accuracy, about["about"], rooms)
            _check_parts(atlas)
        except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"atlas must be a file that earatlas wrote, got '{path}', which cannot be used "
                f"({error}). Learn the head again."
            ) from error
        return atlas


def _model(space: Space, arrays: dict[str, Array], prefix: str) -> PPAM:
    centres, weights, gammas, A, b, noise, latent, spread = (
        arrays[prefix + name] for name in MODEL_ARRAYS
    )
    return PPAM(space, centres, weights, gammas, A, b, noise, latent, spread)


def _calibration(fields: dict[str, Any], frame_noise: Array | None) -> Calibration:
    return Calibration(
        temperature=float(fields["temperature"]),
        widths=tuple(map(float, fields["widths"])),
        shares=tuple(map(float, fields["shares"])),
        frame_share=float(fields["frame_share"]),
        prior_frames=float(fields["prior_frames"]),
        misfit=math.inf if fields["misfit"] is None else float(fields["misfit"]),
        frame_noise=frame_noise,
    )


def _check_parts(atlas: Atlas) -> None:
    """Raise ValueError for numbers that no learning gives: a file may be made by hand."""
    model, calibration, cues = atlas.model, atlas.calibration, atlas.layout.n_cues
    noise = calibration.frame_noise
    good = (
        isinstance(atlas.about.get("head"), str)
        and model.b.shape[1] == cues
        and all(np.isfinite(getattr(model, name)).all() for name in MODEL_ARRAYS)
        and (model.noise > 0).all()
        and (model.spread > 0).all()
        and (np.linalg.eigvalsh(model.gammas) > 0).all()
        and len(calibration.widths) == len(calibration.shares) > 0
        and min(calibration.shares) >= 0 < sum(calibration.shares)
        and calibration.temperature > 0
        and calibration.misfit > 0
        and (noise is None or (noise.shape == (cues,) and (noise >= 0).all()))
    )
    if not good:
        raise ValueError("its parts do not fit each other")


def learn(
    head: Head,
    *,
    space: Space | None = None,
    components: int | None = None,
    latent: int | None = None,
    constrained: bool = True,
    layout: CueLayout | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Atlas:
    """Learn a head: its charts, held-out errors and calibration.

    `space` is the head's own (sphere, or circle for one elevation) unless given; directions that
    it does not have are left out. `components` is the number of charts K, one for ten directions
    unless given. `progress(done, total)` is called as the work goes on.
    """
    learned = learn_head(
        head, space=space, components=components, latent=latent, constrained=constrained,
        layout=layout, seed=seed, progress=progress,
    )  # fmt: skip
    return Atlas(**field_values(learned))
