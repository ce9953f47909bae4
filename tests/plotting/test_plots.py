"""Tests of figures of heads, cues and reliability, and of saving."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure

import earatlas as ea
from earatlas.plotting.cues import plot_cues
from earatlas.plotting.heads import plot_head
from earatlas.plotting.posteriors import plot_reliability
from earatlas.plotting.style import save

pytestmark = pytest.mark.usefixtures("arranged_pictures")


def panel(figure: Figure, title: str) -> Axes:
    """Return the axes with this title."""
    (axes,) = [a for a in figure.axes if a.get_title(loc="left") == title]
    return axes


def pixel(axes: Axes, x: float, y: float) -> tuple[int, int, str]:
    """Return column and row, from the lower left, of a point in data units, and its colour."""
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    drawn = np.asarray(canvas.buffer_rgba()).astype(int)
    column, row = (int(v) for v in axes.transData.transform((x, y)))
    red, _, blue, _ = drawn[len(drawn) - 1 - row, column]
    return column, row, "red" if red > blue + 20 else "blue" if blue > red + 20 else "grey"


def test_figures_are_saved(tmp_path: Path, small_head: ea.Head, rng: np.random.Generator) -> None:
    """Every figure is written, also for a head without a median plane."""
    side = small_head.subset(small_head.directions[:, 0] > 20)
    cues = ea.audio_cues(ea.Audio(rng.normal(size=(2, 8000)), 16000))
    for name, figure in (
        ("head.png", plot_head(small_head)),
        ("side.svg", plot_head(side)),
        ("cues.png", plot_cues(cues, title="noise")),
        ("levels.png", plot_reliability({"noise": rng.random(50)})),
    ):
        assert save(figure, tmp_path / name).stat().st_size > 5000
    with pytest.raises(ea.InputError, match=r"\.png"):
        save(plot_cues(cues), tmp_path / "x.gif")
    with pytest.raises(ea.InputError, match="writ"):
        save(plot_cues(cues), tmp_path / "no" / "x.png")


def test_left_is_drawn_on_the_left(small_head: ea.Head) -> None:
    """A sound from the left is louder in the left ear: blue in the left half of every panel."""
    figure = plot_head(small_head)
    levels = panel(figure, "Level difference, horizontal plane")
    left, right = pixel(levels, 90, 5), pixel(levels, -90, 5)
    assert (left[2], right[2]) == ("blue", "red")
    assert left[0] < right[0]
    for title in ("Phase difference, horizontal plane", "183 directions"):
        axes = panel(figure, title)
        assert axes.transData.transform((90, 0))[0] < axes.transData.transform((-90, 0))[0]


def test_low_frequencies_are_at_the_bottom(rng: np.random.Generator) -> None:
    """A recording whose right ear is louder only below 4 kHz is red there and blue above."""
    spectrum = np.fft.rfft(rng.normal(size=16000))
    low = np.arange(len(spectrum)) < 4000
    ears = [np.fft.irfft(spectrum * np.where(low, a, b)) for a, b in ((1, 9), (9, 1))]
    cues = ea.audio_cues(ea.Audio(0.01 * np.array(ears), 16000))
    axes = panel(plot_cues(cues), "Level difference")
    below, above = pixel(axes, 0.5, 2.0), pixel(axes, 0.5, 6.0)
    assert (below[2], above[2]) == ("red", "blue")
    assert below[1] < above[1]


def columns(axes: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Return centres (n,) and values (n, F) of a panel's columns; NaN where it is blank."""
    (mesh,) = [c for c in axes.collections if isinstance(c, QuadMesh)]
    edges = mesh.get_coordinates()[0, :, 0]
    return (edges[1:] + edges[:-1]) / 2, np.ma.filled(mesh.get_array(), np.nan).T


def test_horizontal_plane_shows_the_nearest_directions() -> None:
    """Each column is the measured direction nearest to (azimuth, 0), not one of a nearby ring.

    The rings at elevations -3, 0 and 3 degrees, with a spacing of 4 degrees, are all within one
    spacing of the plane: a figure that mixed them would have stripes.
    """
    azimuths = np.arange(-80.0, 81.0, 4.0)
    rings = [np.column_stack([azimuths + e / 3, np.full(len(azimuths), e)]) for e in (-3.0, 0, 3)]
    head = ea.simulated_head(np.concatenate(rings))
    x, drawn = columns(panel(plot_head(head), "Level difference, horizontal plane"))
    assert len(x) == 120
    expected = head.cues(ea.CueLayout(ipd_band_hz=None))[len(azimuths) : 2 * len(azimuths)]
    blank = np.abs(x) > 80 + 1.5 * head.spacing_degrees
    assert 50 < blank.sum() < 80
    assert np.isnan(drawn[blank]).all()
    on_ring = [(i, np.argmin(np.abs(azimuths - a))) for i, a in enumerate(x) if abs(a) < 80]
    for i, n in on_ring:
        if abs(azimuths[n] - x[i]) < 1:
            np.testing.assert_allclose(drawn[i], expected[n])


def test_median_plane_runs_over_the_top() -> None:
    """Front, above, behind and below are at 0, 90, 180 and 270 degrees; gaps are blank."""
    head = ea.simulated_head(ea.Sphere().grid(5.0))
    front = head.subset(head.directions[:, 1] > -30)
    ild = front.cues(ea.CueLayout(ipd_band_hz=None))
    x, drawn = columns(panel(plot_head(front), "Level difference, median plane"))
    for polar, place in ((1.5, [0.0, 1.5]), (88.5, [0.0, 88.5]), (178.5, [180.0, 1.5])):
        (i,) = np.flatnonzero(np.isclose(x, polar))
        n = ea.Sphere().nearest(front.directions, [place])[0]
        np.testing.assert_allclose(drawn[i], ild[n])
    assert np.isnan(drawn[(x < -45) | (x > 225)]).all()


def test_circle_has_no_median_plane() -> None:
    """Two directions, front and behind, are too few for a plane."""
    azimuths = np.arange(-180.0, 180.0, 5.0)
    circle = ea.simulated_head(np.column_stack([azimuths, 0 * azimuths]))
    axes = panel(plot_head(circle), "Level difference, median plane")
    assert [text.get_text() for text in axes.texts] == ["not measured"]


def test_reliability_curve_is_the_coverage(rng: np.random.Generator) -> None:
    """Each curve counts levels up to the nominal one; the targets are at 50 and 90 %."""
    overconfident, calibrated = [0.3, 0.8, 0.8, 1.0], rng.random(150)
    (axes,) = plot_reliability(
        {"overconfident": overconfident, "calibrated": calibrated}, title="Two"
    ).axes
    drawn = {line.get_label(): line.get_data() for line in axes.lines}
    nominal, inside = drawn["overconfident"]
    for level, share in ((25, 0), (35, 25), (79, 25), (80, 75), (99, 75), (100, 100)):
        assert inside[np.isclose(nominal, level)] == pytest.approx(share)
    nominal, inside = drawn["calibrated"]
    assert inside[np.isclose(nominal, 50)] == pytest.approx(100 * np.mean(calibrated <= 0.5))
    assert axes.get_title(loc="left") == "Two"
    (bars,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    assert [segment.tolist() for segment in bars.get_segments()] == [
        [[50, 45], [50, 55]],
        [[90, 85], [90, 95]],
    ]


def test_reliability_band_has_the_smallest_number_of_cases(rng: np.random.Generator) -> None:
    """With 150 cases, a calibrated 50 % region covers 42 to 58 %; with more cases less."""
    for cases, low, high in ((150, 42, 58), (2400, 48, 52)):
        levels = {"a": rng.random(cases), "b": rng.random(2400)}
        (axes,) = plot_reliability(levels).axes
        (band,) = [c for c in axes.collections if isinstance(c, PolyCollection)]
        edge = band.get_paths()[0].vertices
        at_half = edge[np.isclose(edge[:, 0], 50), 1]
        assert (at_half.min(), at_half.max()) == pytest.approx((low, high), abs=0.7)
    for bad in ({}, {"a": []}, {"a": [0.5, 1.5]}, {"a": [np.nan]}):
        with pytest.raises(ea.InputError, match="between 0 and 1"):
            plot_reliability(bad)


def test_failed_save_keeps_the_existing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full, the existing figure is unchanged and no other file is left."""

    def half(self: Figure, path: Path, **_: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "x.png").write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(ea.InputError, match="No space left"):
        save(Figure(), tmp_path / "x.png")
    assert [f.read_bytes() for f in tmp_path.iterdir()] == [b"old"]
