"""Pictures of one posterior: from near by, in its place, and nothing of it cut off."""

import numpy as np
import pytest
from made_scenes import SPACES, belief_at
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.projections.polar import PolarAxes

import earatlas as ea
from earatlas.geometry.spaces import Space
from earatlas.plotting.palette import COLOURS
from earatlas.plotting.posterior_maps import cap_map, zoomed_map
from earatlas.plotting.posterior_panels import REGIONS
from earatlas.plotting.posteriors import plot_belief
from earatlas.plotting.style import tints


def drawn(figure: Figure) -> np.ndarray:
    """The pixels (H, W, 3) in [0, 1], first row lowest."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[::-1, :, :3] / 255  # type: ignore[no-untyped-call]


def shade_at(axes: Axes, pixels: np.ndarray, x: float, y: float) -> str:
    """Which region is drawn at a point in data units."""
    column, row = (int(v) for v in axes.transData.transform((x, y)))
    for level, shade in REGIONS:
        if np.abs(pixels[row, column] - to_rgb(tints(COLOURS[0])(shade))).max() < 0.03:
            return f"{level:.0%}"
    return "none" if pixels[row, column].min() > 0.99 else "other"


def round_belief(place: tuple[float, float], width: float) -> ea.DirectionPosterior:
    """One round Gaussian around a place of the sphere."""
    return ea.DirectionPosterior(
        ea.Sphere(), np.array([place]), np.ones(1), np.zeros((1, 2)), width**2 * np.eye(2)[None]
    )


def marks(axes: Axes) -> dict[str, np.ndarray]:
    """Where the marks of a panel are."""
    return {str(line.get_label()): np.asarray(line.get_xydata())[0] for line in axes.lines}


@pytest.mark.parametrize(("space", "places"), SPACES)
@pytest.mark.parametrize("width", [0.01, 1.0, 40.0])
def test_every_space_and_width_is_drawn(
    space: Space, places: tuple[tuple[float, ...], ...], width: float
) -> None:
    """Needles and posteriors about nothing, with no warning."""
    posterior = belief_at(space, places[2], width=width)
    drawn(plot_belief(posterior, title="$x_$", truth=places[1]))


def test_regions_are_those_of_a_gaussian() -> None:
    """A round Gaussian of 2 degrees: regions end at sqrt(-2 log(1 - level)) widths."""
    figure = plot_belief(round_belief((40.0, 3.0), 2.0), truth=(41.0, 1.0))
    axes, pixels = figure.axes[0], drawn(figure)
    for level, within in ((0.5, "50%"), (0.9, "90%"), (0.99, "99%")):
        edge = 2.0 * np.sqrt(-2 * np.log(1 - level))
        beyond = {"50%": "90%", "90%": "99%", "99%": "none"}[within]
        for turn in np.radians((100.0, 190.0, 350.0)):  # away from the marks
            side, up = np.cos(turn), np.sin(turn)
            assert shade_at(axes, pixels, 40 + (edge - 0.2) * side, 3 + (edge - 0.2) * up) == within
            assert shade_at(axes, pixels, 40 + (edge + 0.2) * side, 3 + (edge + 0.2) * up) == beyond
    assert marks(axes)["peak"] == pytest.approx((40, 3))
    assert marks(axes)["mean"] == pytest.approx((40, 3))
    assert marks(axes)["truth"] == pytest.approx((41, 1))
    assert axes.get_title(loc="left") == "40° left, 3° up, front; 90 % within 4.3°"


def test_belief_fills_its_picture() -> None:
    """A region of 2 degrees is a twentieth of the frame at least, and left is on the left."""
    axes = plot_belief(round_belief((40.0, 3.0), 1.0)).axes[0]
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    assert left > right
    assert np.pi * 2.15**2 > 0.05 * (left - right) * (high - low)


def test_small_map_frames_what_is_seen() -> None:
    """One frame, or one at either side of the seam; none for a broad posterior."""
    for place, lefts in (((40.0, 3.0), [30.0]), ((178.0, 3.0), [-192.0, 168.0])):
        figure = plot_belief(round_belief(place, 1.0))
        near, whole = figure.axes[:2]
        frames = [p for p in whole.patches if isinstance(p, Rectangle)]
        seen = [f.get_x() for f in frames if f.get_x() < 180 and f.get_x() + f.get_width() > -180]
        assert sorted(seen) == pytest.approx(lefts)
        assert {f.get_width() for f in frames} == {20.0}
        assert sorted(near.get_xlim()) == pytest.approx((place[0] - 10, place[0] + 10))
        assert sorted(whole.get_xlim()) == pytest.approx((-180, 180))
    broad = plot_belief(round_belief((40.0, 3.0), 50.0))
    assert len(broad.axes) == 2
    assert sorted(broad.axes[0].get_xlim()) == pytest.approx((-180, 180))


def test_truth_across_the_seam_is_beside_the_peak() -> None:
    """179 and -178 degrees are three degrees apart, in the picture too."""
    axes = plot_belief(round_belief((179.0, 0.0), 1.0), truth=(-178.0, 0.0)).axes[0]
    assert marks(axes)["truth"][0] - marks(axes)["peak"][0] == pytest.approx(3)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_pole_is_seen_from_above(side: float) -> None:
    """Around a pole: ahead is up, left is left, and the regions are round and whole."""
    figure = plot_belief(round_belief((90.0, side * 87.0), 2.0), truth=(0.0, side * 88.0))
    axes, pixels = figure.axes[0], drawn(figure)
    assert isinstance(axes, PolarAxes)
    peak, truth = (axes.transData.transform(marks(axes)[name]) for name in ("peak", "truth"))
    pole = axes.transData.transform((0.0, 0.0))
    assert peak[0] < pole[0] - 5
    assert truth[1] > pole[1] + 5
    assert truth[0] == pytest.approx(pole[0], abs=1)
    edge = 2.0 * np.sqrt(-2 * np.log(0.1))  # of the 90 % region, around the peak
    assert shade_at(axes, pixels, np.radians(90), 3 + edge - 0.3) == "90%"
    assert shade_at(axes, pixels, np.radians(90), 3 + edge + 0.3) == "99%"
    assert shade_at(axes, pixels, np.radians(270), edge - 3 - 0.3) == "90%"
    assert shade_at(axes, pixels, np.radians(269), edge - 3 + 0.4) == "99%"
    labels = [t.get_text() for t in axes.get_yticklabels()]
    assert labels[-1] == ("80°" if side > 0 else "−80°")


def test_cap_is_for_what_lies_around_a_pole() -> None:
    """Not for a posterior beside it, nor a broad one, nor where there is no pole."""
    assert cap_map(round_belief((30.0, 87.0), 2.0)) is not None
    assert cap_map(round_belief((30.0, 70.0), 2.0)) is None
    assert cap_map(round_belief((30.0, 87.0), 30.0)) is None
    assert cap_map(round_belief((30.0, 87.0), 2.0), truth=(30.0, 20.0)) is None
    assert cap_map(belief_at(ea.Cylinder(), (30.0, 59.0))) is None
    below = cap_map(round_belief((30.0, -88.0), 2.0))
    assert below is not None
    assert below.extent == pytest.approx((-180, 180, -90, -80))
    top = np.unravel_index(below.log_density.argmax(), below.log_density.shape)
    assert (below.x[top[1]], below.y[top[0]]) == pytest.approx((30, -88), abs=2)


def test_circle_is_seen_from_near_by() -> None:
    """Its density, its regions under it, and lines for the marks."""
    posterior = belief_at(ea.Circle(), (179.0, 5.0), width=1.0)
    near = zoomed_map(posterior)
    assert near.extent[:2] == pytest.approx((174, 184))
    figure = plot_belief(posterior, truth=(-179.0, 5.0))
    axes, pixels = figure.axes[0], drawn(figure)
    assert shade_at(axes, pixels, 179.3, 0.5) == "50%"
    assert shade_at(axes, pixels, 180.5, 0.05) == "90%"
    assert marks(axes)["truth"][0] == pytest.approx(181)
    radius = posterior.radius_90
    assert radius == pytest.approx(posterior.credible_area(0.9) / 2, rel=0.1)
    assert axes.get_title(loc="left") == f"179° left, 5° up, behind; 90 % within {radius:.1f}°"
