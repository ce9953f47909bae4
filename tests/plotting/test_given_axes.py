"""Figures on given axes: they draw one panel there and return the figure of the axes."""

import numpy as np
import pytest
from made_scenes import make_scene, posterior_at
from matplotlib.figure import Figure

import earatlas as ea
from earatlas.plotting.cues import plot_cues
from earatlas.plotting.heads import plot_head
from earatlas.plotting.posteriors import plot_posterior, plot_reliability
from earatlas.plotting.scenes import plot_scene

pytestmark = pytest.mark.usefixtures("arranged_pictures")


def test_one_panel_is_drawn_on_the_axes(small_head: ea.Head) -> None:
    """Each function draws on its axes only, and makes no further figure."""
    figure = Figure()
    axes = figure.subplots(2, 2).ravel()
    posterior = posterior_at(ea.Sphere(), (30, 10))
    assert plot_posterior(posterior, title="$a", ax=axes[0]) is figure
    assert plot_reliability({"levels": np.linspace(0, 1, 20)}, ax=axes[1]) is figure
    assert plot_scene(make_scene()[0], title="scene", ax=axes[2]) is figure
    assert plot_head(small_head, ax=axes[3]) is figure
    assert len(figure.axes) == 4
    assert axes[0].get_title(loc="left").startswith(r"\$a: 30° left")
    assert axes[1].get_legend() is not None
    assert axes[2].get_title(loc="left") == "scene"
    assert axes[3].get_title(loc="left") == f"{len(small_head)} directions"
    assert figure.legends == []


def test_axes_in_a_subfigure() -> None:
    """Axes of a subfigure are accepted; the returned figure is the whole one."""
    figure = Figure()
    axes = figure.subfigures(1, 2, squeeze=False)[0, 0].subplots()
    assert plot_posterior(posterior_at(ea.Circle(), (30, 5)), ax=axes) is figure


def test_cues_need_one_axes_each(rng: np.random.Generator) -> None:
    """Cues are drawn on as many axes as there are cues; another number is refused."""
    cues = ea.audio_cues(ea.Audio(rng.normal(size=(2, 4000)), 16_000))
    figure = Figure()
    both = figure.subplots(1, 2)
    assert plot_cues(cues, ax=both) is figure
    assert [one.get_title(loc="left") for one in both] == ["Level difference", "Phase difference"]
    with pytest.raises(ea.InputError, match="one Axes per cue"):
        plot_cues(cues, ax=both[0])
    levels = ea.audio_cues(
        ea.Audio(rng.normal(size=(2, 4000)), 16_000), ea.CueLayout(ipd_band_hz=None)
    )
    single = Figure().subplots()
    assert plot_cues(levels, ax=single) is single.figure
