"""Heads measured in one room and used in another: the direct sound of their responses.

    python benchmarks/direct_sound.py [--count 54] [--windows 3 …]

Every other direction of the HATS (10° apart), measured anechoically or in room A or D, is learned;
talkers of 3 s at the directions between are recorded in room A and in room D. `direct`: the first
milliseconds of each response are learned (`learn --direct`) together with the model for reverberant
recordings; `with the room`: the whole responses (`learn --in-room`). Columns as in `rooms.py`.
"""

import argparse

import numpy as np
from protocol import DATA
from rooms import hats_split, in_measured_room, row

import earatlas as ea

ROOMS = ("room_a", "room_d")


def measured_in(name: str) -> ea.Head:
    """Return every other direction of the HATS as measured in a room."""
    head = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
    return head.subset(np.argsort(head.directions[:, 0])[::2])


def atlases(windows: list[float]) -> dict[str, ea.Atlas]:
    """Return the atlases to compare, by their names in the table."""
    anechoic = hats_split()[0]
    by_name = {"anechoic": ea.learn(anechoic).with_rooms(anechoic)}
    for name in ROOMS:
        head, room = measured_in(name), name.replace("_", " ")
        by_name[f"in {room}, with the room"] = ea.learn(head)
        for window in windows:
            direct = head.direct(window / 1000)
            by_name[f"in {room}, direct {window:g} ms"] = ea.learn(direct).with_rooms(direct)
    return by_name


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=54, help="number of talkers per row")
    parser.add_argument(
        "--windows", type=float, nargs="+", default=[3.0], help="lengths of the direct sound in ms"
    )
    options = parser.parse_args()
    print(
        "| head measured | recorded in | talkers | median ° | mean ° | beyond 30° % | lateral ° | "
        "azimuth RMSE ° | in 50 % region | in 90 % region | radius at 90 % ° |\n|" + "---|" * 11
    )
    held_out = hats_split()[1]
    for label, atlas in atlases(options.windows).items():
        for name in ROOMS:
            figures = row(atlas, in_measured_room(name, held_out, options.count))
            print(f"| {label} | {name.replace('_', ' ')} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
