"""An atlas: everything that was learned of one head, in one file, and what can be done with it.

In: a `Head`. Out: an `Atlas`: a PPAM with the layout of its cues and the space of its directions,
how far the answers were off on directions that were held out, and a calibration that makes the
posteriors honest. It localizes and separates; it is saved as one file of plain arrays and JSON.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from earatlas.container import container_digest, read_container, write_container
from earatlas.errors import InputError, brief
from earatlas.features.audio import Audio
from earatlas.features.cues import checked_audio
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.recording import FileRecording, MemoryRecording
from earatlas.geometry.spaces import Space, space_from_dict
from earatlas.hrtf.head import Head
from earatlas.localization.head_motion import YawLike
from earatlas.localization.learned_head import Accuracy, LearnedHead
from earatlas.localization.localizer import localize
from earatlas.localization.result import Localization
from earatlas.localization.reverberant_localizer import RoomHearing
from earatlas.localization.streaming_localizer import Localizer
from earatlas.localization.windowed import Track, Windows, track
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.cross_validation import Folds
from earatlas.ppam.model import PPAM
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.options import Separating
from earatlas.separation.pipeline import separate, separate_file
from earatlas.separation.result import FoundScene, Scene
from earatlas.separation.separator import Separator
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.threads import one_thread_each
from earatlas.training.learn_head import MODEL_ARRAYS, learn_head
from earatlas.training.reverberant import RoomScenes, rooms_refused
from earatlas.types import Array, Progress, field_values

if TYPE_CHECKING:
    from earatlas.streaming.stream import Live

__all__ = ["EXAMPLE_ATLAS", "Atlas", "example_atlas", "learn"]

EXAMPLE_ATLAS = Path(__file__).with_name("data") / "simulated.atlas"

# 1 kept coarser models beside the one that is used; the checksum of 1 and 2 is of arrays alone.
_VERSION = 3
_SOUNDS = {".aif", ".aiff", ".flac", ".mp3", ".ogg", ".opus", ".wav"}
_LARGEST = 1e12  # of any number that is learned: products of four do not overflow
_SHARPEST = 1e14  # of maps over noise: beyond, matrices of two charts that are alike are singular
_MOST_DEGREES = 360.0  # of bounds and widths
_MOST_FRAMES = 20_000  # a second; 125 are the default


@dataclass(frozen=True, eq=False, repr=False)
class Atlas(LearnedHead):
    """A learned head: `localize` and its siblings turn recordings into directions and sounds."""

    def with_rooms(self, head: Head, *, seed: int = 0) -> Self:
        """The atlas made ready for rooms that were never learned; `head` is what it was learned of.

        Sounds are then localized by their direct sound where they do not fit the open,
        whichever way they come in. `learn` does this by itself unless told not to.
        """
        if sum(self.space.within(head.directions)) != self.about.get("directions"):
            raise InputError(
                f"head must be the one that the atlas was learned of, got '{head.name}' with other "
                f"directions than '{self.about.get('head')}'. Give the same head."
            )
        known = head.subset(self.space.within(head.directions))
        refused = rooms_refused(known, self.layout)
        if refused is not None:
            raise InputError(
                f"head must be measured in the open to be used in any room, got '{head.name}', "
                f"which {refused}. Learn the direct sound of responses that ring "
                "(head.direct(), --direct on the command line), or use the atlas as it is."
            )
        folds = Folds.of(self.model, known.directions, known.cues(self.layout), seed=seed)
        doubted = 0.0 if self.accuracy is None else 1.0
        scenes = RoomScenes.of(
            known, self.space, self.layout, SyntheticTalkers(self.layout.rate, seed)
        )
        return replace(self, rooms=scenes.hearing(folds, self.calibration, doubted=doubted))

    # --- one sound -----------------------------------------------------------------------------

    def localize(
        self, audio: Audio, *, threshold: Threshold | None = None, yaw: YawLike = 0.0
    ) -> Localization:
        """Where the one sound of a recording comes from.

        `yaw` is how far the head was turned to its left (counter-clockwise), in degrees: a number,
        or a `Yaw` over time. Directions are then the room's, whose 0° is where the head looks at
        yaw 0; what a turning head hears in its poses is put together.
        """
        return localize(self, MemoryRecording(audio), threshold=threshold, yaw=yaw)

    def localize_file(
        self,
        path: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        threshold: Threshold | None = None,
        yaw: YawLike = 0.0,
    ) -> Localization:
        """The answer of `localize` for a file of any length, in one pass and constant memory."""
        return localize(self, FileRecording(path, channels), threshold=threshold, yaw=yaw)

    def localize_frames(
        self,
        audio: Audio,
        *,
        window_seconds: float = Windows.window_seconds,
        hop_seconds: float = Windows.hop_seconds,
        threshold: Threshold | None = None,
        yaw: YawLike = 0.0,
    ) -> Track:
        """Where the sound is over time: one answer each hop, from a window of sound.

        Both are rounded to whole frames, and the window to whole hops. What counts as heard is
        relative to the peak and the noise of the whole recording. `yaw` as for `localize`.
        """
        windows = Windows(window_seconds, hop_seconds, threshold, yaw)
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
        yaw: YawLike = 0.0,
    ) -> Track:
        """The track of `localize_frames` for a file, of which only blocks are held in memory."""
        windows = Windows(window_seconds, hop_seconds, threshold, yaw)
        return track(self, FileRecording(path, channels), windows)

    def localizer(
        self,
        *,
        rate: int | None = None,
        memory_seconds: float | None = None,
        threshold: Threshold | None = None,
        yaw: YawLike | None = None,
    ) -> Localizer:
        """A `Localizer` of a live stream at `rate`; with a memory, it follows a moving sound.

        `yaw` as for `localize`, where it is known beforehand; else it may come with each block.
        """
        return Localizer(
            self, rate=rate, memory_seconds=memory_seconds, threshold=threshold, yaw=yaw
        )

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
        dry: bool = False,
    ) -> Scene:
        """The sources of a recording: where each is, and each by itself.

        With `n_sources` None their number is found out. The sounds add up to the mixture, at its
        own rate unless another `rate` (Hz) is asked for. With `dry` each has less of the room's
        late reverberation, and they do not add up; where nothing is reverberant a warning says so.
        """
        how = Separating(n_sources, rendering, threshold or Threshold(), rate, dry)
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
        dry: bool = False,
        progress: Progress | None = None,
    ) -> tuple[FoundScene, list[Path]]:
        """The sources of a file of any length, written to a folder, in bounded memory.

        The files (party_source1.wav, …) have the recording's rate, or the `rate` (Hz) that is asked
        for. They appear when all are complete, or not at all. `dry` is that of `separate`.
        `progress(done, total)` is called as the work goes on.
        """
        how = Separating(n_sources, rendering, threshold or Threshold(), rate, dry)
        recording = FileRecording(path, channels)
        return separate_file(self.separator, recording, folder, how, progress=progress)

    def live(
        self,
        *,
        rate: int | None = None,
        low_delay: bool = False,
        max_sources: int = 4,
        yaw: YawLike | None = None,
    ) -> Live:
        """A `Live` stream at `rate`: several sources, followed and separated as they sound.

        Sounds come out 112 ms after they went in; with `low_delay` 24 ms, in rooms less
        well separated.
        `yaw` as for `localizer`.
        """
        from earatlas.streaming.stream import Live

        return Live(
            self.separator, rate=rate, low_delay=low_delay, max_sources=max_sources, yaw=yaw
        )

    # --- its file ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write one file; `load` gives back every bit."""
        return write_container(path, "atlas", _VERSION, *self._contents())

    @cached_property
    def digest(self) -> str:
        """A hash of all that was learned: the same for the same atlas, in memory or in a file."""
        return container_digest("atlas", _VERSION, *self._contents())

    def _contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What the file holds, as JSON values and arrays."""
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
        return about, arrays

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, now or in an earlier version; anything else is an InputError."""
        if Path(path).suffix.lower() in {".sofa", ".csv"} and Path(path).is_file():
            raise InputError(
                f"atlas must be a file that `earatlas learn` wrote, got the head '{path}'. "
                f"Learn it first: earatlas learn {path} -o {Path(path).stem}.atlas."
            )
        if Path(path).suffix.lower() in _SOUNDS and Path(path).is_file():
            raise InputError(
                f"atlas must be a file that `earatlas learn` wrote, got the sound '{path}'. "
                "The atlas comes first, recordings after it."
            )
        about, arrays = read_container(path, "atlas", _VERSION)
        try:
            # Version 1 has coarser models too, scale0 … ; the last is the one that is used.
            prefix = f"scale{_scales(about['scales']) - 1}." if "scales" in about else ""
            model = _model(space_from_dict(about["space"]), arrays, prefix)
            calibration = _calibration(about["calibration"], arrays.get("frame_noise"))
            accuracy = None if about["accuracy"] is None else Accuracy(**about["accuracy"])
            layout = CueLayout.from_dict(about["layout"])
            rooms = None
            if about.get("rooms") is not None:
                rooms = RoomHearing.from_arrays(model.space, arrays, about["rooms"])
            atlas = cls(model, layout, calibration, accuracy, about["about"], rooms)
            _check_parts(atlas)
            _check_use(atlas, arrays, about.get("scales", 0))
        except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"atlas must be a file that earatlas wrote, got '{path}', which cannot be used "
                f"({brief(str(error))}). Learn the head again."
            ) from error
        return atlas


def _scales(count: object) -> int:
    if not isinstance(count, int) or not 1 <= count <= 64:
        raise ValueError(f"it has {brief(str(count), 20)} scales")
    return count


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
    model, layout = atlas.model, atlas.layout
    good = (
        _is_described(atlas.about)
        and len(model.weights) > 0
        and model.b.shape[1] == layout.n_cues
        and all((np.abs(getattr(model, name)) < _LARGEST).all() for name in MODEL_ARRAYS)
        and all((getattr(model, name) > 0).all() for name in ("weights", "noise", "spread"))
        and math.isclose(model.weights.sum(), 1.0, abs_tol=1e-6)
        and _is_solvable(model)
        # Beyond, a grid of the space or the frames of a second fill the memory.
        and layout.hop * _MOST_FRAMES >= layout.rate
        and np.abs(getattr(model.space, "bounds", 0)).max() <= _MOST_DEGREES
        and np.abs(getattr(model.space, "elevations", 0)).max() <= _MOST_DEGREES
        and (atlas.accuracy is None or _are_numbers(*asdict(atlas.accuracy).values()))
        and _is_possible(atlas.calibration, layout.n_cues)
    )
    if not good:
        raise ValueError("its parts do not fit each other")


def _is_solvable(model: PPAM) -> bool:
    """Whether directions can be found from cues in 16 digits: 3e7 is what a learned head has."""
    widths = np.linalg.eigvalsh(model.gammas)  # of their lower halves
    turned = model.gammas.swapaxes(1, 2)
    sharpness = (model.A**2 / (model.noise * model.spread)[..., None]).sum(axis=1)
    shared = (model.latent**2 / model.noise[:, None]).sum()  # beyond, I + BᵀΣ⁻¹B is singular
    return bool(
        np.allclose(model.gammas, turned, atol=1e-6 * widths.max())
        and widths.min() > 0
        and sharpness.max() * widths.max() < _SHARPEST
        and shared < _SHARPEST
    )


def _is_described(about: dict[str, Any]) -> bool:
    """Whether what is said of an atlas is what learning says: words are words, numbers numbers."""
    words = (about.get(name, "") for name in ("licence", "provenance", "coverage"))
    counts = (about.get(name, 0) for name in ("directions", "left_out", "seed"))
    return (
        isinstance(about.get("head"), str)
        and all(isinstance(word, str) for word in words)
        and all(isinstance(count, int) for count in counts)
        and isinstance(about.get("spacing_degrees", 0), int | float)
    )


def _is_possible(calibration: Calibration, cues: int) -> bool:
    widths, shares, noise = calibration.widths, calibration.shares, calibration.frame_noise
    return (
        len(widths) == len(shares) > 0
        and all(0 <= width <= _MOST_DEGREES for width in widths)
        and all(0 <= share < _LARGEST for share in shares)
        and sum(shares) > 0
        and 0 < calibration.temperature < _LARGEST
        and calibration.misfit > 0
        and 0 < calibration.frame_share < _LARGEST
        and 0 <= calibration.prior_frames < _LARGEST
        and (noise is None or (noise.shape == (cues,) and bool((noise >= 0).all())))
        and (noise is None or bool((noise < _LARGEST).all()))
    )


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _check_use(atlas: Atlas, arrays: dict[str, Array], scales: int) -> None:
    """Raise ValueError for arrays that nothing reads: what they are for is not known.

    Version 1 has those of the coarser models.
    """
    read = {*MODEL_ARRAYS, "frame_noise"}
    read |= {f"scale{scale}.{name}" for scale in range(scales) for name in MODEL_ARRAYS}
    if atlas.rooms is not None:
        read |= atlas.rooms.to_arrays().keys()
    if unused := arrays.keys() - read:
        raise ValueError(f"it holds {len(unused)} arrays that are not used")


def learn(
    head: Head,
    *,
    space: Space | None = None,
    components: int | None = None,
    latent: int | None = None,
    constrained: bool = True,
    layout: CueLayout | None = None,
    rooms: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Atlas:
    """Learn a head: its charts, held-out errors, calibration, and what it needs in rooms.

    `space` is the head's own (sphere, or circle for one elevation) unless given; directions that
    it does not have are left out. `components` is the number of charts K, one for ten directions
    unless given. Without `rooms`, or of a head whose responses have a room's echoes, the atlas is
    for the open, or for that room. `progress(done, total)` is called as the work goes on.
    """
    with one_thread_each():
        learned = learn_head(
            head, space=space, components=components, latent=latent, constrained=constrained,
            layout=layout, rooms=rooms, seed=seed, progress=progress,
        )  # fmt: skip
    return Atlas(**field_values(learned))


def example_atlas() -> Atlas:
    """Load the atlas of the simulated head that ships with the package.

    Use it to try the package without a head of your own, and in examples. It was learned from
    `simulated_head` on a grid over the whole sphere.

    Returns
    -------
    Atlas
        The atlas, ready for anechoic and reverberant recordings.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.example_atlas()
    >>> atlas.space
    Sphere()
    """
    return Atlas.load(EXAMPLE_ATLAS)
