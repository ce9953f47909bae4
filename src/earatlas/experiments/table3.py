"""Table 3: two and three talkers, found and separated; VESSL as printed, MESSL-G, bounds, ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.baselines import messl, oracle
from earatlas.evaluation.directions import assign_directions
from earatlas.evaluation.score import score
from earatlas.experiments.bench import PAGE_HEADS, Bench, errors_of
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.table2 import our_atlas, phat
from earatlas.experiments.tables import (
    by_head,
    counted,
    error_summary,
    medians,
    of_head,
    pooled,
    printed,
    said_by,
    shown,
    span,
    summary,
    table,
    told,
    where,
)
from earatlas.experiments.talkers import talkers_at
from earatlas.experiments.vessl_as_published import printed_vessl, sources_of
from earatlas.separation.demixing.rendering import Rendering
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array

__all__ = ["EXPERIMENT"]


METHODS = (
    *("VESSL(T1)", "VESSL(T2)", "MESSL-G", "mixture", "oracle"),  # the paper's
    *("ours(T2), masks", "ours(T2)"),
)
FIGURES = ("azimuth", "elevation", "SDR", "STIR")
PAPER = {
    2: {
        "VESSL(T1)": ("4.7±11", "2.9±9.9", "3.8±1.7", "6.1±1.7"),
        "VESSL(T2)": ("8.2±16", "4.7±11", "3.3±1.6", "5.2±1.6"),
        "MESSL-G": ("14±21", "", "2.3±1.6", "6.0±4.3"),
        "mixture": ("", "", "0.0±2.5", "0.2±2.5"),
        "oracle": ("", "", "12±1.6", "21±2.0"),
    },
    3: {
        "VESSL(T1)": ("12±21", "8.7±19", "1.7±1.5", "2.2±1.5"),
        "VESSL(T2)": ("16±24", "9.1±18", "1.5±1.5", "1.8±1.5"),
        "MESSL-G": ("18±28", "", "1.3±1.2", "2.1±4.4"),
        "mixture": ("", "", "-3.2±2.3", "-3.0±2.3"),
        "oracle": ("", "", "11±1.7", "20±2.1"),
    },
}
ABOUT = """\
VESSL is as printed, with its misprints put right and its own multi-scale start from random
masks; "ours" is `Atlas.separate` (a scout for the start, sources that adapt to what is heard,
phase at all frequencies), learned from T2 on the same plane: with masks, and as it is, with
filters that both ears together are passed through. Masks are soft in all but the oracle: with
binary ones a source that VESSL loses altogether has no SDR at all. MESSL-G's azimuths are those
of mixtures whose talkers are all frontal, through PHAT's line from delay to azimuth."""
FINDINGS = """\
- VESSL comes out about as in the paper: two talkers are off by {two} of azimuth (paper:
  {paper_two}), three by {three} ({paper_three}), with medians of {medians}: a few sources are lost
  altogether, and make the mean. Its SDR is higher than the paper's, as all are in the open. It
  took one thing that the paper does not say: shares of the sources stay even until masking is
  released (docs/paper.md); before, one source took nearly every bin.
- Ours with masks is ahead of MESSL-G and VESSL in SDR and STIR and finds both angles within
  {within}°. With filters two talkers are parted better than by the oracle's masks: two ears and
  two talkers in the open is a problem that linear filters solve, and masks do not.
- MESSL-G is ahead of VESSL in SDR here, the other way round from the paper: it needs nothing but
  clear delays, which the paper's room did not give."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """A row a mixture: all methods hear the same."""
    return [
        {"sources": M, "seed": seed}
        for seed in range(bench.repeats(300, quick=2))
        for M in ((2, 3) if seed == 0 or not bench.quick else (2,))
    ]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Errors and decibels of every method on one mixture."""
    _, asked = bench.training_set("T2")
    M, seed = settings["sources"], settings["seed"]
    scene = talkers_at(bench, asked, M, seed, seconds=(2.0, 4.0))
    mixture = scene.mixture
    answers: dict[str, tuple[Array, Array | None]] = {
        f"VESSL({name})": printed_vessl(sources, scene, seed)
        for name, sources in sources_of(bench).items()
    }
    blind = messl.separate(mixture, M)
    answers["MESSL-G"] = blind.render(), None
    answers["mixture"] = np.stack([mixture.samples] * M), None
    answers["oracle"] = oracle.separate(mixture, scene.images).render(), None
    renderings: dict[str, Rendering] = {"ours(T2), masks": "soft", "ours(T2)": "spatial"}
    for name, rendering in renderings.items():
        ours = our_atlas(bench).separate(mixture, n_sources=M, rendering=rendering)
        sounds = [source.audio.samples for source in ours.sources]
        answers[name] = np.stack(sounds), ours.directions
    frontal = bool((np.abs(scene.directions[:, 0]) <= 90).all())
    result = {name: _figures(scene, *answer) for name, answer in answers.items()}
    if frontal:
        azimuths = np.sort(phat(bench).azimuths(blind.delays_seconds))
        error = np.abs(azimuths - np.sort(scene.directions[:, 0]))
        result["MESSL-G"]["azimuth"] = error_summary(error)
    return {"frontal": frontal, "methods": result}


def _figures(scene: SimulatedScene, sounds: Array, found: Array | None) -> dict[str, Any]:
    quality = score(scene.images, sounds, scene.mixture.samples).quality
    figures = {"SDR": summary(quality.sdr_db), "STIR": summary(quality.sir_db)}
    if found is not None:
        on_sphere = np.clip(found, (-180, -90), (180, 90))
        own = assign_directions(scene.directions, on_sphere).take(found)
        azimuth, elevation = errors_of(scene.directions, own)
        figures |= {"azimuth": error_summary(azimuth), "elevation": error_summary(elevation)}
    return figures


def section(rows: Sequence[Row], folder: Path) -> str:
    """A table a data set and number of talkers, paper beside ours."""
    parts = []
    for head, own in by_head(rows).items():
        for M in (2, 3):
            some = where(own, sources=M)
            if not some:
                continue
            lines = []
            for method in METHODS:
                paper = PAPER[M].get(method, ("", "", "", ""))
                results = [r["result"]["methods"].get(method, {}) for r in some]
                ours = {what: pooled(r[what] for r in results if what in r) for what in FIGURES}
                cells = [method]
                for theirs, what in zip(paper, FIGURES, strict=True):
                    cells += [theirs, shown(ours[what])]
                lines.append([*cells, *medians(ours["azimuth"], ours["elevation"])])
            header = [""]
            for what, unit in zip(FIGURES, ("°", "°", "dB", "dB"), strict=True):
                header += [f"{what} {unit}: paper", "ours"]
            header += ["median azimuth / elevation °", "beyond 30°"]
            front = sum(r["result"]["frontal"] for r in some)
            parts.append(
                f"**{head}, {M} talkers**: {counted(len(some), 'mixture')}, {front} with frontal "
                f"talkers only, {said_by(own[0])} (paper: 600 mixtures in all).\n\n"
                + table(header, lines)
            )
    return "\n\n".join(parts)


def _by_head(rows: Sequence[Row], sources: int, method: str, what: str) -> list[dict[str, float]]:
    """A method's pooled figures, one a head."""
    own = [where(of_head(rows, head), sources=sources) for head in PAGE_HEADS]
    return [pooled(r["result"]["methods"][method][what] for r in some) for some in own]


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words and in the rows' figures."""
    vessl = {
        M: [p for m in ("VESSL(T1)", "VESSL(T2)") for p in _by_head(rows, M, m, "azimuth")]
        for M in (2, 3)
    }
    ours = [
        p["mean"]
        for M, what in product((2, 3), ("azimuth", "elevation"))
        for p in _by_head(rows, M, "ours(T2), masks", what)
    ]
    paper = {
        M: " and ".join(f"{printed(PAPER[M][m][0]):.0f}°" for m in ("VESSL(T1)", "VESSL(T2)"))
        for M in (2, 3)
    }
    return told(
        FINDINGS,
        two=span((p["mean"] for p in vessl[2]), "{:.0f}°"),
        three=span((p["mean"] for p in vessl[3]), "{:.0f}°"),
        paper_two=paper[2],
        paper_three=paper[3],
        medians=span((p["median"] for p in vessl[2] + vessl[3]), "{:.0f}°"),
        within=ceil(max(ours)),
    )


EXPERIMENT = Experiment(
    name="table3",
    title="Table 3: two and three talkers",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,
    sound=True,
)
