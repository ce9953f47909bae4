"""Artificial separation results for tests of plots and reports; all axes differ in size."""

from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import replace

import numpy as np

import earatlas as ea
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.separation.result import (
    Scene,
    SceneSummary,
    Source,
    SourceSummary,
    SourceTrack,
    SpectrogramSummary,
)

SPACES: tuple[tuple[Space, tuple[tuple[float, ...], ...]], ...] = (
    (ea.Sphere(), ((30, 10), (-150, -40), (175, 80))),
    (ea.Cylinder(), ((30, 10), (-150, -40), (175, 50))),
    (ea.Circle(), ((30, 5), (-150, 5), (179, 5))),
    (ea.Plane(), ((30, 10), (-150, -40), (170, 65))),
    (ea.Plane(((0, 640), (0, 480))), ((100, 50), (600, 400), (650, 20))),
    (ea.Plane(((-90, 90),)), ((30,), (-80,), (95,))),
)


def posterior_at(
    space: Space, place: Sequence[float], *, width: float = 4.0, seed: int = 0
) -> DirectionPosterior:
    """Return three correlated components near a direction; the first has most of the weight."""
    rng = np.random.default_rng(seed)
    L = space.dims
    centres = space.exp(np.tile(np.asarray(place, dtype=float), (3, 1)), np.zeros((3, L)))
    means = np.concatenate([np.zeros((1, L)), rng.normal(scale=3 * width, size=(2, L))])
    root = width * (np.eye(L) + 0.4 * np.tril(rng.normal(size=(3, L, L)), -1))
    return DirectionPosterior(space, centres, np.array([0.9, 0.06, 0.04]), means, root @ root.mT)


def make_source_track(
    place: Sequence[float], *, seconds: float = 0.25, rows: int = 5
) -> SourceTrack:
    """Return the track of a static source that is silent in the second row."""
    active = np.arange(rows) != 1
    directions = np.where(active[:, None], np.asarray(place, dtype=float), np.nan)
    centres = (np.arange(rows) + 0.5) * seconds / rows
    return SourceTrack(
        centres, directions, np.where(active, 6.0, np.nan), -20 - np.arange(float(rows))
    )


def make_scene(
    space: Space | None = None,
    places: Sequence[Sequence[float]] = ((30, 10), (-50, -20)),
    *,
    seconds: float = 0.25,
    rate: int = 16_000,
) -> tuple[Scene, np.ndarray]:
    """Return a scene of noise sources, with 10 % crosstalk, and their images (M, 2, n)."""
    space = ea.Sphere() if space is None else space
    rng = np.random.default_rng(5)
    M, n = len(places), int(seconds * rate)
    gains = 0.02 + 0.08 * rng.random((M, 2, 1))
    images = gains * rng.normal(size=(M, 1, n))
    mixture = images.sum(axis=0)
    separated = images + 0.1 * np.roll(images, 1, axis=0) if M > 1 else images
    F, T = 40, 1 + n // 128
    power = rng.random((M, F, T)) ** 3
    observed = rng.random((F, T)) < 0.7
    masks = np.where(observed, power / power.sum(axis=0), np.nan)
    picture = SpectrogramSummary(
        seconds=np.arange(T) * 128 / rate,
        frequencies_hz=(1.0 + np.arange(F)) * 8000 / F,
        level_db=10 * np.log10(power.sum(axis=0)),
        ild_db=np.where(observed, rng.normal(scale=8, size=(F, T)), np.nan),
        masks=masks,
    )
    sources = tuple(
        Source(
            name=f"source{m + 1}",
            posterior=posterior_at(space, place, seed=m),
            share=1 / M,
            track=make_source_track(place, seconds=seconds),
            audio=ea.Audio(separated[m], rate),
            mask=masks[m].astype(np.float32),
        )
        for m, place in enumerate(places)
    )
    scene = Scene(
        sources=sources,
        spectrogram=picture,
        free_energies=(-90.0, -50.0, -49.5),
        seconds=n / rate,
        rate=rate,
        mixture=ea.Audio(mixture, rate),
    )
    return scene, images


def without_audio(scene: Scene) -> SceneSummary:
    """Return the scene without audio, as after writing it to files."""
    fields = {f.name: getattr(scene, f.name) for f in dataclass_fields(SceneSummary)}
    sources = tuple(
        SourceSummary(s.name, s.posterior, s.share, track=s.track) for s in scene.sources
    )
    return SceneSummary(**{**fields, "sources": sources})


def with_sources(scene: Scene, order: Sequence[int]) -> Scene:
    """Return the scene with its sources in another order, or with fewer of them."""
    picture = replace(scene.spectrogram, masks=scene.spectrogram.masks[list(order)])
    return replace(scene, sources=tuple(scene.sources[m] for m in order), spectrogram=picture)


def two_peaks(
    first: tuple[float, float], second: tuple[float, float], weight: float, width: float
) -> ea.DirectionPosterior:
    """Return a posterior on the sphere with a peak of a given weight, and another one."""
    return ea.DirectionPosterior(
        ea.Sphere(),
        np.array([first, second], dtype=np.float64),
        np.array([weight, 1 - weight]),
        np.zeros((2, 2)),
        np.tile(width**2 * np.eye(2), (2, 1, 1)),
    )
