"""Pictures of manifolds: far points do not shrink the others, leave no lines, and are counted."""

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


def embedding(x: np.ndarray, far: list[int], times: float = 300.0) -> Embedding:
    """The directions as points of a sphere, a few of them many times as far away."""
    t = to_vectors(x)
    t[far] *= times
    return Embedding("low ILD", "LTSA", np.arange(len(x)), t, SCORE, 0)


@pytest.fixture
def grid() -> np.ndarray:
    """Rings of 36 directions at five elevations."""
    return np.array([[float(a), e] for e in (-40.0, -20, 0, 20, 40) for a in range(-180, 180, 10)])


def test_far_points_lie_outside(grid: np.ndarray) -> None:
    """Three of 180 far away: the others keep their size and place, and the caption counts."""
    plain, torn = embedding(grid, []), embedding(grid, [5, 40, 41])
    assert plain.inside.all()
    assert plain.caption == "homeomorphic: trustworthiness 0.96, continuity 0.97"
    assert np.linalg.norm(plain.centred, axis=1).max() == pytest.approx(1)
    assert np.flatnonzero(~torn.inside).tolist() == [5, 40, 41]
    assert torn.caption == plain.caption + "\n3 of 180 points lie outside the frame"
    assert embedding(grid, [5]).caption.endswith("\n1 of 180 points lies outside the frame")
    kept = np.linalg.norm(torn.centred[torn.inside], axis=1)
    assert 0.4 < np.median(kept) <= kept.max() <= 1


def test_lines_end_at_far_points(grid: np.ndarray) -> None:
    """Rings are cut there, and have all other segments."""
    torn = embedding(grid, [5, 40, 41])
    whole = {
        frozenset(pair)
        for ring in rings(grid, 10.0)
        for pair in zip(ring[:-1].tolist(), ring[1:].tolist(), strict=True)
    }
    drawn = {
        frozenset(pair)
        for line in torn.lines(grid, 10.0)
        for pair in zip(line[:-1].tolist(), line[1:].tolist(), strict=True)
    }
    assert drawn == {pair for pair in whole if not pair & {5, 40, 41}}


def test_nothing_is_drawn_outside(grid: np.ndarray, tmp_path: Path) -> None:
    """In the picture all points are in the unit ball, and the ball is in its panel."""
    figure = plot_manifolds([embedding(grid, [5, 40, 41])], grid, 10.0, title="a head")
    save(figure, tmp_path / "x.png")
    (lines,) = [c for c in figure.axes[0].collections if isinstance(c, Line3DCollection)]
    points = np.concatenate([np.asarray(s) for s in lines._segments3d])
    assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-9
    frame = figure.axes[0].get_window_extent()
    for segment in lines.get_segments():
        x, y = figure.axes[0].transData.transform(segment).T
        assert frame.x0 <= x.min() <= x.max() <= frame.x1
        assert frame.y0 <= y.min() <= y.max() <= frame.y1


def test_page_has_only_what_is_in_the_frame(grid: np.ndarray) -> None:
    """Points, their directions and lines: all indices are right, and the caption counts."""
    torn = embedding(grid, [5, 40, 41])
    page = manifold_page([torn], grid, 10.0, title="a head")
    found = re.search(r"const DATA = (\{.*?\});", page)
    assert found is not None
    view = json.loads(found[1])["panels"][0]["views"]["LTSA"]
    assert view["score"] == torn.caption
    assert len(view["points"]) == len(view["places"]) == 177
    assert not {5, 40, 41} & set(view["places"])
    assert np.abs(view["points"]).max() <= 1000
    places = np.array(view["places"])
    expected = [line.tolist() for line in torn.lines(grid, 10.0)]
    assert [places[line].tolist() for line in view["lines"]] == expected
    for n in (0, 60, 176):
        np.testing.assert_allclose(view["points"][n], 1000 * torn.centred[places[n]], atol=0.51)


def test_a_lattice_of_one_elevation_is_drawn() -> None:
    """No elevations to tell apart: one colour, no division by nothing."""
    x = np.array([[float(a), 0.0] for a in range(-180, 180, 5)])
    figure = plot_manifolds([embedding(x, [])], x, 5.0)
    assert len(figure.axes) == 2
