"""Scenes with known truth: dry sounds placed around a head, heard by its two ears.

In: mono sounds and directions of a head, in the open or in a room. Out: a `SimulatedScene`, the
mixture with each source's own image and the noise beside it:

    mixture = sum_m images[m] + noise

    s_m    (n_m,)      dry sounds
    x_m    (2,)        direction of source m, one of the head's measured directions; or between
                       them, or a way (`routes`)
    images (M, 2, n)   what each source alone puts into both ears
    early  (M, 2, n)   of these, direct sound and the reflections of the first 50 ms: what helps to
                       understand a voice in a room, while the rest blurs it
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import EaratlasWarning, InputError
from earatlas.features.audio import Audio
from earatlas.files import unwritable, written_together
from earatlas.hrtf.head import Head
from earatlas.simulation.image_source import Room
from earatlas.simulation.placement import Placed, placed, wishes
from earatlas.simulation.trajectories import Trajectory
from earatlas.types import Array

__all__ = [
    "SimulatedScene",
    "SceneSettings",
    "overlap_share",
    "read_scene_file",
    "render_scene",
    "starts_for_overlap",
]

_LARGEST_FILE = 1 << 20  # bytes of a scene.json; `write` needs some 200 a source
_PEAK = 0.5  # of full scale: the loudest sample of a mixture
_LOWEST_HERTZ = 20.0
_LEAST_AUDIBLE = 1e-6  # of a sound's energy, above that: else it is rounding
_FILES = ("file", "early_file")  # of a source in scene.json
_MOST_DB = 200.0  # beyond this the weaker sound drowns in the rounding of the stronger one


@dataclass(frozen=True)
class SceneSettings:
    """How sources are put together: levels, noise, and when each one starts."""

    levels_db: tuple[float, ...] = ()  # of each source, both ears' mean; empty: all equal
    snr_db: float = 60.0  # all sources over white noise, independent in the two ears
    overlap: float | None = None  # share of the time with two or more sources; None: all start at 0
    distance_metres: float = 1.5  # from the head, in a room
    seed: int = 0  # of the noise
    between: bool = False  # exactly where sources are wished, not at the nearest measured direction

    def __post_init__(self) -> None:
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise InputError(
                f"overlap must be between 0 and 1, got {self.overlap}. The paper has 0.6."
            )
        if not self.snr_db >= -_MOST_DB:
            raise InputError(
                f"snr_db must be at least {-_MOST_DB:g}, got {self.snr_db}. "
                "Give dB, or inf for no noise."
            )
        if not all(abs(level) <= _MOST_DB for level in self.levels_db):
            raise InputError(
                f"levels_db must be numbers within ±{_MOST_DB:g}, got {self.levels_db}. "
                "Give dB; 0 for all is equal levels."
            )
        if not 0 < self.distance_metres < np.inf:
            raise InputError(
                f"distance_metres must be positive, got {self.distance_metres}. Such as 1.5."
            )
        if self.seed < 0:
            raise InputError(f"seed must be 0 or more, got {self.seed}. Any whole number will do.")


@dataclass(frozen=True, eq=False)
class SimulatedScene:
    """mixture = sum_m images[m] + noise, and where everything is."""

    mixture: Audio
    images: Array  # (M, 2, n)
    early: Array  # (M, 2, n) the first 50 ms of each response; in the open, the images themselves
    noise: Array  # (2, n)
    directions: Array  # (M, 2) degrees, those that were used; of a way, half-way through its sound
    starts_seconds: Array  # (M,)
    names: tuple[str, ...]  # (M,)
    trajectories: tuple[Trajectory | None, ...]  # (M,) of the sources that move
    settings: dict[str, Any] = field(default_factory=dict)  # JSON values

    def __repr__(self) -> str:
        places = ", ".join(
            f"{name} at ({a:.0f}, {e:.0f})"
            for name, (a, e) in zip(self.names, self.directions, strict=True)
        )
        return f"SimulatedScene({self.mixture.seconds:.2f} s, {places} degrees)"

    def image(self, m: int) -> Audio:
        """What source m alone puts into both ears."""
        return Audio(self.images[m], self.mixture.rate)

    def directions_at(self, seconds: ArrayLike) -> Array:
        """Where each source is at times (T,): (M, T, 2) degrees."""
        times = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        return np.stack(
            [
                np.repeat(direction[None], len(times), axis=0)
                if trajectory is None
                else trajectory.at(times)
                for direction, trajectory in zip(self.directions, self.trajectories, strict=True)
            ]
        )

    @property
    def is_reverberant(self) -> bool:
        """Whether there is any sound later than the early images."""
        return self.early is not self.images

    def to_dict(self) -> dict[str, Any]:
        """The truth as JSON values: what `write` puts into scene.json."""
        sources = [
            {
                "name": name,
                "file": _image_file(m, name),
                **({"early_file": _early_file(m, name)} if self.is_reverberant else {}),
                "direction": [round(float(v), 4) for v in direction],
                "start_seconds": round(float(start), 4),
                **({} if trajectory is None else {"path": trajectory.to_list()}),
            }
            for m, (name, direction, start, trajectory) in enumerate(
                zip(
                    self.names, self.directions, self.starts_seconds, self.trajectories, strict=True
                )
            )
        ]
        return {
            "mixture": "mixture.wav",
            "rate": self.mixture.rate,
            "seconds": round(self.mixture.seconds, 4),
            "sources": sources,
            **self.settings,
        }

    def write(self, folder: str | Path) -> list[Path]:
        """Write mixture.wav, an image a source, noise.wav and scene.json: all of them or none.

        Where there is reverberation, an early image a source, too.
        A scene that was in the folder before is replaced, its images with it; other files stay.
        """
        folder = Path(folder)
        sounds = {"mixture.wav": self.mixture, "noise.wav": Audio(self.noise, self.mixture.rate)}
        for m, name in enumerate(self.names):
            sounds[_image_file(m, name)] = self.image(m)
            if self.is_reverberant:
                sounds[_early_file(m, name)] = Audio(self.early[m], self.mixture.rate)
        before = _images_of_scene(folder / "scene.json")
        try:
            with written_together(folder, instead_of=before) as new:
                for file, sound in sounds.items():
                    sound.write(new / file)
                (new / "scene.json").write_text(json.dumps(self.to_dict(), indent=2) + "\n")
            return sorted(folder / file for file in (*sounds, "scene.json"))
        except OSError as error:
            raise unwritable(folder, error) from error


def read_scene_file(path: Path) -> Any:
    """What a scene.json holds; a ValueError for what is none, however deep or large it is."""
    # A pipe would never begin, a device never end.
    if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
        raise ValueError
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError from error


def _images_of_scene(truth: Path) -> set[str]:
    """Names of the image files that a scene.json names; none if it is no such file."""
    try:
        sources = read_scene_file(truth)["sources"]
        files = [Path(source[key]) for source in sources for key in _FILES if key in source]
    except (OSError, ValueError, LookupError, TypeError):
        return set()
    # A file from elsewhere may name anything: only plain image names are taken from it.
    names = {f.name for f in files if f.parent == Path() and f.suffix == ".wav"}
    return {name for name in names if name.startswith(("image", "early"))}


def _image_file(m: int, name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    return f"image{m + 1}_{safe}.wav"


def _early_file(m: int, name: str) -> str:
    return _image_file(m, name).replace("image", "early", 1)


def overlap_share(starts: ArrayLike, lengths: ArrayLike) -> float:
    """Share of the time from first start to last end in which two or more sounds are on."""
    together, total = _overlap(np.asarray(starts, dtype=np.float64), np.asarray(lengths))
    return together / total


def _overlap(begin: Array, lengths: Array) -> tuple[float, float]:
    """Time with two or more sounds, and time from first start to last end."""
    end = begin + lengths
    edges = np.unique(np.concatenate([begin, end]))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    on = ((begin[:, None] <= middle) & (middle < end[:, None])).sum(axis=0)
    return float(width[on >= 2].sum()), float(width.sum())


def starts_for_overlap(lengths: ArrayLike, overlap: float) -> Array:
    """Starts (M,) of sounds, each later than the last by one common step, with that overlap share.

    Of several steps the smallest is taken, and the one that comes nearest (with a warning) where
    none has that share, as for a short sound beside a long one.
    """
    lengths = np.asarray(lengths, dtype=np.float64)
    order = np.arange(float(len(lengths)))
    # The steps at which a start meets an end, or two ends meet. In between, the time together and
    # the total are linear in the step: together = overlap * total is solved exactly.
    pairs = list(combinations(range(len(lengths)), 2))
    meet = [lengths[k] / (m - k) for k, m in pairs]
    meet += [(lengths[k] - lengths[m]) / (m - k) for k, m in pairs]
    steps = np.unique(np.maximum([0.0, *meet], 0.0))
    for (a, (on_a, all_a)), (b, (on_b, all_b)) in pairwise(
        [(step, _overlap(order * step, lengths)) for step in steps]
    ):
        excess_a, excess_b = on_a - overlap * all_a, on_b - overlap * all_b
        if excess_a * excess_b < 0:
            steps = np.append(steps, a + (b - a) * excess_a / (excess_a - excess_b))
    steps.sort()
    shares = np.array([overlap_share(order * step, lengths) for step in steps])
    best = int(np.argmin(np.round(np.abs(shares - overlap), 12)))  # the first of those that tie
    if abs(shares[best] - overlap) > 0.02:
        warnings.warn(
            f"overlap must be one that these lengths allow, got {overlap:g}, reached "
            f"{shares[best]:.2f}. Choose sounds of more equal lengths.",
            EaratlasWarning,
            stacklevel=2,
        )
    return order * float(steps[best])


def _check_sounds(sounds: Sequence[ArrayLike], **lists: Sequence[object] | Array) -> list[Array]:
    """The sounds as arrays; the lists have one entry a sound, or none at all."""
    arrays = [np.asarray(s, dtype=np.float64) for s in sounds]
    for name, values in lists.items():
        if len(values) not in (0, len(arrays)):
            raise InputError(
                f"{name} must be as many as sounds, got {len(values)} and {len(arrays)}. "
                "Give one a sound."
            )
    for m, s in enumerate(arrays):
        if s.ndim != 1 or not len(s) or not np.isfinite(s).all() or not s.any():
            raise InputError(
                f"sounds must be mono, finite and not silent, got {s.shape} for sound {m}. "
                "Read them with read_mono."
            )
    return arrays


def render_scene(
    head: Head,
    sounds: Sequence[ArrayLike],
    directions: ArrayLike | Sequence[Any],
    *,
    rate: int = 16_000,
    settings: SceneSettings | None = None,
    room: Room | None = None,
    names: Sequence[str] | None = None,
) -> SimulatedScene:
    """Place mono sounds (at `rate`) at the head's directions nearest to the wished ones.

    With `staging.between` they are placed at the wished directions themselves. A `Trajectory` in the
    place of a direction moves a source: responses between the measured ones are interpolated.

    Sounds are high-passed at 20 Hz first: an offset that nobody hears would set levels, and in a
    room all of its reflections add up. Levels are those of the images, both ears together, while
    the sound is on: with equal levels no source is stronger for standing nearer to an ear. In a
    `room`, the wall reflections come from their own directions through the same head.
    """
    if not (rate > 0 and float(rate).is_integer()):
        raise InputError(f"rate must be a positive whole number of Hz, got {rate}. Such as 16000.")
    settings = settings or SceneSettings()
    wished = wishes(directions)
    dry = _check_sounds(sounds, directions=wished, levels_db=settings.levels_db, names=names or ())
    sources = placed(
        head, wished, rate=int(rate), room=room, distance_metres=settings.distance_metres,
        between=settings.between,
    )  # fmt: skip
    lengths = np.array([len(s) for s in dry])
    starts = np.zeros(len(dry))
    if settings.overlap is not None:
        starts = np.round(starts_for_overlap(lengths, settings.overlap))
    levels = np.array(settings.levels_db or [0.0] * len(dry))
    audible = _heard(dry, rate)
    images = _images(sources, audible, starts)
    gains = 10 ** (levels / 20) / np.sqrt((images**2).sum(axis=(1, 2)) / lengths)
    images *= gains[:, None, None]
    noise = _noise(images, settings)
    scale = _PEAK / np.abs(images.sum(axis=0) + noise).max()
    images, noise = images * scale, noise * scale
    early, first = images, [source.early(int(rate)) for source in sources]
    if any(one is not all_of_it for one, all_of_it in zip(first, sources, strict=True)):
        early = (scale * gains)[:, None, None] * _images(first, audible, starts)
    return SimulatedScene(
        mixture=Audio(images.sum(axis=0) + noise, rate),
        images=images,
        early=early,
        noise=noise,
        directions=np.stack(
            [
                source.middle(begin / rate, (begin + length) / rate)
                for source, begin, length in zip(sources, starts, lengths, strict=True)
            ]
        ),
        starts_seconds=starts / rate,
        names=tuple(names or (f"source{m + 1}" for m in range(len(dry)))),
        trajectories=tuple(wish if isinstance(wish, Trajectory) else None for wish in wished),
        settings={
            "head": head.name,
            "snr_db": settings.snr_db if np.isfinite(settings.snr_db) else None,
            "levels_db": levels.tolist(),
            "overlap": round(overlap_share(starts, lengths), 4),
            "room": None if room is None else _about_room(room, settings.distance_metres),
            "seed": settings.seed,
        },
    )


def _images(sources: Sequence[Placed], dry: Sequence[Array], starts: Array) -> Array:
    """What each dry sound puts into both ears, from its start on: (M, 2, n)."""
    begins = [int(start) for start in starts]
    parts = [s.image(x, begin) for s, x, begin in zip(sources, dry, begins, strict=True)]
    images = np.zeros((len(parts), 2, max(map(add, begins, (p.shape[1] for p in parts)))))
    for image, part, begin in zip(images, parts, begins, strict=True):
        image[:, begin : begin + part.shape[1]] = part
    return images


def _heard(dry: Sequence[Array], rate: float) -> list[Array]:
    """The sounds without what is below 20 Hz, or an InputError for one that is nothing else."""
    audible = [_audible(sound, rate) for sound in dry]
    for m, (sound, heard) in enumerate(zip(dry, audible, strict=True)):
        if (heard**2).sum() < _LEAST_AUDIBLE * (sound**2).sum():
            raise InputError(
                f"sounds must hold something above {_LOWEST_HERTZ:g} Hz, got hardly anything in "
                f"sound {m}. Choose one that can be heard."
            )
    return audible


def _noise(images: Array, settings: SceneSettings) -> Array:
    """White noise (2, n), independent in the two ears, at the wished level below all sources."""
    noise = np.random.default_rng(settings.seed).normal(size=images.shape[1:])
    power = float(np.mean(images.sum(axis=0) ** 2))
    noise *= np.sqrt(power / np.mean(noise**2)) * 10 ** (-settings.snr_db / 20)
    return noise


def _about_room(room: Room, distance_metres: float) -> dict[str, Any]:
    return {
        "size_metres": list(room.size_metres),
        "t60_seconds": room.t60_seconds,
        "listener_metres": list(room.listener_metres),
        "distance_metres": distance_metres,
    }


def _audible(sound: Array, rate: float) -> Array:
    """Sound (n,) without what is below 20 Hz, begun as if it had always been there.

    A talker with an offset of 0.01 had 98 % of the image's energy below 5 Hz in a room of T60
    0.3 s, and its level was set by that.
    """
    from scipy.signal import butter, sosfilt, sosfilt_zi

    sections = butter(2, _LOWEST_HERTZ, "high", fs=rate, output="sos")
    audible: Array = sosfilt(sections, sound, zi=sosfilt_zi(sections) * sound[0])[0]
    return audible
