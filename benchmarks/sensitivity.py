"""Sensitivity to settings: one constant changed at a time, on mixtures that no other table uses.

    python benchmarks/sensitivity.py [--count 24] [--only NAME …]

ku100, talkers at directions that were not learned: two anechoic, two in a simulated room (T60
0.3 s, half as many mixtures), three anechoic (half as many). Each cell: mean SDR in dB, mean SDR of
the worst quarter of the mixtures, and mean great-circle error. A row names the constant and its new
value; the first row has the values of the code.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from protocol import load_head, mixtures, split, within_plane

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.evaluation.score import score
from earatlas.separation.separator import Separator

SEED = 71  # used by no other table
FILTERS = "earatlas.separation.demixing.spatial_filtering"
SEPARATOR = "earatlas.separation.separator"
BROAD, NARROW = (65, 1), (5, 1)

# (module, name, new value)
CHANGES: list[tuple[str, str, Any]] = [
    (FILTERS, "_WINDOW_FACTOR", 2),
    (FILTERS, "_WINDOW_FACTOR", 8),
    (FILTERS, "_HOPS_PER_WINDOW", 4),
    (FILTERS, "_FIRST_SMOOTHING", (BROAD, NARROW)),
    (FILTERS, "_FIRST_SMOOTHING", (NARROW,) * 4),
    (FILTERS, "_SECOND_SMOOTHING", ()),
    (FILTERS, "_SECOND_SMOOTHING", (NARROW,) * 4),
    (FILTERS, "_UNMASKED_DIFFUSE_TO_DIRECT", 3e-4),
    (FILTERS, "_UNMASKED_DIFFUSE_TO_DIRECT", 3e-2),
    (FILTERS, "_SINGLE_SOURCE_QUANTILE", 0.01),
    (FILTERS, "_SINGLE_SOURCE_QUANTILE", 0.2),
    (FILTERS, "_DIFFUSE_SCALE", 4.0),
    (FILTERS, "_DIFFUSE_SCALE", 64.0),
    (FILTERS, "_MAX_DIFFUSE_TO_DIRECT", 0.03),
    (FILTERS, "_DIFFUSE_MAX_HZ", 8000.0),
    (FILTERS, "MASK_UNCERTAINTY", 0.02),
    (FILTERS, "MASK_UNCERTAINTY", 0.4),
    (FILTERS, "FILTER_LEAKAGE", 0.004),
    (FILTERS, "FILTER_LEAKAGE", 0.1),
    (FILTERS, "ACTIVITY_SECONDS", 1.0),
    (SEPARATOR, "_MIN_COHERENCE", 0.9),
    (SEPARATOR, "_MIN_COHERENCE", 0.999),
    (SEPARATOR, "_MIN_KEPT_FRACTION", 0.2),
    (SEPARATOR, "_MIN_KEPT_FRACTION", 0.8),
    (SEPARATOR, "_INITIALIZATIONS", 1),
    (SEPARATOR, "_INITIALIZATIONS", 4),
    (SEPARATOR, "_TRIAL_ITERATIONS", 1),
    (SEPARATOR, "_TRIAL_ITERATIONS", 8),
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
    """Return the cells of one row, evaluated with the present constants."""
    cells = []
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
    for module, name, value in CHANGES:
        if not options.only or name in options.only:
            with changed_constant(module, name, value):
                print(f"| `{name}` = {value} | {' | '.join(row(atlas, sets))} |", flush=True)


if __name__ == "__main__":
    main()
