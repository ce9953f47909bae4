"""Separation at given directions: the cues of known directions, order, doubts, and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_vessl import EXACT, every_setting, make_problem, make_source_model

import earatlas as ea
from earatlas.errors import InputError
from earatlas.localization.diagnostics import DoubtKind
from earatlas.separation.pipeline import SeparationOptions, separate
from earatlas.separation.separator import ObservationSettings, Separator
from earatlas.separation.source_model import VESSLSettings
from earatlas.separation.vessl import VESSL

PLACES = np.array([[41.0, 1.0], [-64.0, 24.0]])
KNOWN = np.array([[12.0, -7.0], [-31.0, 22.0]])  # of the small problem


@pytest.fixture(scope="module")
def scene() -> ea.SimulatedScene:
    """Return two synthetic talkers."""
    sounds = [ea.synthetic_speech(1.5, seed=seed) for seed in (1, 2)]
    return ea.render_scene(ea.simulated_head(PLACES), sounds, PLACES)


@every_setting
def test_cues_at_a_known_direction(settings: VESSLSettings) -> None:
    """Each cue is the product of two Gaussians, by loops: the learned map and the observations."""
    model, v = make_source_model(settings), make_source_model(settings).noise
    vessl = make_problem(settings)
    rng = np.random.default_rng(4)
    statistics = vessl.bins.statistics(rng.dirichlet(np.ones(2), len(vessl.bins)).T)[1]
    source = model.posterior_at(KNOWN[0], statistics, v)
    means, variances = model.model.expected_cues(KNOWN[:1])
    cues, divergence = np.zeros(len(v)), 0.0
    for d in range(len(v)):
        mu, o = 0.0, 0.5  # a phase without a learned map
        if d in model.learned:
            own = int(np.flatnonzero(model.learned == d)[0])
            mu, o = means[0, own], variances[0, own]
        precision = model.frame_weight * statistics.counts[d] / v[d]
        variance = 1 / (1 / o + precision)
        observed = precision * statistics.means[d] if precision else 0.0
        cues[d] = variance * (mu / o + observed)
        ratio = variance / o
        divergence += 0.5 * (ratio - 1 - math.log(ratio) + (cues[d] - mu) ** 2 / o)
        assert source.squares[d] == pytest.approx(cues[d] ** 2 + variance, rel=1e-9)
    np.testing.assert_allclose(source.cues, cues, **EXACT)
    assert source.kl_divergence == pytest.approx(divergence, rel=1e-9)
    assert source.posterior.best.tolist() == KNOWN[0].tolist()
    assert source.posterior.radius_90 == pytest.approx(settings.given_radius, rel=0.01)


@every_setting
@pytest.mark.parametrize("n_prior", [0, 2])
def test_free_energy_does_not_decrease(settings: VESSLSettings, n_prior: int) -> None:
    """Also with known directions, no iteration decreases the free energy."""
    problem = make_problem(settings, n_prior=n_prior)
    vessl = VESSL(
        problem.source_model, problem.bins, prior_statistics=problem.prior_statistics,
        directions=KNOWN,
    )  # fmt: skip
    state = vessl.run(vessl.initialize_at(KNOWN), steps=8)
    gains = np.diff(state.free_energies)
    assert len(gains) >= 1
    assert (gains > -1e-9 * np.abs(state.free_energies[0])).all()
    np.testing.assert_array_equal(state.directions, KNOWN)


def test_directions_and_order_are_kept(scene: ea.SimulatedScene) -> None:
    """The sources have the given directions, and relabelling them relabels the answer."""
    atlas = ea.example_atlas()
    found = [atlas.separate(scene.mixture, directions=x) for x in (PLACES, PLACES[::-1])]
    for one, places, images in zip(
        found, (PLACES, PLACES[::-1]), (scene.images, scene.images[::-1]), strict=True
    ):
        np.testing.assert_array_equal(one.directions, places)
        assert all(source.given and not source.doubts for source in one.sources)
        assert one.sources[0].to_dict()["given"]
        for source, image in zip(one.sources, images, strict=True):
            error = source.audio.samples - image
            assert (error**2).sum() < 0.01 * (image**2).sum()  # 20 dB
    assert not found[0].doubts
    swapped = found[1].sources[1].audio.samples
    assert np.abs(found[0].sources[0].audio.samples - swapped).max() < 1e-6
    assert not any(source.given for source in atlas.separate(scene.mixture).sources)


@pytest.mark.parametrize("block_seconds", [12.0, 0.5])
def test_a_wrong_direction_is_doubted(scene: ea.SimulatedScene, block_seconds: float) -> None:
    """It is kept, in short and in long recordings, and only its source has the doubt."""
    settings = ObservationSettings(block_seconds=block_seconds, overlap_seconds=0.1)
    separator = Separator(ea.example_atlas(), settings)
    options = SeparationOptions(directions=[[41.0, 1.0], [-45.0, 24.0]], rendering="soft")
    right, wrong = separate(separator, scene.mixture, options).sources
    assert right.doubts == ()
    assert [doubt.word for doubt in wrong.doubts] == [DoubtKind.DIRECTION_MISMATCH]
    np.testing.assert_allclose(wrong.direction, [-45.0, 24.0], rtol=1e-12)


def test_one_given_direction(scene: ea.SimulatedScene) -> None:
    """One source has all of the sound."""
    (source,) = ea.example_atlas().separate(scene.mixture, directions=[[10.0, 5.0]]).sources
    assert source.direction.tolist() == [10.0, 5.0]
    assert np.abs(source.audio.samples - scene.mixture.samples).max() < 1e-6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"directions": [10.0, 5.0]}, "directions must be of shape"),
        ({"directions": np.zeros((7, 2))}, "number of directions must be from 1 to 6, got 7"),
        ({"directions": [[0.0, 0.0]], "n_sources": 2}, "n_sources must be the number"),
    ],
)
def test_invalid_directions(values: dict[str, object], message: str) -> None:
    """Another shape, too many, or another number of sources are refused."""
    with pytest.raises(InputError, match=message):
        SeparationOptions(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("directions", "message"),
    [([[0.0, 95.0]], "elevation"), ([[np.nan, 0.0]], "finite"), ([[10.0]], "shape"),
     ([[40.0, 5.0], [9.0, 0.0], [40.0, 5.0]], r"differ, got \(40, 5\) twice")],
)  # fmt: skip
def test_directions_outside_the_space(
    scene: ea.SimulatedScene, directions: list[list[float]], message: str
) -> None:
    """Directions that the space of the head does not have are refused."""
    with pytest.raises(InputError, match=message):
        ea.example_atlas().separate(scene.mixture, directions=directions)
