"""Tests of plots of manifolds: outliers are not drawn, but counted."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]

from earatlas.geometry.angles import to_vectors
from earatlas.manifold.faithfulness import Faithfulness
from earatlas.manifold.viewer import Embedding, manifold_page, rings
from earatlas.plotting.manifolds import plot_manifolds
from earatlas.plotting.style import save

SCORE = Faithfulness(0.96, 0.97, 0.5, 9.0, 0.0)


def sphere_embedding(x: np.ndarray, far: list[int], factor: float = 300.0) -> Embedding:
    """Embed directions as points of a sphere, some of them many times as far away."""
    t = to_vectors(x)
    t[far] *= factor
    return Embedding("low ILD", "LTSA", np.arange(len(x)), t, SCORE, 0)


@pytest.fixture
def grid() -> np.ndarray:
    """Return 36 azimuths at five elevations."""
    return np.array([[float(a), e] for e in (-40.0, -20, 0, 20, 40) for a in range(-180, 180, 10)])


def test_outliers_lie_outside_the_frame(grid: np.ndarray) -> None:
    """Three outliers of 180 do not shrink the other points, and the caption counts them."""
    plain, with_outliers = sphere_embedding(grid, []), sphere_embedding(grid, [5, 40, 41])
    assert plain.inside.all()
    assert plain.caption == "homeomorphic: trustworthiness 0.96, continuity 0.97"
    assert np.linalg.norm(plain.centred, axis=1).max() == pytest.approx(1)
    assert np.flatnonzero(~with_outliers.inside).tolist() == [5, 40, 41]
    assert with_outliers.caption == plain.caption + "\n3 of 180 points lie outside the frame"
    assert sphere_embedding(grid, [5]).caption.endswith("\n1 of 180 points lies outside the frame")
    kept = np.linalg.norm(with_outliers.centred[with_outliers.inside], axis=1)
    assert 0.4 < np.median(kept) <= kept.max() <= 1


def test_lines_are_interrupted_at_outliers(grid: np.ndarray) -> None:
    """All segments without outliers are drawn."""
    with_outliers = sphere_embedding(grid, [5, 40, 41])
    whole = {
        frozenset(pair)
        for ring in rings(grid, 10.0)
        for pair in zip(ring[:-1].tolist(), ring[1:].tolist(), strict=True)
    }
    drawn = {
        frozenset(pair)
        for line in with_outliers.lines(grid, 10.0)
        for pair in zip(line[:-1].tolist(), line[1:].tolist(), strict=True)
    }
    assert drawn == {pair for pair in whole if not pair & {5, 40, 41}}


def test_nothing_is_drawn_outside_the_frame(grid: np.ndarray, tmp_path: Path) -> None:
    """All points of the figure are in the unit ball and in the panel."""
    figure = plot_manifolds([sphere_embedding(grid, [5, 40, 41])], grid, 10.0, title="a head")
    save(figure, tmp_path / "x.png")
    (lines,) = [c for c in figure.axes[0].collections if isinstance(c, Line3DCollection)]
    points = np.concatenate([np.asarray(s) for s in lines._segments3d])
    assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-9
    frame = figure.axes[0].get_window_extent()
    for segment in lines.get_segments():
        x, y = figure.axes[0].transData.transform(segment).T
        assert frame.x0 <= x.min() <= x.max() <= frame.x1
        assert frame.y0 <= y.min() <= y.max() <= frame.y1


def test_page_contains_only_points_in_the_frame(grid: np.ndarray) -> None:
    """Points, directions and lines of the page have consistent indices."""
    with_outliers = sphere_embedding(grid, [5, 40, 41])
    page = manifold_page([with_outliers], grid, 10.0, title="a head")
    match = re.search(r"const DATA = (\{.*?\});", page)
    assert match is not None
    view = json.loads(match[1])["panels"][0]["views"]["LTSA"]
    assert view["score"] == with_outliers.caption
    assert len(view["points"]) == len(view["places"]) == 177
    assert not {5, 40, 41} & set(view["places"])
    assert np.abs(view["points"]).max() <= 1000
    indices = np.array(view["places"])
    expected = [line.tolist() for line in with_outliers.lines(grid, 10.0)]
    assert [indices[line].tolist() for line in view["lines"]] == expected
    for n in (0, 60, 176):
        np.testing.assert_allclose(
            view["points"][n], 1000 * with_outliers.centred[indices[n]], atol=0.51
        )


def test_single_elevation_is_drawn() -> None:
    """Directions at one elevation have one colour, without a division by zero."""
    x = np.array([[float(a), 0.0] for a in range(-180, 180, 5)])
    figure = plot_manifolds([sphere_embedding(x, [])], x, 5.0)
    assert len(figure.axes) == 2
