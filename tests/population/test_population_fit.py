"""Fitting, learning and comparison of populations, against loops and invariants."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.population import learning
from earatlas.population.adaptation import AdaptationSettings
from earatlas.population.adaptation_report import (
    Adaptation,
    AdaptationVerdict,
    adapt_to_recordings,
)
from earatlas.population.chart_regression import ChartRegression, SharedCharts
from earatlas.population.membership import (
    HeadProblem,
    MembershipSettings,
    check_membership,
)
from earatlas.population.population import Population, fit_population
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.cue_bands import CueBands
from earatlas.types import Array, Mask

S, K, D, H, L = 6, 3, 7, 4, 2
BANDS = CueBands(np.array([0, 0, 1, 3, 1, 2, 3]))
CHARTS = SharedCharts(np.array([[0.0, 0.0], [30.0, 10.0], [120.0, -20.0]]), 6.0)

SYMMETRIC_GRID = np.array(
    [[float(a), float(e)] for a in range(-165, 181, 15) for e in range(-45, 76, 15)]
)


def fitted(
    maps: Array, covered: Mask | None = None, *, coordinates: int = 2, unexplained: float = 0.2
) -> Population:
    """Return the population of heads with these maps (S, K, L+1, D), and ψ of 0.5 within charts."""
    masks = np.ones((len(maps), K), dtype=bool) if covered is None else covered
    heads = [
        ChartRegression(np.where(own[:, None, None], m, 0.0), own, 0.5 * own[:, None] * np.ones(D))
        for m, own in zip(maps, masks, strict=True)
    ]
    return fit_population(
        CHARTS, BANDS, heads, coordinates=coordinates, shared=0.3, unexplained_share=unexplained,
        equalization=np.zeros((H, 0)),
    )  # fmt: skip


def test_residual_has_what_the_components_do_not_explain() -> None:
    """ψ is the variance within charts, outside of the components, and of the unexplained share."""
    maps = np.random.default_rng(1).normal(size=(S, K, L + 1, D))
    share = 0.2
    population = fitted(maps, unexplained=share)
    for k in range(K):
        for d in range(D):
            h = BANDS.band[d]
            same = np.flatnonzero(BANDS.band == h)
            offsets = maps[:, k, L][:, same].mean(axis=1)
            between = ((offsets - offsets.mean()) ** 2).mean()
            explained = (population.loadings[k, h] ** 2).sum() / (1 - share)
            expected = 0.5 + (between - explained) + share * between
            assert population.residual[k, d] == pytest.approx(expected, rel=1e-5)
            assert 0 < explained < between


def test_units_of_a_band_do_not_change_the_components() -> None:
    """A band that is a thousand times as large has loadings that are a thousand times as large."""
    maps = np.random.default_rng(2).normal(size=(S, K, L + 1, D))
    factor = np.where(BANDS.band == 3, 1000.0, 1.0)
    plain, scaled = (fitted(m).loadings for m in (maps, maps * factor))
    expected = plain * np.array([1.0, 1.0, 1.0, 1000.0])[None, :, None]
    for k in range(K):
        np.testing.assert_allclose(
            scaled[k] @ scaled[k].T, expected[k] @ expected[k].T, rtol=1e-3, atol=1e-3
        )


def test_charts_that_a_head_lacks_are_filled_from_its_coordinates() -> None:
    """Heads on a line have loadings along it, although every head lacks a chart."""
    rng = np.random.default_rng(3)
    scores, pattern = rng.normal(size=24), rng.normal(size=(K, H))
    maps = np.zeros((24, K, L + 1, D))
    maps[:, :, L] = BANDS.expand(scores[:, None, None] * pattern)
    covered = np.ones((24, K), dtype=bool)
    covered[np.arange(24), np.arange(24) % K] = False
    whole, part = (
        fitted(maps, mask, coordinates=1, unexplained=0.0).loadings[..., 0]
        for mask in (None, covered)
    )
    ratio = (whole * part).sum(axis=1) / (whole**2).sum(axis=1)  # (K,), 1 or -1 in all charts
    np.testing.assert_allclose(np.abs(ratio), 1.0, atol=0.35)
    outside = fitted(maps, covered, coordinates=1, unexplained=0.0).residual - 0.5
    assert outside.max() < 0.1 * BANDS.expand(pattern**2).max()


def test_a_small_residual_is_not_rounded_to_zero() -> None:
    """A variance below the smallest float16 stays positive."""
    population = fitted(np.random.default_rng(4).normal(size=(S, K, L + 1, D)))
    small = replace(population, residual=np.full((K, D), 1e-9)).rounded()
    assert (small.residual > 0).all()


def symmetric_head(directions: Array) -> Head:
    """Return a head of which one ear is the mirror image of the other."""
    left, mirrored = (
        ea.simulated_head(directions * sign).responses() for sign in ((1.0, 1.0), (-1.0, 1.0))
    )
    samples = np.stack([left.samples[:, 0], mirrored.samples[:, 0]], axis=1)
    return Head("symmetric", directions, ImpulseResponses(samples, left.rate))


def test_mirror_images_of_heads_belong_to_the_population() -> None:
    """The second map of a head is that of a head whose ears and azimuths are exchanged."""
    layout, grid = CueLayout(), Sphere().grid(20.0)
    head = ea.simulated_head(grid)
    ears = head.responses()
    swapped = Head("swapped", grid * (-1.0, 1.0), replace(ears, samples=ears.samples[:, ::-1]))
    charts = SharedCharts.covering(grid, 30.0)
    own, mirrored = learning._regressions(charts, head, layout)
    expected, _ = learning._regressions(charts, swapped, layout)
    np.testing.assert_allclose(mirrored.maps, expected.maps, atol=1e-6)
    assert np.abs(mirrored.maps - own.maps).max() > 1


def test_other_kinds_of_heads_are_reported() -> None:
    """One ear that is a copy of the other, and an ear that hears less, are left out by name."""
    layout, grid = CueLayout(), SYMMETRIC_GRID
    rate = ea.simulated_head(grid[:1]).responses().rate

    def head(name: str, turn: float, gain: Array | float = 1.0) -> Head:
        samples = ea.simulated_head(np.add(grid, (turn, 0.0))).responses().samples
        return Head(name, grid, ImpulseResponses(samples * gain, rate))

    heads = [head(f"{turn}", turn) for turn in (-4.0, -2.0, 0.0, 2.0, 4.0)]
    deaf = head("deaf", 1.0, np.array([1.0, 0.05])[None, :, None])
    charts, bands = SharedCharts.covering(grid, 22.5), CueBands.of(layout)
    population = fit_population(
        charts, bands, [r for one in heads for r in learning._regressions(charts, one, layout)],
        coordinates=4, shared=0.3, unexplained_share=0.2, equalization=np.zeros((len(bands), 0)),
    )  # fmt: skip
    members = check_membership(population.model(), layout, [*heads, deaf, symmetric_head(grid)])
    problems = [member.problem for member in members]
    assert problems == [None] * 5 + [HeadProblem.OTHER_KIND, HeadProblem.MIRRORED]


def test_a_symmetric_head_among_people_is_reported(data: Path) -> None:
    """A KU100 among people is left out; among other symmetric heads it belongs."""
    layout = CueLayout()
    with warnings.catch_warnings():  # the names of its authors are not UTF-8
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        ku100 = ea.read_sofa(data / "heads" / "ku100.sofa")
    people = [
        ea.read_sofa(data / "people" / f"cipic_{name}.sofa") for name in ("153", "154", "156")
    ]
    heads = [head.subset(np.abs(head.directions[:, 1]) < 12) for head in (*people, ku100)]
    charts, bands = SharedCharts.covering(heads[0].directions, 22.5), CueBands.of(layout)
    population = fit_population(
        charts, bands, [r for one in heads for r in learning._regressions(charts, one, layout)],
        coordinates=4, shared=0.3, unexplained_share=0.2, equalization=np.zeros((len(bands), 0)),
    )  # fmt: skip
    expected = population.model()
    members = check_membership(expected, layout, heads)
    assert [member.problem for member in members] == [None] * 3 + [HeadProblem.SYMMETRIC]
    members = check_membership(expected, layout, [heads[0], *[heads[3]] * 3])
    assert [member.problem for member in members[1:]] == [None] * 3
    loose = MembershipSettings(min_asymmetry_db=10.0)
    assert check_membership(expected, layout, heads, loose)[3].problem is None


def test_calibration_is_made_with_heads_that_were_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every fold is fitted without the heads that it localizes, on a grid with large charts.

    The heads were measured every 20°: the charts are 30° apart, and all heads belong.
    """
    counts: list[int] = []

    def counted(charts: SharedCharts, bands: CueBands, pairs: Sequence[object], **options: object):  # type: ignore[no-untyped-def]
        heads = list(pairs)
        counts.append(len(heads) // 2)
        return fit_population(charts, bands, heads, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(learning, "fit_population", counted)
    grid = Sphere().grid(20.0)
    heads = [
        Head(f"{turn}", grid, ea.simulated_head(np.add(grid, (turn, 0.0))).responses())
        for turn in (-4.0, -1.0, 2.0, 5.0)
    ]
    settings = learning.PopulationSettings(folds=2, sounds_per_head=2)
    learned = learning.learn_population_model(heads, settings=settings, rooms=False)
    assert counts == [4, 4, 2, 2]  # for the membership, the result, and without each fold
    spacing = 1.5 * heads[0].spacing_degrees
    assert learned.population.charts.width_degrees == pytest.approx(0.5 * spacing)
    assert all(member.problem is None for member in learned.members)


def verdict_of(error: float, count: int = 24, seed: int = 5) -> Adaptation:
    """Return the adaptation to recordings of the mean head with errors relative to ψ."""
    rng = np.random.default_rng(seed)
    population = fitted(5 * rng.normal(size=(K, L + 1, D)) + 0.3 * rng.normal(size=(S, 1, 1, D)))
    model, sounds = population.model(), []
    for _ in range(count):
        k = rng.integers(K)
        y = model.b[k] + error * rng.normal(size=D) * np.sqrt(population.residual[k])
        sounds.append(CueStatistics.from_vector(y))
    settings, calibration = AdaptationSettings(min_observed=3.0), Calibration(max_residual=2.0)
    return adapt_to_recordings(population, calibration, sounds, settings=settings)


def test_recordings_of_no_head_are_refused() -> None:
    """Residuals far above those of the population mean another head, and change nothing."""
    found = verdict_of(4.0)
    assert found.verdict is AdaptationVerdict.OTHER_HEAD
    assert found.residual_after > 2.0
    np.testing.assert_array_equal(found.listener.mean, 0.0)


def test_order_of_the_compared_heads_does_not_matter() -> None:
    """The fits are relative to a tolerance that all compared heads share."""
    heads = [ea.example_atlas(), ea.people_atlas()]
    scene = ea.render_scene(ea.simulated_head([[40, 0]]), [ea.synthetic_speech(1.0)], [[40, 0]])
    found = [
        {fit.name: fit.fit for fit in ea.compare_heads(scene.mixture, order)}
        for order in (heads, heads[::-1])
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_comparison_of_heads_warns_of_a_room() -> None:
    """A room changes the cues that are compared."""
    head = ea.simulated_head()
    sound, room = ea.synthetic_speech(3.0, seed=5), ea.Room(t60_seconds=0.5)
    scene = ea.render_scene(head, [sound], [[40, 0]], room=room)
    with pytest.warns(ea.EaratlasWarning, match="seems to be reverberant"):
        ea.compare_heads(scene.mixture, [ea.example_atlas()])


def test_comparison_of_heads_names_exchanged_arguments() -> None:
    """The recording comes first."""
    audio = ea.synthetic_speech(1.0)
    with pytest.raises(ea.InputError, match="recording comes first"):
        ea.compare_heads([ea.example_atlas()], audio)  # type: ignore[arg-type]
