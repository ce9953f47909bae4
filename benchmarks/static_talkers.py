"""Single static talkers in `separate`: how often they move, are split, or are doubted.

    python benchmarks/static_talkers.py [development] [judgement] [--count 20] [--seed SEED]
                                        [--only TEXT] [--atlases FOLDER]

Talkers of 8 s whose number is not given, recorded by heads that are not the learned one (set up
again, another unit, other people), in rooms of random shape, and in measured rooms. Printed: the
share of recordings with a moving source (false motion), with several sources (false split), and
with the doubt that there are several sounds at once.

Settings were chosen on the rows of `DEVELOPMENT` and judged on those of `JUDGEMENT`, which have
other heads, rooms and seeds.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from protocol import DATA, load_head, speech_excerpt, utterances
from streaming_parts.false_motion import random_room
from streaming_parts.other_heads import DEVELOPMENT as OTHER_DEVELOPMENT
from streaming_parts.other_heads import JUDGEMENT as OTHER_JUDGEMENT
from streaming_parts.other_heads import Row, load_atlas, talker_distance_metres

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.localization.diagnostics import DoubtKind

SECONDS = 8.0
Heads = Callable[[], Sequence[ea.Head]]


def single_talkers(row: Row, count: int, seed: int) -> Iterator[ea.Audio]:
    """Yield recordings of one talker in a random direction, at most 1.5 m from the head."""
    rng = np.random.default_rng(seed)
    files = [path for path in utterances() if audio_seconds(path) >= SECONDS]
    heads = row.heads()
    for number in range(count):
        head = heads[number % len(heads)]
        directions = head.directions[[rng.integers(len(head))]]
        sound = speech_excerpt(files[rng.integers(len(files))], SECONDS, rng)
        room = row.room(rng) if callable(row.room) else row.room
        distance = talker_distance_metres(room, directions)
        settings = ea.SceneSettings(snr_db=40.0, seed=number, distance_metres=distance)
        with warnings.catch_warnings():  # directions that nobody measured, below the head
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            yield ea.render_scene(head, [sound], directions, settings=settings, room=room).mixture


def _in_both(title: str, atlas: str, heads: Heads) -> tuple[Row, Row]:
    """Return the rows of heads without a room, and in rooms of random shape."""
    return (
        Row(f"{title}, anechoic", atlas, heads),
        Row(f"{title}, rooms", atlas, heads, random_room),
    )


def _with_rooms(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the anechoic rows of other heads with their twins in random rooms; measured rooms."""
    for row in rows:
        title, _, condition = row.title.partition(", ")
        if condition == "anechoic":
            yield from _in_both(title, row.atlas, row.heads)
        elif not condition:
            yield row


def _person(name: str) -> list[ea.Head]:
    return [ea.read_sofa(DATA / "people" / f"cipic_{name}.sofa")]


DEVELOPMENT = (
    *_in_both("cipic_021, own head", "cipic_021", lambda: [load_head("cipic_021")]),
    *_with_rooms(OTHER_DEVELOPMENT),
    *_in_both("person 134 with cipic_021", "cipic_021", lambda: _person("134")),
)
JUDGEMENT = (
    *_in_both("ku100, own head", "ku100", lambda: [load_head("ku100")]),
    *_with_rooms(OTHER_JUDGEMENT),
    *_in_both("another KEMAR", "leipzig_kemar", lambda: [load_head("kemar_full")]),
    *_in_both("person 163 with leipzig_kemar", "leipzig_kemar", lambda: _person("163")),
)
PARTS = {"development": (DEVELOPMENT, 31), "judgement": (JUDGEMENT, 32)}


def judge(result: ea.Scene) -> tuple[bool, bool, bool]:
    """Return whether a source moves, whether there are several, and whether this is doubted."""
    doubts = [*result.doubts, *(doubt for source in result.sources for doubt in source.doubts)]
    return (
        any(source.moves for source in result.sources),
        len(result.sources) > 1,
        any(doubt.word is DoubtKind.SEVERAL_SOUNDS for doubt in doubts),
    )


def main() -> None:
    """Print one row per condition, and their sum."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS), default=["judgement"])
    parser.add_argument("--count", type=int, default=20, help="recordings per row")
    parser.add_argument("--atlases", type=Path, help="folder in which learned atlases are kept")
    parser.add_argument("--seed", type=int, help="seed of the scenes, instead of the part's own")
    parser.add_argument("--only", default="", help="only rows whose title contains this text")
    options = parser.parse_args()
    for part in options.parts:
        rows, seed = PARTS[part]
        seed = seed if options.seed is None else options.seed
        print(f"\n| {part}: one static talker | recordings | moves % | split % | several % |")
        print("|---|---|---|---|---|")
        every = []
        for row in (row for row in rows if options.only in row.title):
            atlas = load_atlas(row.atlas, options.atlases)
            found = [
                judge(atlas.separate(recording))
                for recording in single_talkers(row, options.count, seed)
            ]
            every += found
            _print(row.title, found)
        _print("all", every)


def _print(title: str, found: list[tuple[bool, bool, bool]]) -> None:
    shares = " | ".join(f"{100 * share:.1f}" for share in np.mean(found, axis=0))
    print(f"| {title} | {len(found)} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
