"""Reverberant rooms, beyond the paper: talkers in anechoic, noisy and reverberant conditions.

The input is a head that was measured in anechoic conditions. The outputs are direction errors and
the coverage of the 50 and 90 % credible regions, for two atlases: one with the model for
reverberation (the default of `earatlas learn`), and the same without it. Both are trained on T2 on
the paper's plane; talkers are outside T2. The rooms are not known to the atlases.

Rooms are shoebox rooms by pyroomacoustics. Without this extra, reverberation is synthesized from
the head itself (`earatlas.simulation.random_reverberation`), and the rows state it.
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
from earatlas.experiments.tables import (
    MIN_VALUES,
    fill_template,
    format_range,
    group_by_head,
    markdown_table,
    rows_of_heads,
    select_rows,
    speech_label,
)
from earatlas.experiments.talkers import RATE, draw_talkers
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.simulation.image_source import Room
from earatlas.simulation.random_reverberation import RandomReverberation, solid_angle_weights
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
from earatlas.types import Array

__all__ = ["EXPERIMENT"]

# Keys in the rows, and the labels that are shown for them.
REVERBERANT, ANECHOIC = "ready for rooms", "open air only"
ATLASES = {REVERBERANT: "reverberant model", ANECHOIC: "anechoic model only"}
SHOEBOX, RANDOM_REVERBERATION = "shoebox rooms", "rooms made from the head"
_ROOM_LABELS = {SHOEBOX: "shoebox rooms", RANDOM_REVERBERATION: "random reverberation of the head"}


# Evidence: docs/figures/settings/experiments.md, "rooms".
@dataclass(frozen=True, slots=True)
class RoomSceneSettings:
    """Scenes of the experiment."""

    talker_seconds: float = 3.0
    distance_metres: float = 1.5  # from the head to the talkers
    volume_cubic_metres: float = 90.0  # of the random reverberation
    drop_db: float = 1.0  # attenuation of its reflections


_SCENES = RoomSceneSettings()
_HEADS = ("simulated", "ku100")  # heads of the findings
ABOUT = """\
This is not part of the paper, whose recordings were made in the room of the training data. Here
the head is learned in anechoic conditions, and the rooms are unknown. "Reverberant model" is the
result of `earatlas learn` with T2 on the plane; "anechoic model only" is the same without the
model for reverberation (`--no-rooms`). Talkers speak for 3 s at directions outside T2, at a
distance of 1.5 m in rooms. A single talker is the same, at the same direction, in all
conditions; two talkers overlap during 60 % of the time, and their number is given. Noise is
white and independent at the two ears. Errors are great-circle degrees. The other columns are the
share of the true directions in the 50 and 90 % credible regions, and the radius of the latter
(medians)."""
FINDINGS = """\
- In reverberant rooms the anechoic model alone fails, and its regions are too small: {lost} of the
  single talkers have errors above {far}°, and its {region} credible regions contain {false} of the
  true directions.
- With the reverberant model, {found} have such errors, and the regions contain {held} of the
  true directions. Median errors are {medians}.
- In anechoic conditions both give the same results for {same} of the recordings: the anechoic
  model is used wherever it fits the recording.
- With two talkers in a reverberant room, {two} of the sources have errors above {error_degrees}°
  ({two_anechoic} without the reverberant model).
- Not yet satisfactory: {half} regions should contain {half} of the true directions, and contain
  {halves} in noise and in rooms."""


@dataclass(frozen=True)
class Case:
    """Number of talkers, and acoustic conditions."""

    talkers: int = 1
    snr_db: float = 60.0
    t60_seconds: float = 0.0  # 0: anechoic

    @property
    def name(self) -> str:
        """Label such as "two talkers, T60 0.3 s"."""
        conditions = "anechoic" if self.snr_db == 60 else f"noise at {self.snr_db:g} dB"
        if self.t60_seconds:
            conditions = f"T60 {self.t60_seconds:g} s"
        return f"two talkers, {conditions}" if self.talkers == 2 else conditions

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the rows of the case have in common."""
        return {
            "talkers": self.talkers,
            "snr_db": self.snr_db,
            "t60_seconds": self.t60_seconds,
        }


NOISES = tuple(Case(snr_db=snr) for snr in (20.0, 10.0, 0.0))  # SNR, dB
ROOMS = tuple(Case(t60_seconds=t60) for t60 in (0.2, 0.3, 0.5))  # T60, s
TWO = Case(talkers=2, t60_seconds=0.3)  # two simultaneous talkers in a room
CASES = (Case(), *NOISES, *ROOMS, TWO)
_QUICK = (Case(), ROOMS[1], TWO)  # cases of a quick run


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row per recording, which both atlases share."""
    return [
        {
            **case.settings,
            "seed": seed,
            "walls": _room_simulation() if case.t60_seconds else "",
        }
        for seed in range(bench.repeats(50, quick=3))
        for case in (_QUICK if bench.quick else CASES)
    ]


def _room_simulation() -> str:
    """Return how rooms are simulated on this machine."""
    return SHOEBOX if find_spec("pyroomacoustics") else RANDOM_REVERBERATION


@lru_cache(maxsize=2)
def _atlases(bench: Bench) -> dict[str, Atlas]:
    """Return the atlas with and without the model for reverberation."""
    train, _ = bench.training_set("T2")
    anechoic = our_atlas(bench)
    return {REVERBERANT: anechoic.with_rooms(bench.planar_head.subset(train)), ANECHOIC: anechoic}


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return errors, credible levels of the true directions and radii of both atlases."""
    scene = _scene(bench, settings)
    results = {}
    for name, atlas in _atlases(bench).items():
        posteriors = _posteriors(atlas, scene)
        directions = np.clip([posterior.best for posterior in posteriors], (-180, -90), (180, 90))
        order = assign_directions(scene.directions, directions).found
        errors = great_circle_error(scene.directions, directions[order])
        levels = [
            posteriors[m].credible_level(truth, 500)  # samples, for levels within 0.02
            for truth, m in zip(scene.directions, order, strict=True)
        ]
        radii = [posteriors[m].radius_90 for m in order]
        results[name] = {
            "errors": np.round(errors, 3).tolist(),
            "levels": np.round(levels, 4).tolist(),
            "radii": np.round(radii, 2).tolist(),
        }
    return results


def _posteriors(atlas: Atlas, scene: SimulatedScene) -> list[DirectionPosterior]:
    """Return the direction posteriors, of one talker by `localize`, of several by `separate`."""
    if len(scene.directions) == 1:
        return [atlas.localize(scene.mixture).posterior]
    separated = atlas.separate(scene.mixture, n_sources=len(scene.directions), rendering="soft")
    return [source.posterior for source in separated.sources]


def _scene(bench: Bench, settings: dict[str, Any]) -> SimulatedScene:
    """Return the scene of a row, anechoic or in a room."""
    _, test = bench.training_set("T2")
    M, seed, t60 = settings["talkers"], settings["seed"], settings["t60_seconds"]
    sounds, directions = draw_talkers(bench, test, M, seed, seconds=(_SCENES.talker_seconds,) * 2)
    scene_settings = SceneSettings(
        snr_db=settings["snr_db"],
        overlap=0.6 if M > 1 else None,
        distance_metres=_SCENES.distance_metres,
        seed=seed,
    )
    head, room = bench.planar_head, None
    if settings["walls"] == SHOEBOX:
        head, room = bench.full_head, Room(t60_seconds=t60)
    elif settings["walls"] == RANDOM_REVERBERATION:
        head = _with_random_reverberation(bench.full_head, directions, t60, seed)
    return render_scene(head, sounds, directions, settings=scene_settings, room=room)


def _with_random_reverberation(
    head: Head, directions: Array, t60_seconds: float, seed: int
) -> Head:
    """Return the head with reverberant responses at some directions, synthesized from itself."""
    ears, rng = head.responses().at_rate(RATE), np.random.default_rng(seed)
    weights, rows = (
        solid_angle_weights(head.directions),
        head.space.nearest(head.directions, directions),
    )
    room = RandomReverberation(
        t60_seconds, _SCENES.volume_cubic_metres, _SCENES.distance_metres, _SCENES.drop_db
    )
    responses = [room.response(ears, int(row), RATE, weights, rng) for row in rows]
    return replace(head, directions=directions, ears=ImpulseResponses(np.stack(responses), RATE))


@dataclass(frozen=True, eq=False)
class _Statistics:
    """Errors, credible levels and radii of the sources of some rows, for one atlas."""

    errors: Array  # (n,) degrees
    levels: Array  # (n,) level of the smallest credible region that contains the true direction
    radii: Array  # (n,) degrees

    @classmethod
    def of(cls, rows: Sequence[Row], atlas: str) -> _Statistics:
        answers = [row["result"][atlas] for row in rows]
        return cls(
            *(
                np.array([v for answer in answers for v in answer[what]])
                for what in ("errors", "levels", "radii")
            )
        )

    def beyond(self, degrees: float) -> float:
        """Return the share of the errors above some degrees, in %."""
        return 100 * float(np.mean(self.errors > degrees))

    def within(self, region: float) -> float:
        """Return the share of the true directions in a credible region, in %."""
        return 100 * float(np.mean(self.levels <= region))

    @property
    def cells(self) -> list[str]:
        """Cells of a line of the table."""
        if len(self.errors) < MIN_VALUES:
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
    """Return a picture and a table per data set: every case with both atlases."""
    parts = []
    for head, head_rows in group_by_head(rows).items():
        cases = [case for case in CASES if select_rows(head_rows, **case.settings)]
        lines = [
            [
                case.name,
                ATLASES[atlas],
                *_Statistics.of(select_rows(head_rows, **case.settings), atlas).cells,
            ]
            for case in cases
            for atlas in ATLASES
        ]
        rooms = {row["settings"]["walls"] for row in head_rows} - {""}
        room_text = " and ".join(sorted(_ROOM_LABELS.get(room, room) for room in rooms))
        parts.append(
            f"**{head}**, {speech_label(head_rows[0])}{', ' if rooms else ''}{room_text}.\n\n"
            f"{_draw(head, head_rows, cases, folder)}\n\n{markdown_table(HEADER, lines)}"
        )
    return "\n\n".join(parts)


def _draw(head: str, rows: Sequence[Row], cases: Sequence[Case], folder: Path) -> str:
    """Draw medians and quartiles of the errors, and the coverage of the 90 % regions."""
    from earatlas.experiments.figure_parts import (
        COLOURS,
        GREY,
        MARKERS,
        MISSING,
        new_figure,
        save_picture,
        style_axes,
    )

    figure = new_figure(9.6, 3.9)
    medians, coverage = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    positions = np.arange(len(cases))
    for n, atlas in enumerate(ATLASES):
        statistics_by_case = [
            _Statistics.of(select_rows(rows, **case.settings), atlas) for case in cases
        ]
        fill = {REVERBERANT: COLOURS[n], ANECHOIC: "none"}[atlas]  # rings, visible if both agree
        style: dict[str, Any] = {
            "ms": 5,
            "color": COLOURS[n],
            "mfc": fill,
            "label": ATLASES[atlas],
        }
        quartiles = np.array(
            [np.quantile(one.errors, (0.25, 0.5, 0.75)) for one in statistics_by_case]
        )
        shifted = positions + 0.12 * (n - 0.5)
        medians.semilogy(shifted, quartiles[:, 1], MARKERS[n], **style)
        medians.vlines(shifted, quartiles[:, 0], quartiles[:, 2], color=COLOURS[n], linewidth=1)
        coverage.plot(shifted, [one.within(0.9) for one in statistics_by_case], MARKERS[n], **style)
    coverage.axhline(90, color=GREY, linestyle="--", linewidth=1)
    style_axes(medians, "Error, median and quartiles")
    style_axes(coverage, "True directions in the 90 % region", "", "%")
    low, high = medians.get_ylim()
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    medians.set_yticks(ticks, [f"{t:g}°" for t in ticks])
    medians.minorticks_off()
    coverage.set_ylim(-3, 103)
    for axes in (medians, coverage):
        names = [case.name for case in cases]
        axes.set_xticks(positions, names, rotation=30, ha="right", fontsize=8)
        axes.grid(color=MISSING, linewidth=0.5)
        axes.legend(fontsize=8, frameon=False)
    return save_picture(
        figure, folder, f"rooms_{head}", f"{head}: anechoic, noisy and reverberant conditions"
    )


def _statistics_by_head(
    rows: Sequence[Row], cases: Sequence[Case], atlas: str
) -> list[_Statistics]:
    """Return the statistics of the cases, each with each head."""
    return [
        _Statistics.of(select_rows(rows_of_heads(rows, head), **case.settings), atlas)
        for head in _HEADS
        for case in cases
    ]


def findings(rows: Sequence[Row]) -> str:
    """Return the findings with the numbers of the rows."""
    reverberant, anechoic = (_statistics_by_head(rows, ROOMS, atlas) for atlas in ATLASES)
    two, two_anechoic = (_statistics_by_head(rows, (TWO,), atlas) for atlas in ATLASES)
    equal = [
        row["result"][REVERBERANT]["errors"] == row["result"][ANECHOIC]["errors"]
        for row in select_rows(rows, **Case().settings)
    ]
    percent = "{:.0f} %"
    return fill_template(
        FINDINGS,
        far=30,
        error_degrees=20,
        region="90 %",
        half="50 %",
        lost=format_range((statistics.beyond(30) for statistics in anechoic), percent),
        false=format_range((statistics.within(0.9) for statistics in anechoic), percent),
        found=format_range((statistics.beyond(30) for statistics in reverberant), percent),
        held=format_range((statistics.within(0.9) for statistics in reverberant), percent),
        medians=format_range(
            (float(np.median(statistics.errors)) for statistics in reverberant), "{:.1f}°"
        ),
        same=percent.format(100 * np.mean(equal)),
        two=format_range((statistics.beyond(20) for statistics in two), percent),
        two_anechoic=format_range((statistics.beyond(20) for statistics in two_anechoic), percent),
        halves=format_range(
            (
                statistics.within(0.5)
                for statistics in _statistics_by_head(rows, NOISES, REVERBERANT) + reverberant
            ),
            percent,
        ),
    )


EXPERIMENT = Experiment(
    name="rooms",
    title="Rooms: noise and reverberation, beyond the paper",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=_HEADS,
    needs_speech=True,
    needs_anechoic_head=True,
)
