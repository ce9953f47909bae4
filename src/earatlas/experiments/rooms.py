"""Rooms, beyond the paper: talkers in the open, in noise and in rooms that were never learned.

In: a head that was measured in the open. Out: errors of direction, and how many truths lie in the
50 and 90 % regions, of two atlases: one that is ready for rooms (what `earatlas learn` makes), and
the same without it. Both are learned from T2 on the paper's plane; talkers stand outside T2.

Rooms are shoebox rooms by pyroomacoustics. Where that extra is not installed they are made from the
head itself (`earatlas.simulation.random_reverberation`), and the rows say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.evaluation.directions import assign_directions
from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.table2 import our_atlas
from earatlas.experiments.tables import by_head, of_head, said_by, span, table, told, where
from earatlas.experiments.talkers import RATE, talkers_and_places
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.simulation.image_source import Room
from earatlas.simulation.random_reverberation import OwnRoom, even_weights
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
from earatlas.types import Array

__all__ = ["EXPERIMENT"]

READY, OPEN_AIR = "ready for rooms", "open air only"
ATLASES = (READY, OPEN_AIR)
SHOEBOX, OWN = "shoebox rooms", "rooms made from the head"
_SECONDS = (3.0, 3.0)
_DISTANCE_METRES = 1.5
# A room made from the head has as much direct sound over reflections as a shoebox room of 90 cubic
# metres (ku100, 12 places, T60 0.2, 0.3, 0.5 s: 0.9, -3.2, -8.1 dB) with 3.1, 1.1 and -1.6 dB less.
_VOLUME_CUBIC_METRES, _DROP_DB = 90.0, 1.0
_DRAWS = 500  # of a posterior: levels within 2 points
_FEWEST = 3  # sources that a printed figure is of
_HEADS = ("simulated", "ku100")  # that the findings speak of
ABOUT = """\
Not in the paper, whose recordings were made in the room that was learned. Here the head is learned
in the open, and nothing of the rooms is known. "Ready for rooms" is what `earatlas learn` makes of
T2 on the plane; "open air only" is the same without what it needs in rooms (`--no-rooms`).
Talkers of 3 s stand outside T2, in rooms at 1.5 m; a single one is the same, at the same place, in
all conditions; two talk together in 60 % of the time, and their number is told. Noise is white and
independent in the two ears. Errors are great-circle degrees; beside them the share of the truths
that lie in the answer's 50 and 90 % regions, and the radius of the latter (medians)."""
FINDINGS = """\
- In rooms the open-air model alone is lost and does not know it: {lost} of the single talkers are
  more than {far}° off, and its {region} regions hold {false} of the truths.
- Ready for rooms {found} are, and the regions hold {held}. Median errors are {medians}.
- In the open both have the same answers in {same} of the recordings: the model that was learned
  there is taken as it is where the sound fits it.
- Of two talkers in a room {two} of the sources are more than {aside}° off ({two_open} without).
- Not good yet: {half} regions should hold as many, and hold {halves} in noise and in rooms."""


@dataclass(frozen=True)
class Case:
    """How many talk, and in what."""

    talkers: int = 1
    snr_db: float = 60.0
    t60_seconds: float = 0.0  # 0: in the open

    @property
    def name(self) -> str:
        """Such as "two talkers, T60 0.3 s"."""
        place = "open" if self.snr_db == 60 else f"noise at {self.snr_db:g} dB"
        if self.t60_seconds:
            place = f"T60 {self.t60_seconds:g} s"
        return f"two talkers, {place}" if self.talkers == 2 else place

    @property
    def settings(self) -> dict[str, Any]:
        """What the rows of the case have in common."""
        return {
            "talkers": self.talkers,
            "snr_db": self.snr_db,
            "t60_seconds": self.t60_seconds,
        }


NOISES = tuple(Case(snr_db=snr) for snr in (20.0, 10.0, 0.0))
ROOMS = tuple(Case(t60_seconds=t60) for t60 in (0.2, 0.3, 0.5))
TWO = Case(talkers=2, t60_seconds=0.3)
CASES = (Case(), *NOISES, *ROOMS, TWO)
_QUICK = (Case(), ROOMS[1], TWO)


def plan(bench: Bench) -> list[dict[str, Any]]:
    """A row a recording: both atlases hear the same."""
    return [
        {
            **case.settings,
            "seed": seed,
            "walls": _walls() if case.t60_seconds else "",
        }
        for seed in range(bench.repeats(50, quick=3))
        for case in (_QUICK if bench.quick else CASES)
    ]


def _walls() -> str:
    """How rooms are made here."""
    return SHOEBOX if find_spec("pyroomacoustics") else OWN


@lru_cache(maxsize=2)
def _atlases(bench: Bench) -> dict[str, Atlas]:
    """The same open-air model with and without what it needs in rooms."""
    known, _ = bench.training_set("T2")
    opened = our_atlas(bench)
    return {READY: opened.with_rooms(bench.plane.subset(known)), OPEN_AIR: opened}


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Errors, levels of the truths and radii of both atlases for one recording."""
    scene = _scene(bench, settings)
    answers = {}
    for name, atlas in _atlases(bench).items():
        found = _beliefs(atlas, scene)
        places = np.clip([posterior.best for posterior in found], (-180, -90), (180, 90))
        own = assign_directions(scene.directions, places).found
        errors = great_circle_error(scene.directions, places[own])
        levels = [
            found[m].level_of(truth, _DRAWS) for truth, m in zip(scene.directions, own, strict=True)
        ]
        radii = [found[m].radius_90 for m in own]
        answers[name] = {
            "errors": np.round(errors, 3).tolist(),
            "levels": np.round(levels, 4).tolist(),
            "radii": np.round(radii, 2).tolist(),
        }
    return answers


def _beliefs(atlas: Atlas, scene: SimulatedScene) -> list[DirectionPosterior]:
    """Of one talker by `localize`, of several by `separate`."""
    if len(scene.directions) == 1:
        return [atlas.localize(scene.mixture).posterior]
    parted = atlas.separate(scene.mixture, n_sources=len(scene.directions), rendering="soft")
    return [source.posterior for source in parted.sources]


def _scene(bench: Bench, settings: dict[str, Any]) -> SimulatedScene:
    """The talkers of a row, through the head in the open, or with walls around it."""
    _, asked = bench.training_set("T2")
    M, seed, t60 = settings["talkers"], settings["seed"], settings["t60_seconds"]
    sounds, places = talkers_and_places(bench, asked, M, seed, seconds=_SECONDS)
    scene_settings = SceneSettings(
        snr_db=settings["snr_db"],
        overlap=0.6 if M > 1 else None,
        distance_metres=_DISTANCE_METRES,
        seed=seed,
    )
    head, room = bench.plane, None
    if settings["walls"] == SHOEBOX:
        head, room = bench.whole, Room(t60_seconds=t60)
    elif settings["walls"] == OWN:
        head = _in_own_room(bench.whole, places, t60, seed)
    return render_scene(head, sounds, places, settings=scene_settings, room=room)


def _in_own_room(head: Head, places: Array, t60_seconds: float, seed: int) -> Head:
    """The head's responses at some places in a room that is made from itself."""
    ears, rng = head.responses().at_rate(RATE), np.random.default_rng(seed)
    weights, rows = even_weights(head.directions), head.space.nearest(head.directions, places)
    room = OwnRoom(t60_seconds, _VOLUME_CUBIC_METRES, _DISTANCE_METRES, _DROP_DB)
    responses = [room.response(ears, int(row), RATE, weights, rng) for row in rows]
    return replace(head, directions=places, ears=ImpulseResponses(np.stack(responses), RATE))


@dataclass(frozen=True, eq=False)
class _Figures:
    """What an atlas said of some sources."""

    errors: Array  # (n,) degrees
    levels: Array  # (n,) of the smallest region that holds the truth
    radii: Array  # (n,) degrees

    @classmethod
    def of(cls, rows: Sequence[Row], atlas: str) -> _Figures:
        answers = [row["result"][atlas] for row in rows]
        return cls(
            *(
                np.array([v for answer in answers for v in answer[what]])
                for what in ("errors", "levels", "radii")
            )
        )

    def beyond(self, degrees: float) -> float:
        """The share of the errors beyond so many degrees, in %."""
        return 100 * float(np.mean(self.errors > degrees))

    def within(self, region: float) -> float:
        """The share of the truths in such a region, in %."""
        return 100 * float(np.mean(self.levels <= region))

    @property
    def cells(self) -> list[str]:
        """Its part of a line of the table."""
        if len(self.errors) < _FEWEST:
            return [str(len(self.errors)), *[""] * 6]
        shares = (self.beyond(20), self.beyond(30), self.within(0.5), self.within(0.9))
        return [
            str(len(self.errors)),
            f"{np.median(self.errors):.1f}",
            *(f"{share:.0f} %" for share in shares),
            f"{np.median(self.radii):.1f}",
        ]


HEADER = ("", "", "sources", "median °", "beyond 20°", "beyond 30°", "in the 50 % region",
          "in the 90 % region", "radius at 90 % °")  # fmt: skip


def section(rows: Sequence[Row], folder: Path) -> str:
    """A picture and a table a data set: every case with both atlases."""
    parts = []
    for head, own in by_head(rows).items():
        cases = [case for case in CASES if where(own, **case.settings)]
        lines = [
            [case.name, atlas, *_Figures.of(where(own, **case.settings), atlas).cells]
            for case in cases
            for atlas in ATLASES
        ]
        walls = " and ".join(sorted({row["settings"]["walls"] for row in own} - {""}))
        parts.append(
            f"**{head}**, {said_by(own[0])}{', ' if walls else ''}{walls}.\n\n"
            f"{_drawn(head, own, cases, folder)}\n\n{table(HEADER, lines)}"
        )
    return "\n\n".join(parts)


def _drawn(head: str, rows: Sequence[Row], cases: Sequence[Case], folder: Path) -> str:
    """Median errors, and how many truths the 90 % regions hold, case by case."""
    from earatlas.experiments.figure_parts import COLOURS, GREY, MISSING, figure_of, picture, styled

    figure = figure_of(9.6, 3.9)
    medians, held = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    at = np.arange(len(cases))
    for n, atlas in enumerate(ATLASES):
        some = [_Figures.of(where(rows, **case.settings), atlas) for case in cases]
        inside = {READY: COLOURS[n], OPEN_AIR: "none"}[atlas]  # rings: both are seen where alike
        how: dict[str, Any] = {"ms": 4 + 4 * n, "color": COLOURS[n], "mfc": inside, "label": atlas}
        medians.semilogy(at, [np.median(own.errors) for own in some], "o", **how)
        held.plot(at, [own.within(0.9) for own in some], "o", **how)
    held.axhline(90, color=GREY, linestyle="--", linewidth=1)
    styled(medians, "Median error", "", "degrees")
    styled(held, "Truths in the 90 % region", "", "%")
    low, high = medians.get_ylim()
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    medians.set_yticks(ticks, [f"{t:g}" for t in ticks])
    medians.minorticks_off()
    held.set_ylim(-3, 103)
    for axes in (medians, held):
        names = [case.name for case in cases]
        axes.set_xticks(at, names, rotation=30, ha="right", fontsize=8)
        axes.grid(color=MISSING, linewidth=0.5)
        axes.legend(fontsize=8, frameon=False)
    return picture(figure, folder, f"rooms_{head}", f"{head}: in the open, in noise and in rooms")


def _by_head(rows: Sequence[Row], cases: Sequence[Case], atlas: str) -> list[_Figures]:
    """Figures of the cases, each with each head."""
    return [
        _Figures.of(where(of_head(rows, head), **case.settings), atlas)
        for head in _HEADS
        for case in cases
    ]


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words and in the rows' figures."""
    ready, opened = (_by_head(rows, ROOMS, atlas) for atlas in ATLASES)
    two, two_open = (_by_head(rows, (TWO,), atlas) for atlas in ATLASES)
    alike = [
        row["result"][READY]["errors"] == row["result"][OPEN_AIR]["errors"]
        for row in where(rows, **Case().settings)
    ]
    percent = "{:.0f} %"
    return told(
        FINDINGS,
        far=30,
        aside=20,
        region="90 %",
        half="50 %",
        lost=span((own.beyond(30) for own in opened), percent),
        false=span((own.within(0.9) for own in opened), percent),
        found=span((own.beyond(30) for own in ready), percent),
        held=span((own.within(0.9) for own in ready), percent),
        medians=span((float(np.median(own.errors)) for own in ready), "{:.1f}°"),
        same=percent.format(100 * np.mean(alike)),
        two=span((own.beyond(20) for own in two), percent),
        two_open=span((own.beyond(20) for own in two_open), percent),
        halves=span((own.within(0.5) for own in _by_head(rows, NOISES, READY) + ready), percent),
    )


EXPERIMENT = Experiment(
    name="rooms",
    title="Rooms: where the paper did not go",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=_HEADS,
    sound=True,
    open_air=True,
)
