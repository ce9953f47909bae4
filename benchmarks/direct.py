"""A head that was measured in one room, used in another: the direct sound of its responses.

    python benchmarks/direct.py [--count 54] [--windows 3 …]

Every other direction of the HATS (10° apart), measured in the open or in room A or D, is learned;
talkers of 3 s at the directions between are heard in room A and in room D. `direct`: the first
milliseconds of each response are learned (`learn --direct`), and made ready for rooms; `with the
room`: all of it (`learn --in-room`). Columns as in `rooms.py`.
"""

import argparse

import numpy as np
from protocol import DATA
from rooms import hats_split, in_measured_room, row

import earatlas as ea

ROOMS = ("room_a", "room_d")


def measured_in(name: str) -> ea.Head:
    """Every other direction of the head, as measured in a room."""
    head = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
    return head.subset(np.argsort(head.directions[:, 0])[::2])


def atlases(windows: list[float]) -> dict[str, ea.Atlas]:
    """What is compared, by what it is called in the table."""
    opened = hats_split()[0]
    made = {"in the open": ea.learn(opened).with_rooms(opened)}
    for name in ROOMS:
        head, place = measured_in(name), name.replace("_", " ")
        made[f"in {place}, with the room"] = ea.learn(head)
        for window in windows:
            direct = head.direct(window / 1000)
            made[f"in {place}, direct {window:g} ms"] = ea.learn(direct).with_rooms(direct)
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=54, help="talkers a row")
    parser.add_argument("--windows", type=float, nargs="+", default=[3.0], help="milliseconds")
    options = parser.parse_args()
    print(
        "| measured | heard in | talkers | median ° | mean ° | beyond 30° % | lateral ° | "
        "azimuth RMSE ° | in 50 % region | in 90 % region | radius at 90 % ° |\n|" + "---|" * 11
    )
    asked = hats_split()[1]
    for told, atlas in atlases(options.windows).items():
        for name in ROOMS:
            figures = row(atlas, in_measured_room(name, asked, options.count))
            print(f"| {told} | {name.replace('_', ' ')} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
