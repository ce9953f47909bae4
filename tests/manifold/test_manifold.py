"""Tests of manifolds: LTSA, faithfulness scores, unlabelled learning and the estimator."""

import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components
from sklearn.manifold import LocallyLinearEmbedding, trustworthiness
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import earatlas as ea
from earatlas.experiments import EXPERIMENTS, Bench
from earatlas.experiments.figure_parts import pack_array
from earatlas.geometry.angles import to_vectors
from earatlas.manifold.faithfulness import Faithfulness, faithfulness
from earatlas.manifold.ltsa import alignment_matrix, ltsa, neighbour_graph, pca
from earatlas.manifold.unlabelled import learn_unlabelled
from earatlas.sklearn import BinauralManifold
from earatlas.types import Array


def sheet(rng: np.random.Generator, count: int = 60) -> tuple[Array, Array]:
    """Return points of a rectangle (count, 2), and their images on a bent surface (count, 5)."""
    u = rng.uniform([0, 0], [3.0, 1.0], size=(count, 2))
    a, b = u.T
    return u, np.stack([np.sin(a), np.cos(a), b, 0.2 * a * b, 0.1 * b**2], axis=1)


def neighbours_by_loops(y: Array, k: int, symmetric: bool) -> list[list[int]]:
    """Return neighbourhoods by their definition, pair by pair."""
    nearest = []
    for i in range(len(y)):
        order = sorted((float(((y[i] - y[j]) ** 2).sum()), j) for j in range(len(y)) if j != i)
        nearest.append([j for _, j in order[:k]])
    return [
        sorted(j for j in nearest[i] if not symmetric or i in nearest[j]) for i in range(len(y))
    ]


def alignment_by_loops(y: Array, neighbourhoods: list[list[int]], dims: int) -> Array:
    """Return the dense B, with (I - 11ᵀ/n)(I - Θ⁺Θ) for tangent coordinates Θ."""
    B = np.zeros((len(y), len(y)))
    for members in neighbourhoods:
        n = len(members)
        if n == 0:
            continue
        centring = np.eye(n) - np.ones((n, n)) / n
        _, _, axes = np.linalg.svd(centring @ y[members], full_matrices=False)
        theta = centring @ y[members] @ axes[:dims].T  # (n, L)
        W = centring @ (np.eye(n) - theta @ np.linalg.pinv(theta, rcond=1e-6))
        for p, i in enumerate(members):
            for q, j in enumerate(members):
                B[i, j] += W[p] @ W[q]
    return B


@pytest.mark.parametrize("symmetric", [True, False])
def test_alignment_matrix_equals_loop_oracle(rng: np.random.Generator, symmetric: bool) -> None:
    """Graph and matrix equal their definitions; symmetric neighbourhoods have many sizes."""
    _, y = sheet(rng)
    graph = neighbour_graph(y, 9, symmetric=symmetric)
    expected = neighbours_by_loops(y, 9, symmetric)
    neighbourhoods = [part.tolist() for part in np.split(graph.indices, graph.indptr[1:-1])]
    assert neighbourhoods == expected
    assert (len({len(members) for members in expected}) > 3) == symmetric
    B = alignment_matrix(y, graph, 2).toarray()
    np.testing.assert_allclose(B, alignment_by_loops(y, expected, 2), atol=1e-12)


def test_small_and_degenerate_neighbourhoods(rng: np.random.Generator) -> None:
    """B 1 = 0 and B ≥ 0 for few points, for points on or near a line, and for equal points.

    Neighbourhoods with at most L + 1 points have no residual and contribute nothing.
    """
    _, y = sheet(rng, 40)
    y[10:16] = y[10] + np.outer(np.arange(6.0), [0.3, -0.1, 0.2, 0.0, 0.5])
    y[16:22] = y[16] + np.outer(rng.normal(size=6), rng.normal(size=5))
    y[16:22] += 1e-5 * rng.normal(size=(6, 5))
    y[22:25] = 0.1
    neighbourhoods = [[0, 1], [2], [3, 4, 5], list(range(10, 16)), list(range(16, 22)),
                      [22, 23, 24], list(range(25, 33))]  # fmt: skip
    ends = np.cumsum([0, *map(len, neighbourhoods), *([0] * 33)])
    members = np.concatenate(neighbourhoods)
    graph = csr_array((np.ones(len(members)), members, ends), shape=(40, 40))
    B = alignment_matrix(y, graph, 2).toarray()
    np.testing.assert_allclose(B @ np.ones(40), 0, atol=1e-12)
    assert np.linalg.eigvalsh(B).min() > -1e-12
    np.testing.assert_allclose(B[:6, :6], 0, atol=1e-12)
    line = B[10:16, 10:16]
    np.testing.assert_allclose(line @ np.arange(6.0), 0, atol=1e-12)
    assert np.linalg.matrix_rank(line, tol=1e-9) == 4  # without constants and one tangent
    expected = alignment_by_loops(y, neighbourhoods, 2)
    for part, tolerance in ((slice(16), 1e-12), (slice(16, 22), 1e-5), (slice(25, 40), 1e-12)):
        np.testing.assert_allclose(B[part, part], expected[part, part], atol=tolerance)


def test_alignment_matrix_annihilates_constants(data: Path) -> None:
    """On a measured head with many isolated pairs, B 1 = 0 and no eigenvalue is negative."""
    head = ea.read_sofa(data / "heads" / "cipic_003.sofa")
    y = head.cues(ea.CueLayout.low_ipd())
    graph = csr_array(neighbour_graph(y, 10) + eye_array(len(y)))
    assert (np.diff(graph.indptr) == 2).sum() > 10
    B = alignment_matrix(y, graph, 2).toarray()
    np.testing.assert_allclose(B.sum(axis=0), 0, atol=1e-9)
    assert np.linalg.eigvalsh(B).min() > -1e-9


def test_coordinates_are_smallest_eigenvectors(rng: np.random.Generator) -> None:
    """Coordinates equal the smallest eigenvectors of the dense matrix after the constant one."""
    _, y = sheet(rng)
    manifold = ltsa(y, neighbours=12)
    assert len(manifold.kept) == 60
    members = [sorted([*near, i]) for i, near in enumerate(neighbours_by_loops(y, 12, True))]
    values, vectors = np.linalg.eigh(alignment_by_loops(y, members, 2))
    assert abs(values[0]) < 1e-12
    np.testing.assert_allclose(manifold.eigenvalues, values[1:4], rtol=1e-7)
    for q in range(3):
        cosine = manifold.coordinates[:, q] @ vectors[:, q + 1] / np.sqrt(60)
        assert abs(cosine) == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(manifold.coordinates.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(
        manifold.coordinates.T @ manifold.coordinates / 60, np.eye(3), atol=1e-9
    )


def test_plain_neighbours_agree_with_scikit_learn(rng: np.random.Generator) -> None:
    """Coordinates equal those of LocallyLinearEmbedding(method="ltsa") up to signs."""
    _, y = sheet(rng, 400)
    theirs = LocallyLinearEmbedding(
        n_neighbors=11, n_components=2, method="ltsa", eigen_solver="dense"
    ).fit_transform(y)
    ours = ltsa(y, dims=2, coordinates=2, neighbours=11, symmetric=False).coordinates
    for q in range(2):
        cosine = ours[:, q] @ theirs[:, q] / (np.linalg.norm(ours[:, q]))
        assert abs(cosine) == pytest.approx(1, abs=1e-6)


def test_bent_surface_is_flattened(rng: np.random.Generator) -> None:
    """Two coordinates are an affine map of the true ones; principal components are not."""
    u, _ = sheet(rng, 500)
    roll = np.stack([u[:, 0] * np.cos(3 * u[:, 0]), u[:, 1], u[:, 0] * np.sin(3 * u[:, 0])], axis=1)
    for coordinates, low, high in (
        (ltsa(roll, coordinates=2, neighbours=15).coordinates, 0.97, 1.0),
        (pca(roll, 2), 0.0, 0.9),
    ):
        regressors = np.column_stack([coordinates, np.ones(len(u))])
        residual = u - regressors @ np.linalg.lstsq(regressors, u, rcond=None)[0]
        assert low < 1 - residual[:, 0].var() / u[:, 0].var() < high


def test_closed_surface_needs_one_more_coordinate(rng: np.random.Generator) -> None:
    """Three coordinates of a cylinder are faithful, two are not."""
    x = np.stack([rng.uniform(-180, 180, 900), rng.uniform(-60, 60, 900)], axis=1)
    angles = np.radians(x)
    c, s, z = np.cos(angles[:, 0]), np.sin(angles[:, 0]), angles[:, 1]
    y = np.stack([c, s, z, 0.2 * c * s, 0.2 * z**2, 0.2 * s * z], axis=1)
    manifold = ltsa(y, neighbours=20)
    space = ea.Cylinder()
    three = faithfulness(space, x[manifold.kept], manifold.coordinates)
    two = faithfulness(space, x[manifold.kept], manifold.coordinates[:, :2])
    assert three.homeomorphic
    assert three.beyond_30_share < 0.01
    assert not two.homeomorphic


def test_outliers_are_left_out_but_embedded(rng: np.random.Generator) -> None:
    """Distant points without neighbours are reported, and `embed` returns finite coordinates."""
    _, y = sheet(rng, 150)
    y = np.concatenate([y[:100], [[9.0, 9, 9, 9, 9], [-7.0, 5, 3, 1, 0]], y[100:],
                        [[-7.0, 5, 3, 1, 0.01]]])  # fmt: skip
    manifold = ltsa(y, neighbours=10)
    assert {100, 101, 152} <= set(manifold.left_out.tolist())
    assert len(manifold.left_out) < 10
    without = ltsa(np.delete(y, manifold.left_out, axis=0), neighbours=10)
    assert len(without.kept) == len(manifold.kept)
    np.testing.assert_allclose(manifold.embed(y[manifold.kept]), manifold.coordinates, atol=1e-9)
    assert np.isfinite(manifold.embed(y)).all()


def test_loosely_connected_parts_are_left_out(rng: np.random.Generator) -> None:
    """Of two surfaces joined by one edge the larger is kept, with a warning.

    Otherwise a rotation about the edge would be an eigenvector with eigenvalue zero.
    """
    u = np.stack(np.meshgrid(np.arange(12.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    u += rng.uniform(-0.2, 0.2, size=u.shape)
    large = np.column_stack([u, np.zeros((96, 3))])
    small = np.column_stack([np.zeros((60, 2)), u[:60, :1] + 2.3, u[:60, 1:], np.zeros(60)])
    y = np.concatenate([small, large])
    graph = neighbour_graph(y, 9)
    assert connected_components(graph)[0] == 1
    assert graph[:60][:, 60:].nnz == 1
    with pytest.warns(ea.EaratlasWarning, match="59 of 156 vectors"):
        manifold = ltsa(y, neighbours=9, coordinates=2)
    assert manifold.kept.tolist() == [0, *range(60, 156)]
    regressors = np.column_stack([manifold.coordinates[1:], np.ones(96)])
    assert np.linalg.lstsq(regressors, u, rcond=None)[1].max() < 1e-3


def test_embed_uses_tangent_maps(rng: np.random.Generator) -> None:
    """New points of a surface are embedded close to the affine map of their true coordinates."""
    u, y = sheet(rng, 700)
    manifold = ltsa(y[:600], coordinates=2, neighbours=15)
    regressors = np.column_stack([u[manifold.kept], np.ones(len(manifold.kept))])
    slopes = np.linalg.lstsq(regressors, manifold.coordinates, rcond=None)[0]
    expected = np.column_stack([u[600:], np.ones(100)]) @ slopes
    error = np.abs(manifold.embed(y[600:]) - expected)
    assert np.median(error) < 0.02
    nearest = ((y[600:, None] - manifold.cues) ** 2).sum(axis=2).argmin(axis=1)
    assert np.median(error) < 0.3 * np.median(np.abs(manifold.coordinates[nearest] - expected))


def test_candidates_help_on_elongated_surfaces() -> None:
    """The first eigenvectors of an elongated ellipsoid are harmonics of its length."""
    x = ea.Sphere().grid(7.5)
    y = to_vectors(x) * [1.0, 5.0, 1.1]
    first, chosen = ltsa(y, neighbours=12), ltsa(y, neighbours=12, candidates=8)
    scores = [faithfulness(ea.Sphere(), x[m.kept], m.coordinates) for m in (first, chosen)]
    assert scores[0].trustworthiness < 0.8
    assert chosen.order[0] == 0
    assert scores[1].homeomorphic
    assert scores[1].beyond_30_share == 0


def test_whitening_helps_on_thin_surfaces(rng: np.random.Generator) -> None:
    """Both sides of a thin surface are distinguished after whitening."""
    x = np.stack([rng.uniform(-180, 180, 700), rng.uniform(-50, 50, 700)], axis=1)
    v = to_vectors(x) * [0.03, 1.0, 1.0] + 1e-4 * rng.normal(size=(700, 3))
    sphere = ea.Sphere()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, whitened = ltsa(v, neighbours=15), ltsa(v, neighbours=15, whiten=3)
    scores = [faithfulness(sphere, x[m.kept], m.coordinates) for m in (plain, whitened)]
    assert scores[0].trustworthiness < 0.9 < 0.95 < scores[1].trustworthiness
    np.testing.assert_allclose(whitened.embed(v[whitened.kept]), whitened.coordinates, atol=1e-9)


def test_principal_components(rng: np.random.Generator) -> None:
    """Components are uncorrelated with unit variance, largest first; missing ones are zero."""
    y = rng.normal(size=(80, 4)) * [1.0, 5.0, 0.2, 3.0]
    t = pca(y, 2)
    np.testing.assert_allclose(t.T @ t / 80, np.eye(2), atol=1e-12)
    assert abs(np.corrcoef(t[:, 0], y[:, 1])[0, 1]) > 0.95
    line = np.outer(np.arange(9.0), [1.0, 2.0, 0.5])
    np.testing.assert_array_equal(pca(line, 2)[:, 1], 0)


def test_scores_equal_loop_oracle(rng: np.random.Generator) -> None:
    """Scores equal their definitions; continuity is trustworthiness with swapped arguments."""
    x = ea.Sphere().grid(25.0)
    t = to_vectors(x) + 0.25 * rng.normal(size=(len(x), 3))
    scores = faithfulness(ea.Sphere(), x, t, neighbours=5)
    v = to_vectors(x)
    assert scores.trustworthiness == trustworthiness(v, t, n_neighbors=5)
    assert scores.continuity == trustworthiness(t, v, n_neighbors=5)
    shared, jumps = [], []
    for i in range(len(x)):
        by_t = np.argsort(((t - t[i]) ** 2).sum(axis=1))[1:6]
        by_x = np.argsort(ea.great_circle_error(x[i], x))[1:6]
        shared.append(len(set(by_t.tolist()) & set(by_x.tolist())) / 5)
        jumps.append(float(ea.great_circle_error(x[i], x[by_t[0]])))
    assert scores.agreement == pytest.approx(np.mean(shared), abs=0.01)  # the lattice has ties
    assert scores.jump_degrees == pytest.approx(np.median(jumps))
    assert scores.beyond_30_share == pytest.approx(np.mean(np.array(jumps) > 30))


def test_scores_of_true_random_and_folded_coordinates(rng: np.random.Generator) -> None:
    """Directions score 1 and shuffled ones 0.5; a sample gives about the same scores."""
    x = ea.Sphere().grid(9.0)
    perfect = faithfulness(ea.Sphere(), x, to_vectors(x))
    shuffled = faithfulness(ea.Sphere(), x, rng.permutation(to_vectors(x)))
    assert perfect.trustworthiness == perfect.continuity == 1
    assert perfect.homeomorphic
    assert abs(shuffled.trustworthiness - 0.5) < 0.05
    assert shuffled.agreement < 0.1
    folded = np.abs(to_vectors(x)) * [1, 0, 1] + to_vectors(x) * [
        0,
        1,
        0,
    ]  # front and back coincide
    whole = faithfulness(ea.Sphere(), x, folded)
    sample = faithfulness(ea.Sphere(), x, folded, max_points=400)
    assert max(whole.trustworthiness, sample.trustworthiness) < 0.7
    assert whole.beyond_30_share == sample.beyond_30_share > 0.5  # jumps use all points
    assert not Faithfulness(0.99, 0.9, 1, 0, 0).homeomorphic


def test_unlabelled_localization(atlas_head: ea.Head) -> None:
    """New cues are embedded near their neighbours, and forty labels give directions."""
    head = atlas_head
    y = head.cues(ea.CueLayout(ild_band_hz=(0.0, 3000.0)))
    order = np.random.default_rng(0).permutation(len(head))
    training, test = order[:560], order[560:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        intrinsic = learn_unlabelled(y[training], components=40)
    t = intrinsic.locate(y[test])
    kept = training[intrinsic.manifold.kept]
    coordinates = intrinsic.locate(y[kept])
    nearest = ((t[:, None] - coordinates) ** 2).sum(axis=2).argmin(axis=1)
    jumps = ea.great_circle_error(head.directions[test], head.directions[kept[nearest]])
    assert 1 < np.median(jumps) < 25
    labelled = intrinsic.calibrated(y[training[:40]], head.directions[training[:40]])
    errors = ea.great_circle_error(head.directions[test], labelled.localize(y[test]))
    nearest = ((y[test][:, None] - y[training[:40]]) ** 2).sum(axis=2).argmin(axis=1)
    baseline = ea.great_circle_error(head.directions[test], head.directions[training[nearest]])
    assert 1 < np.median(errors) < 0.8 * np.median(baseline)


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # warning for the KU100
def test_low_ild_of_a_measured_head_is_homeomorphic(data: Path) -> None:
    """On KU100, whitened low ILD is homeomorphic, and high IPD is not (paper, figure 3)."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    scores = []
    for layout in (ea.CueLayout.low_ild(), ea.CueLayout.high_ipd()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            manifold = ltsa(head.cues(layout), neighbours=10, whiten=20, candidates=9)
        x = head.directions[manifold.kept]
        scores.append(faithfulness(ea.Sphere(), x, manifold.coordinates, max_points=600))
    assert scores[0].homeomorphic
    assert scores[1].trustworthiness < 0.85


@pytest.mark.parametrize("name", ["figure3", "figure4"])
def test_figures_do_not_depend_on_row_order(
    rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    """Text and figure are the same for rows in any order."""
    experiment, x = EXPERIMENTS[name], ea.Sphere().grid(20.0)
    axes = 3 if name == "figure3" else 2
    rows = []
    for settings in experiment.plan(Bench(quick=True)):
        t = to_vectors(x)[:, :axes] + 0.1 * rng.normal(size=(len(x), axes))
        score = asdict(faithfulness(ea.Sphere(), x, t))
        result = {"score": score, "left_out": 0, "spacing_degrees": 20.0,
                  "directions": pack_array(x), "coordinates": pack_array(t)}  # fmt: skip
        rows.append({"settings": settings, "result": result,
                     "data": {"head": "ball", "directions": len(x)}})  # fmt: skip
    outputs = []
    for order in (range(len(rows)), range(len(rows))[::-1]):
        text = experiment.section([rows[i] for i in order], tmp_path)
        outputs.append((text, (tmp_path / f"{name}_ball.png").read_bytes()))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: neighbour_graph(y, 0), "neighbours must be from 1 to 59"),
        (lambda y: neighbour_graph(y, 60), "neighbours must be from 1 to 59"),
        (lambda y: ltsa(np.where(y > 0.99, np.nan, y)), "y must be finite"),
        (lambda y: ltsa(y[0]), "y must be finite numbers of shape"),
        (lambda y: ltsa(y, neighbours=2), "connected vectors"),
        (lambda y: ltsa(y, dims=0), "dims must be at least 1"),
        (lambda y: ltsa(y, coordinates=13), "coordinates from 1 to 12"),
        (lambda y: ltsa(y, candidates=25), "candidates at most 24"),
        (lambda y: ltsa(y, coordinates=12, candidates=24), "got 24 with 2704156"),
        (lambda y: ltsa(y, whiten=0), "whiten must be at least 1"),
        (lambda y: ltsa(y, neighbours=12).embed(y[:, :3]), "y must have 5 columns"),
        (lambda y: ltsa(y, neighbours=12, whiten=3).embed(y[:, :3]), "y must have 5 columns"),
        (lambda y: pca(y, 6), "coordinates must be from 1 to 5"),
        (lambda y: faithfulness(ea.Plane(), y[:50, :2], y), "as many as directions"),
        (lambda y: faithfulness(ea.Plane(), y[:, :2], y, neighbours=30), "twice the neighbours"),
    ],
)
def test_invalid_input_is_reported(rng: np.random.Generator, call: object, message: str) -> None:
    """The message names the argument and ends with a remedy."""
    _, y = sheet(rng)
    with pytest.raises(ea.InputError, match=message) as caught:
        call(y)  # type: ignore[operator]
    assert str(caught.value).endswith(".")


def test_too_few_labels(atlas_head: ea.Head) -> None:
    """A calibration needs more labelled vectors than there are coordinates."""
    y = atlas_head.cues(ea.CueLayout.low_ild())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        intrinsic = learn_unlabelled(y[::2], components=2, candidates=3)
    with pytest.raises(ea.InputError, match="at least 5"):
        intrinsic.calibrated(y[:4], atlas_head.directions[:4])


def test_passes_check_estimator() -> None:
    """All checks of scikit-learn pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # skipped checks issue warnings
        check_estimator(BinauralManifold())


def test_estimator_equals_ltsa(rng: np.random.Generator) -> None:
    """The estimator gives the coordinates of `ltsa`, and works in a pipeline."""
    _, y = sheet(rng, 200)
    model = make_pipeline(StandardScaler(), BinauralManifold(n_components=2, n_dims=2)).fit(y)
    scaled = StandardScaler().fit_transform(y)
    expected = ltsa(scaled, coordinates=2)
    np.testing.assert_allclose(model.transform(y)[expected.kept], expected.coordinates, atol=1e-9)
    assert model.transform(y[:3] + 0.01).shape == (3, 2)
    assert model.get_feature_names_out().tolist() == ["binauralmanifold0", "binauralmanifold1"]
