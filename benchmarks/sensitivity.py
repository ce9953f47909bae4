"""Sensitivity to settings: one constant changed at a time, on mixtures that no other table uses.

    python benchmarks/sensitivity.py [--count 24] [--only NAME …]

ku100, talkers at directions that were not learned: two anechoic, two in a simulated room (T60
0.3 s, half as many mixtures), three anechoic (half as many). Each cell: mean SDR in dB, mean SDR of
the worst quarter of the mixtures, and mean great-circle error. A row names the constant and its new
value; the first row has the values of the code.
"""

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from protocol import load_head, mixtures, split, within_plane

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.evaluation.score import score
from earatlas.separation.demixing import rendering
from earatlas.separation.separator import Separator

SEED = 71  # used by no other table
OBSERVATION = ("earatlas.separation.separator", "ObservationSettings")
INITIALIZATION = ("earatlas.separation.initialization", "InitializationSettings")
BROAD, NARROW = (65, 1), (5, 1)

# Changes of fields of `SpatialFilterSettings` and of its parts, and of settings of the separation.
FILTER_CHANGES: list[tuple[str, str, Any]] = [
    ("", "window_factor", 2),
    ("", "window_factor", 8),
    ("", "hops_per_window", 4),
    ("demixing", "first_smoothing", (BROAD, NARROW)),
    ("demixing", "first_smoothing", (NARROW,) * 4),
    ("demixing", "second_smoothing", ()),
    ("demixing", "second_smoothing", (NARROW,) * 4),
    ("wiener", "single_source_quantile", 0.01),
    ("wiener", "single_source_quantile", 0.2),
    ("wiener", "diffuse_scale", 4.0),
    ("wiener", "diffuse_scale", 64.0),
    ("wiener", "max_diffuse_to_direct", 0.03),
    ("wiener", "max_hz", 8000.0),
    ("wiener", "mask_uncertainty", 0.02),
    ("wiener", "mask_uncertainty", 0.4),
    ("wiener", "filter_leakage", 0.004),
    ("wiener", "filter_leakage", 0.1),
    ("wiener", "activity_seconds", 1.0),
]
CHANGES: list[tuple[tuple[str, str], str, Any]] = [
    (OBSERVATION, "min_coherence", 0.9),
    (OBSERVATION, "min_coherence", 0.999),
    (OBSERVATION, "min_kept_fraction", 0.2),
    (OBSERVATION, "min_kept_fraction", 0.8),
    (INITIALIZATION, "candidate_sets", 1),
    (INITIALIZATION, "candidate_sets", 4),
    (INITIALIZATION, "trial_iterations", 1),
    (INITIALIZATION, "trial_iterations", 8),
]


@contextmanager
def changed_constant(module: str, name: str, value: object) -> Iterator[None]:
    """Set a constant of the package within a `with` block."""
    package = import_module(module)
    before = getattr(package, name)
    setattr(package, name, value)
    try:
        yield
    finally:
        setattr(package, name, before)


def changed_setting(
    settings: tuple[str, str], name: str, value: object
) -> AbstractContextManager[None]:
    """Set a field of a settings class, given by module and name, within a `with` block."""
    module, class_name = settings
    changed = partial(getattr(import_module(module), class_name), **{name: value})
    return changed_constant(module, class_name, changed)


def changed_filter(part: str, name: str, value: object) -> AbstractContextManager[None]:
    """Set a field of the filter settings, or of one of their parts, within a `with` block."""
    settings = rendering.SpatialFilterSettings()
    change: dict[str, Any] = {name: value}
    if part:
        change = {part: replace(getattr(settings, part), **change)}
    changed = partial(rendering.SpatialFilterSettings, **change)
    return changed_constant(rendering.__name__, "SpatialFilterSettings", changed)


def scenes(count: int) -> tuple[ea.Atlas, dict[str, list[ea.SimulatedScene]]]:
    """Return an atlas and mixtures at directions that were not learned, by column title."""
    head = within_plane(load_head("ku100"))
    training, held_out = split(head, SEED)
    room = ea.Room(t60_seconds=0.3)
    return ea.learn(training, space=ea.Plane(), components=64), {
        "2, anechoic": list(mixtures(held_out, count, 2, seed=SEED)),
        "2, reverberant": list(
            mixtures(held_out, count // 2, 2, seed=SEED, room=room, room_head=head)
        ),
        "3, anechoic": list(mixtures(held_out, count // 2, 3, seed=SEED)),
    }


def evaluate(separator: Separator, scene: ea.SimulatedScene) -> tuple[float, float]:
    """Return the mean SDR in dB and the mean direction error in degrees of one mixture."""
    atlas = separator.head
    assert isinstance(atlas, ea.Atlas)
    separated = atlas.separate(scene.mixture, n_sources=len(scene.images))
    sounds = np.stack([source.audio.samples for source in separated.sources])
    scores = score(scene.images, sounds, scene.mixture.samples)
    errors = direction_errors(scene.directions, separated.directions)
    return scores.quality.mean().sdr_db, errors.mean().great_circle_degrees


def row(atlas: ea.Atlas, sets: dict[str, list[ea.SimulatedScene]]) -> list[str]:
    """Return the cells of one row, evaluated with the present settings."""
    atlas, cells = replace(atlas), []  # a new atlas has a new separator
    for scenes_in_column in sets.values():
        sdr, error = np.array([evaluate(atlas.separator, scene) for scene in scenes_in_column]).T
        worst = np.sort(sdr)[: max(len(sdr) // 4, 1)].mean()
        cells.append(f"{sdr.mean():.1f}, {worst:.1f}, {error.mean():.1f}°")
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--count", type=int, default=24, help="number of mixtures of two anechoic talkers"
    )
    parser.add_argument("--only", nargs="*", help="names of the constants to change; default: all")
    options = parser.parse_args()
    atlas, sets = scenes(options.count)
    header = [f"{name} ({len(scenes_in_column)})" for name, scenes_in_column in sets.items()]
    print(f"| changed | {' | '.join(header)} |\n|{'---|' * (len(header) + 1)}")
    print(f"| nothing | {' | '.join(row(atlas, sets))} |", flush=True)
    changes = [
        (name, value, changed_filter(part, name, value)) for part, name, value in FILTER_CHANGES
    ]
    changes += [(name, value, changed_setting(part, name, value)) for part, name, value in CHANGES]
    for name, value, change in changes:
        if not options.only or name in options.only:
            with change:
                print(f"| `{name}` = {value} | {' | '.join(row(atlas, sets))} |", flush=True)


if __name__ == "__main__":
    main()
