"""A population of heads: posteriors against dense oracles, components, adaptation, files."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike

import earatlas as ea
from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import ImpulseResponses
from earatlas.localization.learned_head import Accuracy
from earatlas.packaged_atlases import PEOPLE_ATLAS
from earatlas.population.adaptation import AdaptationSettings, ListenerClue, adapt_listener
from earatlas.population.adaptation_report import (
    Adaptation,
    AdaptationVerdict,
    adapt_to_recordings,
)
from earatlas.population.chart_regression import ChartRegression, SharedCharts
from earatlas.population.deviation_information import DeviationInformation, cue_information
from earatlas.population.equalization import equalization_loadings
from earatlas.population.learned_population import LearnedPopulation
from earatlas.population.learning import PopulationSettings, learn_population_model
from earatlas.population.listener_templates import gaussian_factors
from earatlas.population.membership import HeadProblem, Membership
from earatlas.population.population import Listener, Population, fit_population
from earatlas.population_atlas import PopulationAtlas
from earatlas.ppam import listener_model
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.cue_bands import CueBands
from earatlas.ppam.listener_model import ChartSelectionSettings, ListenerPPAM
from earatlas.types import Array, field_values

K, D, H, J, E, L = 3, 7, 4, 2, 1, 2  # coordinates: J of heads, E of the equalization
BANDS = CueBands(np.array([0, 0, 1, 3, 1, 2, 3]))
# For tests that do not depend on the calibration, which takes most of the time of learning
FEW_HELD_OUT = PopulationSettings(folds=2, sounds_per_head=4)
FEW_CUES = AdaptationSettings(min_observed=3.0)  # recordings of D cues are usable


def small_population(rng: np.random.Generator, shared: float = 0.4) -> Population:
    """Return a population with random parameters and charts in three places."""
    centres = np.array([[0.0, 0.0], [30.0, 10.0], [120.0, -20.0]])
    return Population(
        SharedCharts(centres, 6.0),
        BANDS,
        rng.normal(size=(K, L + 1, D)) * [[0.1], [0.2], [1.0]],
        rng.normal(size=(K, H, J)),
        rng.uniform(0.3, 2.0, (K, D)),
        shared,
        0.7 * rng.normal(size=(H, E)),
    )


def dense_covariance(model: ListenerPPAM, k: int) -> Array:
    """Return C_k + A_k Γ_k A_kᵀ, the covariance of the cues of chart k."""
    repeat = np.zeros((D, H))
    for d in range(D):
        repeat[d, BANDS.band[d]] = 1.0
    loadings = repeat @ model.loadings[k]
    A, gamma = model.A[k], model.gammas[k]
    covariance: Array = np.diag(model.residual[k]) + loadings @ loadings.T + A @ gamma @ A.T
    return covariance


def equalization(layout: CueLayout, bands: CueBands, deviation_db: float) -> Array:
    """Return loadings with the correlation length of the settings."""
    return equalization_loadings(
        layout, bands, deviation_db=deviation_db, octaves=0.7, components=8
    )


def test_bands_equal_loops() -> None:
    """Sums, means and repeated values agree with loops over the cues."""
    values = np.random.default_rng(0).normal(size=(2, D))
    sums = np.zeros((2, H))
    for d in range(D):
        sums[:, BANDS.band[d]] += values[:, d]
    counts = np.array([2, 2, 1, 2])
    np.testing.assert_allclose(BANDS.sum(values), sums, rtol=1e-12)
    np.testing.assert_allclose(BANDS.mean(values), sums / counts, rtol=1e-12)
    np.testing.assert_array_equal(BANDS.expand(sums)[:, 5], sums[:, 2])


def test_bands_of_a_layout_do_not_mix_kinds() -> None:
    """Every band has cues of one kind only."""
    layout = CueLayout()
    bands = CueBands.of(layout)
    assert len(bands) < layout.n_cues / 5
    for h in range(len(bands)):
        assert len(set(layout.cue_kinds[bands.band == h])) == 1


def test_posterior_equals_dense_gaussians() -> None:
    """log p(y, k) and p(u | y, k) equal those of full covariance matrices."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(J + E, J + E))
    listener = Listener(rng.normal(size=J + E), 0.1 * root @ root.T)
    model = small_population(rng).model(listener)
    y = rng.normal(size=D)
    found = model.posteriors(CueStatistics.stack([CueStatistics.from_vector(y)]))
    for k in range(K):
        C = dense_covariance(model, k)
        r = y - model.b[k]
        log_p = np.log(model.weights[k]) - 0.5 * (r @ np.linalg.solve(C, r))
        log_p -= 0.5 * np.linalg.slogdet(C)[1]
        np.testing.assert_allclose(found.logs[k, 0], log_p, rtol=1e-9)
        gain = model.gammas[k] @ model.A[k].T @ np.linalg.inv(C)
        np.testing.assert_allclose(found.means[:, k, 0], gain @ r, rtol=1e-8, atol=1e-10)
        V = model.gammas[k] - gain @ model.A[k] @ model.gammas[k]
        np.testing.assert_allclose(found.covariances[:, :, k, 0], V, rtol=1e-8, atol=1e-9)


def test_complete_cues_have_the_covariance_of_the_deviations() -> None:
    """Inverse map and densities of complete cues use the loadings, as the posterior does."""
    rng = np.random.default_rng(11)
    model = small_population(rng).model()
    y = model.b[rng.integers(K, size=5)] + 0.3 * rng.normal(size=(5, D))
    weights, means, covariances = model.inverse_batch(y)
    x = model.inverse_map(y)
    logs, u = model.log_gating(x)
    for n in range(5):
        posterior = model.posterior(CueStatistics.from_vector(y[n]))
        np.testing.assert_allclose(weights[n], posterior.weights, rtol=1e-9)
        np.testing.assert_allclose(means[n], posterior.means, rtol=1e-9)
        np.testing.assert_allclose(covariances, posterior.covariances, rtol=1e-9)
        np.testing.assert_allclose(x[n], posterior.best, rtol=1e-9)
        joint = 0.0
        for k in range(K):
            C = dense_covariance(model, k) - model.A[k] @ model.gammas[k] @ model.A[k].T
            r = y[n] - model.b[k] - model.A[k] @ u[n, k]
            log_p = -0.5 * (r @ np.linalg.solve(C, r) + np.linalg.slogdet(2 * np.pi * C)[1])
            joint += np.exp(logs[n, k] + log_p)
        expected = np.log(joint) - np.log(np.exp(logs[n]).sum())
        found = model.forward_log_density(x[n : n + 1], y[n : n + 1])
        np.testing.assert_allclose(found[0], expected, rtol=1e-9)


def test_selected_charts_are_those_with_a_noticeable_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Charts that are left out are improbable; the others have the posteriors of all charts."""
    settings = ChartSelectionSettings(coordinates=2, sounds_at_once=4, sounds_together=2)
    monkeypatch.setattr(listener_model, "_SELECTION", settings)
    rng = np.random.default_rng(5)
    model = small_population(rng).model()
    near, frames = rng.integers(K, size=7), 30.0  # so many frames that few charts explain them
    y = model.b[near] + 0.1 * rng.normal(size=(7, D))
    sounds = CueStatistics(np.full((7, D), frames), frames * y, frames * y**2)
    every, some = (model.posteriors(sounds, all_charts=own) for own in (True, False))
    kept = np.isfinite(some.logs)
    assert kept.any(axis=0).all()
    assert not kept.all()
    assert (every.logs.max(axis=0) - every.logs)[~kept].min() > 15
    np.testing.assert_allclose(some.logs[kept], every.logs[kept], rtol=1e-9)
    np.testing.assert_allclose(some.means[:, kept], every.means[:, kept], rtol=1e-9)
    np.testing.assert_allclose(some.covariances[:, :, kept], every.covariances[:, :, kept])


def test_unobserved_cues_change_nothing() -> None:
    """NaN in cues that were not observed does not change the posterior."""
    rng = np.random.default_rng(2)
    model, y = small_population(rng).model(), rng.normal(size=D)
    Q = np.array([1.0, 0, 1, 1, 0, 1, 1])
    whole = CueStatistics(Q, Q * y, Q * y**2)
    broken = CueStatistics(Q, np.where(Q > 0, Q * y, np.nan), np.where(Q > 0, Q * y**2, np.nan))
    every = np.arange(K)
    np.testing.assert_array_equal(model.log_joint(whole, every), model.log_joint(broken, every))


def test_unknown_listener_has_the_covariance_of_the_population() -> None:
    """Without recordings, the deviations of w and of v add up to N(0, I), and γ to each chart."""
    population = small_population(np.random.default_rng(3))
    model = population.model()
    for k in range(K):
        beta = np.hstack([population.loadings[k], population.equalization])
        np.testing.assert_allclose(
            model.loadings[k] @ model.loadings[k].T, beta @ beta.T, rtol=1e-9, atol=1e-12
        )


def test_components_have_the_covariance_of_heads() -> None:
    """With as many coordinates as heads, β βᵀ is the covariance of the heads, in every chart."""
    rng = np.random.default_rng(4)
    S = 6
    maps = rng.normal(size=(S, K, L + 1, D))
    covered = np.ones(K, dtype=bool)
    heads = [ChartRegression(m, covered, np.full((K, D), 0.5)) for m in maps]
    charts = SharedCharts(np.array([[0.0, 0.0], [30.0, 10.0], [120.0, -20.0]]), 6.0)
    population = fit_population(
        charts, BANDS, heads, coordinates=S - 1, shared=0.3, unexplained_share=0.0,
        equalization=np.zeros((H, 0)),
    )  # fmt: skip
    np.testing.assert_allclose(population.mean, maps.mean(axis=0), rtol=1e-9)
    banded = BANDS.mean(maps[:, :, -1] - maps[:, :, -1].mean(axis=0))
    for k in range(K):
        beta = population.loadings[k]
        expected = np.einsum("sh,sg->hg", banded[:, k], banded[:, k]) / S
        np.testing.assert_allclose(beta @ beta.T, expected, rtol=1e-4, atol=1e-5)


def test_head_without_a_chart_does_not_change_its_mean() -> None:
    """A head that covers a part of the sphere contributes there only."""
    rng = np.random.default_rng(5)
    maps = rng.normal(size=(5, K, L + 1, D))
    masks = np.ones((5, K), dtype=bool)
    masks[4, 1] = False
    maps[4, 1] = 0.0
    heads = [ChartRegression(m, c, np.zeros((K, D))) for m, c in zip(maps, masks, strict=True)]
    charts = SharedCharts(np.array([[0.0, 0.0], [30.0, 10.0], [120.0, -20.0]]), 6.0)
    population = fit_population(
        charts, BANDS, heads, coordinates=2, shared=0.3, unexplained_share=0.2,
        equalization=np.zeros((H, 0)),
    )  # fmt: skip
    np.testing.assert_allclose(population.mean[1], maps[:4, 1].mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(population.mean[0], maps[:, 0].mean(axis=0), rtol=1e-9)


def test_charts_reproduce_an_affine_head() -> None:
    """Cues that are affine in the chart coordinates have these maps, but for the small ridge."""
    rng = np.random.default_rng(6)
    charts = SharedCharts(np.array([[10.0, 5.0]]), 6.0)
    directions = np.column_stack([rng.uniform(0, 20, 60), rng.uniform(-5, 15, 60)])
    u = Sphere().charts(charts.centres, directions)[:, 0]
    A, b = rng.normal(size=(D, L)), rng.normal(size=D)
    fitted = ChartRegression.of(charts, directions, u @ A.T + b)
    np.testing.assert_allclose(fitted.maps[0, :L].T, A, rtol=0.2, atol=0.05)


def test_equalization_is_smooth_and_concerns_levels_only() -> None:
    """γ γᵀ has the given deviation at every level band, is smooth there, and is 0 for phases."""
    layout = CueLayout()
    bands = CueBands.of(layout)
    gamma = equalization(layout, bands, 3.0)
    levels = bands.mean((layout.cue_kinds == "ild").astype(np.float64)) > 0.5
    covariance = gamma @ gamma.T
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)[levels]), 3.0, rtol=0.06)
    assert not covariance[~levels].any()
    hz = bands.mean(np.float64(layout.rate / layout.window) * layout.cue_frequencies.astype(float))
    one, octave, far = (int(np.flatnonzero(levels)[np.abs(hz[levels] - f).argmin()])
                        for f in (2000, 4000, 7000))  # fmt: skip
    assert covariance[one, octave] == pytest.approx(9 * np.exp(-0.5 / 0.7**2), rel=0.1)
    assert covariance[one, far] < covariance[one, octave]
    assert equalization(layout, bands, 0.0).shape == (len(bands), 0)


def test_labelled_recording_gives_the_posterior_of_w() -> None:
    """With one chart and one recording, the listener is the Gaussian posterior of w."""
    rng = np.random.default_rng(7)
    whole = small_population(rng)
    population = Population(
        SharedCharts(whole.charts.centres[:1], 6.0), BANDS, whole.mean[:1], whole.loadings[:1],
        whole.residual[:1], whole.shared, whole.equalization,
    )  # fmt: skip
    y, model = rng.normal(size=D), population.model()
    clue = ListenerClue.of_cues(population, model, CueStatistics.from_vector(y))
    listener = adapt_listener(population, [clue])
    repeat = np.zeros((D, H))
    repeat[np.arange(D), BANDS.band] = 1.0
    beta = repeat @ np.hstack([population.loadings[0], population.equalization])
    rho = np.array([population.shared] * J + [1.0] * E)  # an equalization has no local part
    rest = np.diag(population.residual[0]) + beta @ np.diag(1 - rho) @ beta.T
    rest += model.A[0] @ model.gammas[0] @ model.A[0].T
    precision = np.diag(1 / rho) + beta.T @ np.linalg.solve(rest, beta)
    mean = np.linalg.solve(precision, beta.T @ np.linalg.solve(rest, y - model.b[0]))
    np.testing.assert_allclose(listener.covariance, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_allclose(listener.mean, mean, rtol=1e-8)


def recordings_of(
    population: Population, w: Array, count: int, rng: np.random.Generator
) -> list[CueStatistics]:
    """Return cue vectors of a listener with coordinates w, at random charts."""
    model = population.model(Listener(w, 1e-9 * np.eye(len(w))))
    sounds = []
    for _ in range(count):
        k = rng.integers(K)
        y = model.b[k] + rng.normal(size=D) * 0.3 * np.sqrt(population.residual[k])
        sounds.append(CueStatistics.from_vector(y))
    return sounds


def test_unlabelled_adaptation_finds_the_listener() -> None:
    """Many recordings of unknown directions reveal w, and held-out ones become more probable."""
    rng = np.random.default_rng(8)
    population = small_population(rng, shared=0.9)
    w = np.array([1.5, -1.0, 0.6])
    sounds = recordings_of(population, w, 60, rng)
    prior = population.model()
    clues = [ListenerClue.of_cues(population, prior, sound) for sound in sounds]
    listener = adapt_listener(population, clues, settings=AdaptationSettings(iterations=15))
    assert np.linalg.norm(listener.mean - w) < 0.5 * np.linalg.norm(w)
    found = adapt_to_recordings(
        population, Calibration(max_residual=2.0), sounds, settings=FEW_CUES
    )
    assert found.verdict is AdaptationVerdict.ADAPTED
    assert found.gain_nats > 0


def test_two_listeners_one_after_the_other_are_refused() -> None:
    """Two halves of different listeners are refused, those of one listener are not."""
    rng = np.random.default_rng(13)
    population = small_population(rng, shared=0.9)
    one, two = np.array([1.5, -1.0, 0.6]), np.array([-1.5, 1.0, -0.6])
    first, again, second = (recordings_of(population, w, 24, rng) for w in (one, one, two))
    calibration = Calibration(max_residual=2.0)
    same = adapt_to_recordings(population, calibration, first + again, settings=FEW_CUES)
    other = adapt_to_recordings(population, calibration, first + second, settings=FEW_CUES)
    assert same.verdict is AdaptationVerdict.ADAPTED
    assert other.verdict is AdaptationVerdict.TWO_LISTENERS
    np.testing.assert_array_equal(other.listener.mean, 0.0)


def test_a_listener_far_outside_of_the_population_is_refused() -> None:
    """Coordinates that no member has are those of errors, even if recordings become probable."""
    rng = np.random.default_rng(14)
    population, far = small_population(rng, shared=0.9), np.array([2.7, -1.8, 1.08])
    sounds = recordings_of(population, far, 40, rng)
    calibration = Calibration(max_residual=1e6)  # the residual is not what is tested
    found = adapt_to_recordings(population, calibration, sounds, settings=FEW_CUES)
    assert found.verdict is AdaptationVerdict.OTHER_HEAD
    assert found.gain_nats > 3


def test_silence_and_one_direction_are_refused() -> None:
    """Without sound, or with one direction only, the listener stays unknown."""
    rng = np.random.default_rng(9)
    population, calibration = small_population(rng), Calibration(max_residual=2.0)
    nothing = CueStatistics(np.zeros(D), np.zeros(D), np.zeros(D))
    found = adapt_to_recordings(population, calibration, [nothing] * 8)
    assert found.verdict is AdaptationVerdict.TOO_FEW
    np.testing.assert_array_equal(found.listener.mean, 0.0)
    model, Q = population.model(), np.full(D, 100.0)
    y = model.b[1]
    same = [CueStatistics(Q, Q * y, Q * y**2)] * 8
    one = adapt_to_recordings(population, calibration, same, settings=FEW_CUES)
    assert one.verdict is AdaptationVerdict.ONE_DIRECTION


def test_heads_that_do_not_belong_are_reported() -> None:
    """Exchanged ears, a head that faces backwards and an equalized one are left out by name."""
    grid = Sphere().grid(20.0)

    def responses(turn: float) -> Array:
        return ea.simulated_head(np.add(grid, (turn, 0.0))).responses().samples

    members = [responses(turn) for turn in (-4.0, -2.0, 0.0, 2.0, 4.0)]
    spectra = np.fft.rfft(responses(1.0), 1024)
    common = np.sqrt((np.abs(spectra) ** 2).mean(axis=0))
    equalized = np.fft.irfft(spectra / common)
    rate = ea.simulated_head(grid[:1]).responses().rate
    made = [*members, responses(1.0)[:, ::-1], responses(181.0), equalized]
    heads = [
        ea.Head(f"{n}", grid, ImpulseResponses(samples, rate)) for n, samples in enumerate(made)
    ]
    learned = learn_population_model(heads, settings=FEW_HELD_OUT, rooms=False)
    problems = [member.problem for member in learned.members]
    assert problems[:5] == [None] * 5
    assert problems[5:] == [
        HeadProblem.EARS_SWAPPED, HeadProblem.FACES_BACK, HeadProblem.EQUALIZED,
    ]  # fmt: skip


def test_two_heads_are_no_population() -> None:
    """Fewer than three heads raise an error with a remedy."""
    head = ea.simulated_head([[azimuth, 0.0] for azimuth in range(-90, 91, 20)])
    with pytest.raises(InputError, match="at least 3"):
        learn_population_model([head, head])


def test_heads_without_common_directions_are_refused() -> None:
    """Two heads on one side and one on the other, which has no chart of two heads."""
    rng = np.random.default_rng(4)
    charts = SharedCharts(np.array([[0.0, 0.0], [90.0, 0.0]]), 6.0)
    heads = [
        ChartRegression(rng.normal(size=(2, L + 1, D)), np.array(covered), np.ones((2, D)))
        for covered in ([True, False], [False, True])
    ]
    with pytest.raises(InputError, match="directions in common"):
        fit_population(
            charts, BANDS, heads, coordinates=1, shared=0.3, unexplained_share=0.2,
            equalization=np.zeros((H, 0)),
        )  # fmt: skip


def test_file_is_exact(tmp_path: object) -> None:
    """An atlas that is read again has the same model, listener and members."""
    rng, layout = np.random.default_rng(10), CueLayout()
    bands = CueBands.of(layout)
    centres = np.array([[0.0, 0.0], [90.0, 30.0]])
    population = Population(
        SharedCharts(centres, 5.0), bands, rng.normal(size=(2, 3, layout.n_cues)),
        rng.normal(size=(2, len(bands), 4)), rng.uniform(0.01, 9.0, (2, layout.n_cues)), 0.3,
        equalization(layout, bands, 3.0),
    ).rounded()  # fmt: skip
    learned = LearnedPopulation(
        population.model(), layout,
        Calibration(kernel_widths=(2.0, 30.0), kernel_weights=(0.8, 0.2)),
        Accuracy(5, 1.0, 2.0, 0.1, 1.0, 2.0), {"head": "test"}, population=population,
        members=(Membership("a", 1.0, None), Membership("b", 2.5, HeadProblem.OTHER_KIND)),
    )  # fmt: skip
    atlas = PopulationAtlas(**field_values(learned)).for_listener(
        Listener(rng.normal(size=12), np.eye(12))
    )
    path = atlas.save(f"{tmp_path}/people.atlas")
    again = PopulationAtlas.load(path)
    np.testing.assert_array_equal(again.model.b, atlas.model.b)
    assert isinstance(again.model, ListenerPPAM)
    assert isinstance(atlas.model, ListenerPPAM)
    np.testing.assert_array_equal(again.model.loadings, atlas.model.loadings)
    assert again.members == atlas.members
    assert again.calibration == atlas.calibration
    assert again.digest == atlas.digest


def test_people_may_fit_mean_templates_less_well() -> None:
    """The typical nats per onset of a loaded population are the 70th percentile of its scenes."""
    localizer = ea.people_atlas().reverberant_localizer
    assert localizer is not None
    scores = localizer.score_calibration
    expected = np.percentile(scores.features[:, 0], 70)
    assert scores.typical_nats_per_onset == pytest.approx(expected)
    assert expected < np.percentile(scores.features[:, 0], 85)


def test_packaged_atlas_of_people() -> None:
    """The packaged atlas loads by its name, is small, names its licence, and finds a talker."""
    atlas = ea.Atlas.load("people")
    assert isinstance(atlas, ea.PopulationAtlas)
    assert PEOPLE_ATLAS.stat().st_size < 8e6
    assert "Regents of the University of California" in atlas.about["licence"]
    assert atlas.accuracy is not None
    assert atlas.accuracy.median_degrees < 12
    head = ea.simulated_head([[60, 0]])
    scene = ea.render_scene(head, [ea.synthetic_speech(1.5)], [[60, 0]])
    found = atlas.localize(scene.mixture)
    # The simulated head is no person, so only the angle from the median plane is right.
    vectors = to_vectors(np.array([found.direction, [60.0, 0.0]]))
    assert abs(np.diff(np.degrees(np.arcsin(vectors[:, 1])))[0]) < 10


def test_single_head_cannot_be_adapted() -> None:
    """An atlas of one head has no listener coordinates."""
    with pytest.raises(ea.InputError, match="must be of many heads"):
        ea.example_atlas().adapt([])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None], "one entry per recording, got 1 for 2"),
        ([(400, 0), None], "azimuths within"),
        ([(0, 95), None], "azimuths within"),
        ([(1, 2, 3), None], "azimuths within"),
        (["left", None], "azimuths within"),
        ([(float("nan"), 0), None], "azimuths within"),
    ],
)
def test_labels_are_checked_before_the_work(labels: list[ArrayLike | None], message: str) -> None:
    """Labels that do not match the recordings are one sentence; no recording is read."""
    with pytest.raises(InputError, match=message):
        ea.people_atlas().adapt(["missing.wav", "missing.wav"], labels)


def test_recordings_are_a_list_of_recordings() -> None:
    """A single recording, numbers and other values are refused in one sentence."""
    atlas, noise = ea.people_atlas(), ea.Audio(np.ones((2, 8000)), 16_000)
    recordings: list[object] = ["talker.wav", 5, {noise}, [noise, 5], [np.ones((2, 99))]]
    for given in recordings:
        with pytest.raises(InputError, match="recordings must be"):
            atlas.adapt(given)  # type: ignore[arg-type]
    for labels in ("left", 5, {0: (1, 2)}):
        with pytest.raises(InputError, match="labels must be"):
            atlas.adapt([noise], labels)  # type: ignore[arg-type]


def test_silent_recording_is_left_out() -> None:
    """One silent recording does not end an adaptation; if all are silent, there is none."""
    atlas, silent = ea.people_atlas(), ea.Audio(np.zeros((2, 32_000)), 16_000)
    talker = ea.example_recording()
    with pytest.warns(ea.EaratlasWarning, match=r"left out of the adaptation.*silent"):
        _, adaptation = atlas.adapt([talker, silent])
    assert adaptation.recordings == 1
    with pytest.raises(InputError, match=r"must contain sound, got 2.*is silent"):
        atlas.adapt([silent, silent])


def test_information_gives_the_evidence_of_every_listener() -> None:
    """log p(recording, chart) follows from c, η and Λ for any listener, as from its PPAM."""
    rng = np.random.default_rng(11)
    population, root = small_population(rng), rng.normal(size=(J + E, J + E))
    sound, every = CueStatistics.from_vector(rng.normal(size=D)), np.arange(K)
    found = cue_information(population, population.model(), sound, every)
    listener = Listener(rng.normal(size=J + E), 0.1 * root @ root.T)
    np.testing.assert_allclose(
        found.log_evidence(listener, population.shares),
        population.model(listener).log_joint(sound, every),
        rtol=1e-9,
    )


def test_evidence_is_the_integral_over_deviations() -> None:
    """E equals the sum of exp(c + η·z - z·Λ z / 2) N(z; 0, I) over a fine grid."""
    rng = np.random.default_rng(12)
    eta, root = rng.normal(size=(1, 2)), rng.normal(size=(2, 2))
    Lambda = (root @ root.T)[None]
    found = DeviationInformation(np.zeros((1, 2)), np.array([0.7]), eta, Lambda)
    axis = np.linspace(-9, 9, 401)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = 0.7 + z @ eta[0] - 0.5 * np.einsum("ni,ij,nj->n", z, Lambda[0] + np.eye(2), z)
    expected = np.log(np.exp(logs).sum() * (axis[1] - axis[0]) ** 2 / (2 * np.pi))
    np.testing.assert_allclose(found.log_evidence()[0], expected, rtol=1e-6)


@pytest.mark.parametrize("peak_db", [0.0, 6.0])
def test_gaussian_factors_keep_mass_and_mean(peak_db: float) -> None:
    """Also where the likelihood has two peaks and is wider than the prior, so that a is 0."""
    steps = np.array([-9.0, -6.0, -3.0, 0.0, 3.0, 6.0, 9.0])
    variances = np.array([[16.0, 9.0]])
    logs = -0.5 * ((np.abs(steps) - peak_db) / 2.0) ** 2 + 0.1 * steps
    logs = np.stack([logs, logs - 0.3 * steps])[None]  # (1, H, S)
    a, b, c = gaussian_factors(logs, steps, variances, 0.5)
    assert ((a == 0) == (peak_db > 0)).all()
    prior = np.exp(-0.5 * steps**2 / variances[..., None])
    prior /= prior.sum(axis=-1, keepdims=True)
    joint = np.exp(logs) * prior
    mass, before = joint.sum(axis=-1), (prior * steps**2).sum(axis=-1)
    posterior_variance = 1 / (a + 1 / before)
    np.testing.assert_allclose(b * posterior_variance, (joint @ steps) / mass, rtol=1e-9)
    log_mass = c + 0.5 * b**2 * posterior_variance - 0.5 * np.log1p(a * before)
    np.testing.assert_allclose(log_mass, np.log(mass), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("sign", "turn", "verdict"),
    [(-1, 0, AdaptationVerdict.MIRRORED_LABELS), (1, 90, AdaptationVerdict.WRONG_LABELS)],
)
def test_wrong_labels_are_refused(sign: int, turn: float, verdict: AdaptationVerdict) -> None:
    """Labels with left and right exchanged, or of other directions, are recognized."""
    rng, atlas = np.random.default_rng(13), ea.people_atlas()
    model = atlas.population.model()
    charts = np.flatnonzero(np.abs(np.abs(model.centres[:, 0]) - 60) < 30)
    charts = rng.choice(charts[np.abs(model.centres[charts, 1]) < 40], 8, replace=False)
    sounds = [CueStatistics.from_vector(model.b[k]).scaled(100.0) for k in charts]
    x = model.centres[charts] * (sign, 1.0)
    labels = list(np.column_stack([(x[:, 0] + turn + 180) % 360 - 180, x[:, 1]]))
    found = adapt_to_recordings(atlas.population, atlas.calibration, sounds, labels)
    assert found.verdict is verdict


def test_templates_for_rooms_depend_on_the_listener() -> None:
    """The level templates deviate by β w as the charts do; the file holds the expected ones."""
    atlas = ea.people_atlas()
    population = atlas.population
    w = np.random.default_rng(14).normal(size=population.n_coordinates)
    listener = Listener(w, 1e-3 * np.eye(len(w)))
    mine = atlas.for_listener(listener)
    assert atlas.reverberant_localizer is not None
    assert mine.reverberant_localizer is not None
    before = atlas.reverberant_localizer.direct_sound.templates
    after = mine.reverberant_localizer.direct_sound.templates
    change = after.level_db - before.level_db
    ild = atlas.layout.cue_kinds == "ild"
    charts = mine.model.b[:, ild] - atlas.model.b[:, ild]
    x = Sphere().nearest(before.directions, population.charts.centres)
    rows = np.round(before.frequencies_hz / 15.625).astype(int) - 1
    agreement = np.corrcoef(change[x].ravel(), charts[:, rows].ravel())[0, 1]
    assert agreement > 0.9
    again = mine.for_listener(None).reverberant_localizer
    assert again is not None
    np.testing.assert_array_equal(again.direct_sound.templates.level_db, before.level_db)


def test_repr_of_an_adaptation_is_one_line() -> None:
    """It has the verdict and the numbers, not the coordinates of the listener."""
    found = Adaptation(
        AdaptationVerdict.ADAPTED, Listener(np.zeros(2), np.eye(2)), 16, 1.256, 0.6, 0.25
    )
    assert repr(found) == "Adaptation(ADAPTED, 16 recordings, +1.26 nats, residual 0.60 to 0.25)"
    found = replace(found, residual_before=np.nan, residual_after=np.nan)
    assert repr(found) == "Adaptation(ADAPTED, 16 recordings, +1.26 nats)"
