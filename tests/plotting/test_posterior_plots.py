"""Tests of figures of one posterior: close-up, overview and polar cap."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_scenes import SPACES, make_scene, posterior_at
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.projections.polar import PolarAxes

import earatlas as ea
from earatlas.geometry.spaces import Space
from earatlas.plotting.palette import COLOURS
from earatlas.plotting.posterior_maps import polar_cap_map, zoomed_map
from earatlas.plotting.posterior_panels import REGION_TINTS
from earatlas.plotting.posteriors import plot_posterior
from earatlas.plotting.style import tint_colormap

pytestmark = pytest.mark.usefixtures("arranged_pictures")


def drawn(figure: Figure) -> np.ndarray:
    """Return the pixels (H, W, 3) in [0, 1], first row lowest."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[::-1, :, :3] / 255  # type: ignore[no-untyped-call]


def shade_at(axes: Axes, pixels: np.ndarray, x: float, y: float) -> str:
    """Return which region is drawn at a point in data units."""
    column, row = (int(v) for v in axes.transData.transform((x, y)))
    for level, shade in REGION_TINTS:
        if np.abs(pixels[row, column] - to_rgb(tint_colormap(COLOURS[0])(shade))).max() < 0.03:
            return f"{level:.0%}"
    return "none" if pixels[row, column].min() > 0.99 else "other"


def round_posterior(place: tuple[float, float], width: float) -> ea.DirectionPosterior:
    """Return one isotropic Gaussian around a place of the sphere."""
    return ea.DirectionPosterior(
        ea.Sphere(), np.array([place]), np.ones(1), np.zeros((1, 2)), width**2 * np.eye(2)[None]
    )


def marks(axes: Axes) -> dict[str, np.ndarray]:
    """Return the positions of the marks of a panel by name."""
    return {str(line.get_label()): np.asarray(line.get_xydata())[0] for line in axes.lines}


@pytest.mark.parametrize(("space", "places"), SPACES)
@pytest.mark.parametrize("width", [0.01, 1.0, 40.0])
def test_every_space_and_width_is_drawn(
    space: Space, places: tuple[tuple[float, ...], ...], width: float
) -> None:
    """Very sharp and very broad posteriors are drawn without a warning."""
    posterior = posterior_at(space, places[2], width=width)
    drawn(plot_posterior(posterior, title="$x_$", truth=places[1]))


def test_regions_are_those_of_a_gaussian() -> None:
    """Regions of an isotropic Gaussian of 2 degrees end at sqrt(-2 log(1 - level)) widths."""
    figure = plot_posterior(round_posterior((40.0, 3.0), 2.0), truth=(41.0, 1.0))
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


def test_close_up_fits_the_posterior() -> None:
    """A region of 2 degrees fills at least 5 % of the frame, and left is on the left."""
    axes = plot_posterior(round_posterior((40.0, 3.0), 1.0)).axes[0]
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    assert left > right
    assert np.pi * 2.15**2 > 0.05 * (left - right) * (high - low)


def test_overview_frames_the_close_up() -> None:
    """There is one frame, or one on either side of ±180 degrees; a broad posterior has none."""
    for place, lefts in (((40.0, 3.0), [30.0]), ((178.0, 3.0), [-192.0, 168.0])):
        figure = plot_posterior(round_posterior(place, 1.0))
        near, whole = figure.axes[:2]
        frames = [p for p in whole.patches if isinstance(p, Rectangle)]
        seen = [f.get_x() for f in frames if f.get_x() < 180 and f.get_x() + f.get_width() > -180]
        assert sorted(seen) == pytest.approx(lefts)
        assert {f.get_width() for f in frames} == {20.0}
        assert sorted(near.get_xlim()) == pytest.approx((place[0] - 10, place[0] + 10))
        assert sorted(whole.get_xlim()) == pytest.approx((-180, 180))
    broad = plot_posterior(round_posterior((40.0, 3.0), 50.0))
    assert len(broad.axes) == 2
    assert sorted(broad.axes[0].get_xlim()) == pytest.approx((-180, 180))


def test_truth_across_the_wrap_is_next_to_the_peak() -> None:
    """179 and -178 degrees are drawn three degrees apart."""
    axes = plot_posterior(round_posterior((179.0, 0.0), 1.0), truth=(-178.0, 0.0)).axes[0]
    assert marks(axes)["truth"][0] - marks(axes)["peak"][0] == pytest.approx(3)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_posterior_at_a_pole_is_a_polar_cap(side: float) -> None:
    """Front is up, left is left, and the regions around the pole are round and closed."""
    figure = plot_posterior(round_posterior((90.0, side * 87.0), 2.0), truth=(0.0, side * 88.0))
    axes, pixels = figure.axes[0], drawn(figure)
    assert isinstance(axes, PolarAxes)
    peak, truth = (axes.transData.transform(marks(axes)[name]) for name in ("peak", "truth"))
    pole = axes.transData.transform((0.0, 0.0))
    assert peak[0] < pole[0] - 5
    assert truth[1] > pole[1] + 5
    assert truth[0] == pytest.approx(pole[0], abs=1)
    edge = 2.0 * np.sqrt(-2 * np.log(0.1))  # radius of the 90 % region
    assert shade_at(axes, pixels, np.radians(90), 3 + edge - 0.3) == "90%"
    assert shade_at(axes, pixels, np.radians(90), 3 + edge + 0.3) == "99%"
    assert shade_at(axes, pixels, np.radians(270), edge - 3 - 0.3) == "90%"
    assert shade_at(axes, pixels, np.radians(269), edge - 3 + 0.4) == "99%"
    labels = [t.get_text() for t in axes.get_yticklabels()]
    assert labels[-1] == ("80°" if side > 0 else "−80°")


def test_polar_cap_needs_a_posterior_around_a_pole() -> None:
    """There is none for a posterior beside the pole, a broad one, or a space without poles."""
    assert polar_cap_map(round_posterior((30.0, 87.0), 2.0)) is not None
    assert polar_cap_map(round_posterior((30.0, 70.0), 2.0)) is None
    assert polar_cap_map(round_posterior((30.0, 87.0), 30.0)) is None
    assert polar_cap_map(round_posterior((30.0, 87.0), 2.0), truth=(30.0, 20.0)) is None
    assert polar_cap_map(posterior_at(ea.Cylinder(), (30.0, 59.0))) is None
    below = polar_cap_map(round_posterior((30.0, -88.0), 2.0))
    assert below is not None
    assert below.extent == pytest.approx((-180, 180, -90, -80))
    top = np.unravel_index(below.log_density.argmax(), below.log_density.shape)
    assert (below.x[top[1]], below.y[top[0]]) == pytest.approx((30, -88), abs=2)


def test_close_up_of_a_circle() -> None:
    """The figure shows the density, the regions below it, and lines for the marks."""
    posterior = posterior_at(ea.Circle(), (179.0, 5.0), width=1.0)
    near = zoomed_map(posterior)
    assert near.extent[:2] == pytest.approx((174, 184))
    figure = plot_posterior(posterior, truth=(-179.0, 5.0))
    axes, pixels = figure.axes[0], drawn(figure)
    assert shade_at(axes, pixels, 179.3, 0.5) == "50%"
    assert shade_at(axes, pixels, 180.5, 0.05) == "90%"
    assert marks(axes)["truth"][0] == pytest.approx(181)
    radius = posterior.radius_90
    assert radius == pytest.approx(posterior.credible_area(0.9) / 2, rel=0.1)
    assert axes.get_title(loc="left") == f"179° left, 5° up, behind; 90 % within {radius:.1f}°"


def test_plot_posterior_accepts_results() -> None:
    """A result with a `posterior` gives the figure of that posterior; others raise InputError."""
    posterior = round_posterior((40.0, 3.0), 2.0)
    scene, _ = make_scene()
    for value in (posterior, SimpleNamespace(posterior=posterior)):
        axes = plot_posterior(value).axes[0]
        assert axes.get_title(loc="left") == "40° left, 3° up, front; 90 % within 4.3°"
    assert plot_posterior(scene.sources[0]).axes[0].get_title(loc="left").startswith("30° left")
    for bad in (scene, [40.0, 3.0], None, SimpleNamespace(posterior=3.0)):
        with pytest.raises(ea.InputError, match=r"posterior must be .*, got \w+\. Pass the result"):
            plot_posterior(bad)  # type: ignore[arg-type]


def test_title_of_an_unknown_direction() -> None:
    """The title of a posterior over most of the sphere names no direction."""
    axes = plot_posterior(posterior_at(ea.Sphere(), (30, 10), width=90.0)).axes[0]
    assert axes.get_title(loc="left") == "direction unknown"
