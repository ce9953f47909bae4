"""What the numbers in the code do: each one changed alone, on mixtures that no table is made of.

    python benchmarks/choices.py [--count 24] [--only NAME …]

Talkers of ku100 from directions that were not learned: two in the open, two in a simulated room
(T60 0.3 s, half as many), three in the open (half as many). Columns: mean SDR in dB and that of
the worst quarter, over all sources of a mixture; mean great-circle error. A row says which number
was changed, and to what; the first row has all as they are in the code.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from protocol import head_of, mixtures, split, within_plane

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.evaluation.score import score
from earatlas.separation.separator import Separator

SEED = 71  # of no table
FILTERS = "earatlas.separation.demixing.spatial_filtering"
FINDING = "earatlas.separation.separator"
BROAD, NARROW = (65, 1), (5, 1)

# (module, name, what it is changed to)
CHOICES: list[tuple[str, str, Any]] = [
    (FILTERS, "_LONGER", 2),
    (FILTERS, "_LONGER", 8),
    (FILTERS, "_HOPS", 4),
    (FILTERS, "_PLAN", (BROAD, NARROW)),
    (FILTERS, "_PLAN", (NARROW,) * 4),
    (FILTERS, "_AGAIN", ()),
    (FILTERS, "_AGAIN", (NARROW,) * 4),
    (FILTERS, "_MORE", 3e-4),
    (FILTERS, "_MORE", 3e-2),
    (FILTERS, "_ALONE", 0.01),
    (FILTERS, "_ALONE", 0.2),
    (FILTERS, "_WIDER", 4.0),
    (FILTERS, "_WIDER", 64.0),
    (FILTERS, "_MOST_SPREAD", 0.03),
    (FILTERS, "_SPREAD_HERTZ", 8000.0),
    (FILTERS, "_DOUBT", 0.02),
    (FILTERS, "_DOUBT", 0.4),
    (FILTERS, "_LEAK", 0.004),
    (FILTERS, "_LEAK", 0.1),
    (FILTERS, "_ACTIVITY_SECONDS", 1.0),
    (FINDING, "_SURE", 0.9),
    (FINDING, "_SURE", 0.999),
    (FINDING, "_SURE_SHARE", 0.2),
    (FINDING, "_SURE_SHARE", 0.8),
    (FINDING, "_STARTS", 1),
    (FINDING, "_STARTS", 4),
    (FINDING, "_TRIAL_STEPS", 1),
    (FINDING, "_TRIAL_STEPS", 8),
]


@contextmanager
def changed(module: str, name: str, value: object) -> Iterator[None]:
    """The package with one of its numbers changed."""
    place = import_module(module)
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


def scenes(count: int) -> tuple[ea.Atlas, dict[str, list[ea.SimulatedScene]]]:
    """A learned head, and mixtures of what it has not learned."""
    head = within_plane(head_of("ku100"))
    known, asked = split(head, SEED)
    room = ea.Room(t60_seconds=0.3)
    return ea.learn(known, space=ea.Plane(), components=64), {
        "2, open": list(mixtures(asked, count, 2, seed=SEED)),
        "2, room": list(mixtures(asked, count // 2, 2, seed=SEED, room=room, around=head)),
        "3, open": list(mixtures(asked, count // 2, 3, seed=SEED)),
    }


def measured(separator: Separator, scene: ea.SimulatedScene) -> tuple[float, float]:
    """Mean SDR and mean error of direction of one mixture."""
    atlas = separator.head
    assert isinstance(atlas, ea.Atlas)
    found = atlas.separate(scene.mixture, n_sources=len(scene.images))
    sounds = np.stack([source.audio.samples for source in found.sources])
    judged = score(scene.images, sounds, scene.mixture.samples)
    errors = direction_errors(scene.directions, found.directions)
    return judged.quality.mean().sdr_db, errors.mean().great_circle_degrees


def row(atlas: ea.Atlas, sets: dict[str, list[ea.SimulatedScene]]) -> list[str]:
    """The figures of one state of the package."""
    cells = []
    for some in sets.values():
        sdr, error = np.array([measured(atlas.separator, scene) for scene in some]).T
        worst = np.sort(sdr)[: max(len(sdr) // 4, 1)].mean()
        cells.append(f"{sdr.mean():.1f}, {worst:.1f}, {error.mean():.1f}°")
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=24, help="mixtures of two talkers")
    parser.add_argument("--only", nargs="*", help="some of the numbers")
    options = parser.parse_args()
    atlas, sets = scenes(options.count)
    header = [f"{name} ({len(some)})" for name, some in sets.items()]
    print(f"| changed | {' | '.join(header)} |\n|{'---|' * (len(header) + 1)}")
    print(f"| nothing | {' | '.join(row(atlas, sets))} |", flush=True)
    for module, name, value in CHOICES:
        if not options.only or name in options.only:
            with changed(module, name, value):
                print(f"| `{name}` = {value} | {' | '.join(row(atlas, sets))} |", flush=True)


if __name__ == "__main__":
    main()
