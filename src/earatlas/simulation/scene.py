"""Binaural scenes with known ground truth: dry sounds placed around a head.

Input: mono sounds and directions of a head, anechoic or in a room. Output: a `SimulatedScene`, the
mixture with the binaural image of each source and the noise:

    mixture = sum_m images[m] + noise

    s_m    (n_m,)      dry sounds
    x_m    (2,)        direction of source m, measured or interpolated, or a trajectory
    images (M, 2, n)   image of each source: its signal at both ears
    early  (M, 2, n)   image of the direct sound and the reflections of the first 50 ms, which
                       support intelligibility; later reverberation reduces it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError, check_path
from earatlas.features.audio import Audio
from earatlas.files import atomic_write_all, unwritable_folder
from earatlas.hrtf.head import Head
from earatlas.simulation.image_source import Room
from earatlas.simulation.overlap import overlap_share, starts_for_overlap
from earatlas.simulation.placement import check_directions, place_sources
from earatlas.simulation.rendering import PEAK, high_pass_sounds, source_images, white_noise
from earatlas.simulation.scene_settings import SceneSettings
from earatlas.simulation.trajectories import Trajectory
from earatlas.types import Array

__all__ = ["SceneSettings", "SimulatedScene", "read_scene_file", "render_scene"]

_FILE_KEYS = ("file", "early_file")  # keys of the file names of a source in scene.json


@dataclass(frozen=True, eq=False)
class SimulatedScene:
    """A mixture with its ground truth: mixture = sum_m images[m] + noise.

    Attributes
    ----------
    mixture : Audio
        Sound at both ears.
    images : ndarray of shape (M, 2, n)
        Sound of each source alone at both ears.
    early : ndarray of shape (M, 2, n)
        Images without reflections after 50 ms. In an anechoic scene, the images themselves.
    noise : ndarray of shape (2, n)
        White noise, independent in the two ears.
    directions : ndarray of shape (M, 2)
        Directions in degrees that were used. For a moving source, at the midpoint of its sound.
    starts_seconds : ndarray of shape (M,)
        Start of each source.
    names : tuple of str
        Name of each source.
    trajectories : tuple of Trajectory or None
        Trajectory of each moving source, None for a static one.
    settings : dict
        Head, levels, noise, overlap, room and seed as JSON values.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[40, 0], [-30, 0]])
    >>> sounds = [ea.synthetic_speech(0.5, seed=m) for m in range(2)]
    >>> scene = ea.render_scene(head, sounds, head.directions, names=["Ada", "Hugh"])
    >>> scene
    SimulatedScene(0.51 s, Ada at (40, 0), Hugh at (-30, 0) degrees)

    """

    mixture: Audio
    images: Array
    early: Array
    noise: Array
    directions: Array
    starts_seconds: Array
    names: tuple[str, ...]
    trajectories: tuple[Trajectory | None, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        sources = ", ".join(
            f"{name} at ({a:.0f}, {e:.0f})"
            for name, (a, e) in zip(self.names, self.directions, strict=True)
        )
        return f"SimulatedScene({self.mixture.seconds:.2f} s, {sources} degrees)"

    def image(self, m: int) -> Audio:
        """Return the sound of one source alone at both ears.

        Parameters
        ----------
        m : int
            Index of the source.

        Returns
        -------
        Audio
            Image of the source.

        """
        return Audio(self.images[m], self.mixture.rate)

    def directions_at(self, seconds: ArrayLike) -> Array:
        """Return the directions of all sources at given times.

        Parameters
        ----------
        seconds : array_like of shape (T,)
            Times since the beginning of the scene.

        Returns
        -------
        ndarray of shape (M, T, 2)
            Azimuth and elevation in degrees.

        """
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
        """Whether the scene has reflections later than 50 ms."""
        return self.early is not self.images

    def to_dict(self) -> dict[str, Any]:
        """Return the ground truth as JSON values.

        Returns
        -------
        dict
            Content of the scene.json that `write` stores.

        """
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
        """Write the scene to a folder: either all files are written or none.

        The files are mixture.wav, noise.wav, scene.json and one image per source; a reverberant
        scene also has one early image per source. A previous scene in the folder is replaced
        together with its images; other files stay.

        Parameters
        ----------
        folder : str or Path
            Folder, which is created if necessary.

        Returns
        -------
        list of Path
            Files that were written.

        Raises
        ------
        InputError
            If the folder cannot be written to.

        """
        folder = check_path(folder)
        sounds = {"mixture.wav": self.mixture, "noise.wav": Audio(self.noise, self.mixture.rate)}
        for m, name in enumerate(self.names):
            sounds[_image_file(m, name)] = self.image(m)
            if self.is_reverberant:
                sounds[_early_file(m, name)] = Audio(self.early[m], self.mixture.rate)
        previous = _images_of_scene(folder / "scene.json")
        try:
            with atomic_write_all(folder, replacing=previous) as new:
                for file, sound in sounds.items():
                    sound.write(new / file)
                (new / "scene.json").write_text(json.dumps(self.to_dict(), indent=2) + "\n")
            return sorted(folder / file for file in (*sounds, "scene.json"))
        except OSError as error:
            raise unwritable_folder(folder, error) from error


def read_scene_file(path: Path) -> Any:
    """Return the content of a scene.json; raise a ValueError if it is invalid or too large."""
    # Reading a pipe could block forever, and a device could be endless.
    # `write` needs about 200 bytes per source, so 1 MiB is enough for any scene.
    if not path.is_file() or path.stat().st_size > 1 << 20:
        raise ValueError
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError from error


def _images_of_scene(path: Path) -> set[str]:
    """Return the image files that a scene.json lists; none if it cannot be read."""
    try:
        sources = read_scene_file(path)["sources"]
        files = [Path(source[key]) for source in sources for key in _FILE_KEYS if key in source]
    except (OSError, ValueError, LookupError, TypeError):
        return set()
    # The file is untrusted and may list any path: only plain image names are accepted.
    names = {f.name for f in files if f.parent == Path() and f.suffix == ".wav"}
    return {name for name in names if name.startswith(("image", "early"))}


def _image_file(m: int, name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    return f"image{m + 1}_{safe}.wav"


def _early_file(m: int, name: str) -> str:
    return _image_file(m, name).replace("image", "early", 1)


def _check_sounds(sounds: Sequence[ArrayLike], **lists: Sequence[object] | Array) -> list[Array]:
    """Return the sounds as arrays; check that each list has one entry per sound, or none."""
    if isinstance(sounds, np.ndarray) and sounds.ndim < 2:
        raise InputError("sounds must be a list of mono arrays, got one array. Pass [sound].")
    arrays = [np.asarray(s, dtype=np.float64) for s in sounds]
    for name, values in lists.items():
        if len(values) not in (0, len(arrays)):
            raise InputError(
                f"{name} must be as many as sounds, got {len(values)} and {len(arrays)}. "
                "Give one per sound."
            )
    for m, s in enumerate(arrays):
        if s.ndim != 1 or not len(s) or not np.isfinite(s).all() or not s.any():
            raise InputError(
                f"sounds must be mono, finite and not silent, got shape {s.shape} for sound {m}. "
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
    """Render a binaural scene from dry mono sounds.

    The sounds are high-passed at 20 Hz first, because an inaudible offset would otherwise determine
    their levels, and in a room all of its reflections would add up. Levels are those of the images,
    averaged over both ears while the sound is on: with equal levels, no source is louder because it
    is closer to an ear. In a `room`, reflections arrive from their own directions through the same
    head.

    Parameters
    ----------
    head : Head
        Head with measured or simulated impulse responses.
    sounds : sequence of array_like of shape (n_m,)
        Dry mono sounds at `rate`.
    directions : array_like of shape (M, 2), or sequence of directions and trajectories
        Azimuth and elevation of each source in degrees, or a `Trajectory` for a moving source. A
        static source is placed in the nearest measured direction unless `settings.interpolate` is
        set.
    rate : int, default 16000
        Samples per second of the sounds and of the scene.
    settings : SceneSettings, optional
        Levels, noise and timing.
    room : Room, optional
        Shoebox room. None: the scene is anechoic, or has the reverberation of the head's responses.
    names : sequence of str, optional
        Names of the sources, by default source1, source2, ….

    Returns
    -------
    SimulatedScene
        The mixture, with a peak of 0.5, and its ground truth.

    Raises
    ------
    InputError
        If sounds are silent or not mono, if a direction is far from all measured ones, or if a
        moving source is requested in a room.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[40, 0], [-30, 0]])
    >>> sounds = [ea.synthetic_speech(0.5, seed=m) for m in range(2)]
    >>> scene = ea.render_scene(head, sounds, [[40, 0], [-30, 0]])
    >>> scene.mixture.samples.shape == scene.images.shape[1:]
    True

    """
    if not (rate > 0 and float(rate).is_integer()):
        raise InputError(f"rate must be a positive whole number of Hz, got {rate}. Give 16000.")
    settings = settings or SceneSettings()
    head.check_directions("render sound")  # before directions that are meant as positions
    requested = check_directions(directions)
    dry = _check_sounds(
        sounds, directions=requested, levels_db=settings.levels_db, names=names or ()
    )
    sources = place_sources(
        head, requested, rate=int(rate), room=room, distance_metres=settings.distance_metres,
        interpolate=settings.interpolate,
    )  # fmt: skip
    lengths = np.array([len(s) for s in dry])
    starts = np.zeros(len(dry))
    if settings.overlap is not None:
        starts = np.round(starts_for_overlap(lengths, settings.overlap))
    levels = np.array(settings.levels_db or [0.0] * len(dry))
    audible = high_pass_sounds(dry, rate)
    images = source_images(sources, audible, starts)
    gains = 10 ** (levels / 20) / np.sqrt((images**2).sum(axis=(1, 2)) / lengths)
    images *= gains[:, None, None]
    noise = white_noise(images, settings)
    scale = PEAK / np.abs(images.sum(axis=0) + noise).max()
    images, noise = images * scale, noise * scale
    early, early_sources = images, [source.early(int(rate)) for source in sources]
    if any(part is not whole for part, whole in zip(early_sources, sources, strict=True)):
        early = (scale * gains)[:, None, None] * source_images(early_sources, audible, starts)
    return SimulatedScene(
        mixture=Audio(images.sum(axis=0) + noise, rate),
        images=images,
        early=early,
        noise=noise,
        directions=np.stack(
            [
                source.direction_between(begin / rate, (begin + length) / rate)
                for source, begin, length in zip(sources, starts, lengths, strict=True)
            ]
        ),
        starts_seconds=starts / rate,
        names=tuple(names or (f"source{m + 1}" for m in range(len(dry)))),
        trajectories=tuple(d if isinstance(d, Trajectory) else None for d in requested),
        settings={
            "head": head.name,
            "snr_db": settings.snr_db if np.isfinite(settings.snr_db) else None,
            "levels_db": levels.tolist(),
            "overlap": round(overlap_share(starts, lengths), 4),
            "room": None if room is None else _room_to_dict(room, settings.distance_metres),
            "seed": settings.seed,
        },
    )


def _room_to_dict(room: Room, distance_metres: float) -> dict[str, Any]:
    """Return a room as JSON values."""
    return {
        "size_metres": list(room.size_metres),
        "t60_seconds": room.t60_seconds,
        "listener_metres": list(room.listener_metres),
        "distance_metres": distance_metres,
    }
