"""Radii in the reports of a stream with heads that are not the learned one, and in rooms.

Talkers of 5 s, one or two at a time, are recorded with another head than the one that was learned,
or in rooms. Each confirmed and active source of the reports from 2 s on, every 0.25 s, is compared
with the nearest talker: share within `radius_90`, share wrong (more than 20 degrees off) and sure
(a radius below 10 degrees), median error, median radius, and the share of scenes with the doubt
about the head.

Settings were chosen on the rows of `DEVELOPMENT`: people 21 to 25 with an atlas of people 1 to 20,
`kemar_full` with the atlas of `cipic_021`, and room A. The rows of `JUDGEMENT` are for judging:
other people with an atlas of people 1 to 25, the Leipzig KEMAR that was set up again, and room D.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from protocol import DATA, load_head, speech_excerpt, utterances

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.diagnostics import DoubtKind
from earatlas.types import Array

RATE, SECONDS, FIRST, STEP = 16_000, 5.0, 2.0, 4000
DISTANCE_METRES = 1.5  # of a talker in a room
WRONG_DEGREES, SURE_DEGREES, MIN_SEPARATION_DEGREES = 20.0, 10.0, 20.0
JUDGED_PEOPLE = ("153", "154", "156", "158", "163", "003")
ROOMS = (
    ("anechoic", None),
    ("T60 0.3 s", ea.Room(t60_seconds=0.3)),
    ("T60 0.6 s", ea.Room(t60_seconds=0.6)),
)


@dataclass(frozen=True)
class Row:
    """Scenes of one row of the table."""

    title: str
    atlas: str  # name of the learned head
    heads: Callable[[], Sequence[ea.Head]]  # that record the scenes
    room: ea.Room | Callable[[np.random.Generator], ea.Room] | None = None  # or one per scene


def _people() -> list[Path]:
    """Return the files of the 30 people, sorted by name."""
    return sorted((DATA / "people").glob("*.sofa"))


def _judged_people() -> list[ea.Head]:
    paths = [DATA / "people" / f"cipic_{name}.sofa" for name in JUDGED_PEOPLE[:-1]]
    return [ea.read_sofa(path) for path in (*paths, DATA / "heads" / "cipic_003.sofa")]


def measured_room(name: str) -> list[ea.Head]:
    """Return the measured responses of a room; they are reverberant themselves."""
    return [ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")]


def _in_rooms(title: str, atlas: str, heads: Callable[[], Sequence[ea.Head]]) -> list[Row]:
    return [Row(f"{title}, {place}", atlas, heads, room) for place, room in ROOMS]


DEVELOPMENT = (
    *_in_rooms(
        "people 21–25", "people 1–20", lambda: [ea.read_sofa(path) for path in _people()[20:25]]
    ),
    *_in_rooms("kemar_full", "cipic_021", lambda: [load_head("kemar_full")]),
    Row("room A", "hats", lambda: measured_room("room_a")),
)
JUDGEMENT = (
    *_in_rooms("six other people", "people 1–25", _judged_people),
    Row(
        "KEMAR set up again, anechoic",
        "leipzig_kemar",
        lambda: [load_head("leipzig_kemar_reseated")],
    ),
    Row("room D", "hats", lambda: measured_room("room_d")),
)
OWN_HEAD = tuple(_in_rooms("own head", "cipic_021", lambda: [load_head("cipic_021")]))


def load_atlas(name: str, folder: Path | None) -> ea.Atlas:
    """Return the atlas of a head or of people; it is kept in `folder`, if that is given."""
    path = None if folder is None else folder / f"{name.replace(' ', '_')}.atlas"
    if path is not None and path.exists():
        return ea.Atlas.load(path)
    if name.startswith("people"):
        atlas: ea.Atlas = ea.learn_population(_people()[: int(name.split("–")[-1])])
    else:
        atlas = ea.learn(load_head(name))
    if path is not None:
        atlas.save(path)
    return atlas


@dataclass
class Figures:
    """Errors and radii of reports, accumulated over scenes."""

    errors: list[float] = field(default_factory=list)
    radii: list[float] = field(default_factory=list)
    doubted: list[bool] = field(default_factory=list)  # per scene
    scenes: int = 0

    def add(self, reports: list[ea.LiveReport], scene: ea.SimulatedScene) -> None:
        """Add the reports of a scene with static talkers."""
        doubted = False
        for report in reports:
            doubts = [*report.doubts, *(d for one in report.sources for d in one.doubts)]
            doubted |= any(doubt.word is DoubtKind.HEAD_MISMATCH for doubt in doubts)
            for source in report.sources:
                if source.confirmed and source.active:
                    errors = great_circle_error(scene.directions, source.direction[None])
                    self.errors.append(float(errors.min()))
                    self.radii.append(source.radius_90)
        self.doubted.append(doubted)
        self.scenes += 1

    def row(self) -> str:
        """Return the cells of one row."""
        errors, radii = np.array(self.errors), np.array(self.radii)
        wrong = errors > WRONG_DEGREES
        return (
            f"{self.scenes} | {len(errors)} | {np.median(errors):.1f} | {np.median(radii):.0f} | "
            f"{100 * wrong.mean():.0f} | {np.mean(errors <= radii):.2f} | "
            f"{100 * np.mean(wrong & (radii < SURE_DEGREES)):.1f} | "
            f"{100 * np.mean(self.doubted):.0f}"
        )


def scenes(
    row: Row, count: int, n_sources: int, seed: int, seconds: float = SECONDS
) -> Iterator[ea.SimulatedScene]:
    """Yield scenes of a row; directions are evenly distributed over what a head covers."""
    rng = np.random.default_rng((seed, n_sources))
    files = [path for path in utterances() if audio_seconds(path) >= seconds]
    heads = row.heads()
    for number in range(count):
        head = heads[number % len(heads)]
        directions = _directions(head, n_sources, rng)
        speakers = rng.choice(len(files), n_sources, replace=False)
        sounds = [speech_excerpt(files[i], seconds, rng) for i in speakers]
        room = row.room(rng) if callable(row.room) else row.room
        distance = talker_distance_metres(room, directions)
        settings = ea.SceneSettings(snr_db=40.0, seed=number, distance_metres=distance)
        with warnings.catch_warnings():  # directions that nobody measured, below the head
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            yield ea.render_scene(head, sounds, directions, settings=settings, room=room)


def talker_distance_metres(room: ea.Room | None, directions: Array) -> float:
    """Return the distance of all talkers: 1.5 m, or less if a wall is nearer than that."""
    if room is None:
        return DISTANCE_METRES
    return min(DISTANCE_METRES, 0.9 * float(room.wall_distances(directions).min()))


def _directions(head: ea.Head, n_sources: int, rng: np.random.Generator) -> Array:
    """Return directions (n_sources, C) at random, at a minimum separation."""
    separation = 0.0
    while separation < MIN_SEPARATION_DEGREES:
        # Uniform on the sphere, as far as the head was measured
        azimuth, height = rng.uniform(-180, 180, 500), rng.uniform(-1, 1, 500)
        wanted = np.stack([azimuth, np.degrees(np.arcsin(height))], axis=1)
        gaps = great_circle_error(wanted[:, None], head.directions[None])
        near = np.flatnonzero(gaps.min(axis=1) < 6.0)[:n_sources]
        directions: Array = head.directions[gaps[near].argmin(axis=1)]
        pairs = great_circle_error(directions[:, None], directions[None])
        separation = float(pairs[np.triu_indices(n_sources, 1)].min(initial=180.0))
        if len(directions) < n_sources:
            separation = 0.0
    return directions


def run_stream(live: ea.Live, samples: Array) -> list[ea.LiveReport]:
    """Return the reports of a stream from 2 s on."""
    starts = range(0, samples.shape[1] - STEP + 1, STEP)
    reports = [live.push(samples[:, start : start + STEP]) for start in starts]
    return [report for report in reports if report.time >= FIRST]


def other_heads(rows: Sequence[Row], count: int, seed: int, folder: Path | None) -> None:
    """Print the table of some rows, for one and for two talkers."""
    print(
        "| | scenes | reports | median ° | median radius ° | wrong % | in90 | wrong and sure % | "
        "scenes with doubt about the head % |\n|" + "---|" * 9
    )
    for n_sources in (1, 2):
        for row in rows:
            atlas, figures = load_atlas(row.atlas, folder), Figures()
            for scene in scenes(row, count, n_sources, seed):
                figures.add(run_stream(atlas.live(rate=RATE), scene.mixture.samples), scene)
            print(f"| {n_sources}: {row.title} | {figures.row()} |", flush=True)
