"""Tests of the HTML views of results in notebooks."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from made_scenes import SPACES, make_scene, posterior_at, with_sources

import earatlas as ea
from earatlas.geometry.spaces import Space
from earatlas.hrtf.head import MeasuredCues
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.plotting.palette import COLOURS
from earatlas.report.notebook import notebook_html
from earatlas.streaming.report import LiveReport, LiveSource

VOID = {"img", "br", "line", "circle", "ellipse", "path", "polygon", "polyline", "image", "input"}


class Checker(HTMLParser):
    """Collects the text and the tags of a view, and whether all tags are closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Note a tag that must be closed."""
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Note a tag that closes itself."""
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost open tag is closed."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text outside the style sheet."""
        if self.open[-1:] != ["style"]:
            self.text += data + " "


def view(value: object) -> Checker:
    """Return the parsed view of a result, whose tags must be balanced."""
    parsed = Checker(value._repr_html_())  # type: ignore[attr-defined]
    assert parsed.open == []
    assert parsed.tags[:2] == ["div", "style"]
    return parsed


def doubt(kind: DoubtKind) -> Doubt:
    """Return a doubt whose text needs escaping."""
    return Doubt(kind, "a <b>bold</b> reason & more.", 1.0)


@pytest.mark.parametrize(("space", "places"), SPACES)
def test_localization(space: Space, places: tuple[tuple[float, ...], ...]) -> None:
    """A localization shows its place, its radius, its doubts and a picture in every space."""
    where = ea.Localization(posterior_at(space, places[0]), 0.25, 1.5, (doubt(DoubtKind.NOISY),))
    found = view(where)
    assert "25 %" in found.text
    assert "noisy: a <b>bold</b> reason & more." in found.text
    assert "within" in found.text
    assert "svg" in found.tags
    assert ("left" in found.text) == space.holds_directions


def test_unknown_direction_states_no_direction() -> None:
    """A posterior over the whole sphere is shown without a direction."""
    found = view(posterior_at(ea.Sphere(), (30, 10), width=120.0))
    assert "direction unknown" in found.text
    assert "azimuth" not in found.text


@pytest.mark.parametrize(("space", "places"), SPACES[:5])
def test_scene(space: Space, places: tuple[tuple[float, ...], ...]) -> None:
    """A scene has a row and a player per source; its sources have views of their own."""
    scene, _ = make_scene(space, places)
    found = view(scene)
    for source in scene.sources:
        assert source.name in found.text
        assert "audio" in view(source).tags
    assert found.tags.count("audio") == len(places)


def test_number_of_a_source_that_is_left() -> None:
    """A source keeps its number in all parts of the views if another one was removed by hand."""
    scene, _ = make_scene()
    second = with_sources(scene, [1])
    second = replace(second, sources=(replace(second.sources[0], number=1),))
    for value in (second, second.sources[0]):
        html = value._repr_html_()
        assert COLOURS[1] in html
        assert f"background:{COLOURS[0]}" not in html
        assert ">1</b>" not in html


def test_scene_without_sources() -> None:
    """A scene without sources says so."""
    assert "0 sources" in view(with_sources(make_scene()[0], ())).text


def test_head_and_atlas(small_head: ea.Head, atlas: ea.Atlas) -> None:
    """Heads show how many directions they have, atlases their error."""
    assert f"{len(small_head)} on the sphere" in view(small_head).text
    layout = ea.CueLayout()
    noise = ea.Head("<noise>", small_head.directions, MeasuredCues(small_head.cues(layout), layout))
    assert "cues of noise" in view(noise).text
    assert "Head <noise>" in view(noise).text  # escaped, and so part of the text
    assert "median" in view(atlas).text


def test_track() -> None:
    """A track shows its windows with and without sound."""
    where = ea.Localization(posterior_at(ea.Sphere(), (30, 10)), 0.2, 0.5)
    silent = ea.Localization(where.posterior, 0.0, 0.5)
    found = view(ea.Track(np.arange(3.0), (where, silent, where)))
    assert "3, 2 of them with sound" in found.text
    assert found.tags.count("svg") == 2  # azimuth and elevation
    assert "0 windows" in view(ea.Track(np.zeros(0), ())).text


def test_live_report() -> None:
    """A live report lists its sources and doubts; an unknown direction is not drawn."""
    known = LiveSource(1, np.array([30.0, 0.0]), 4.0, 0.5, 0.1, -20.0, True, True, 0.0)
    lost = LiveSource(
        7, np.array([-60.0, 0.0]), 150.0, 0.5, 3.0, -np.inf, True, False, 0.0,
        doubts=(doubt(DoubtKind.SILENT),),
    )  # fmt: skip
    found = view(LiveReport(2.0, 0, (known, lost), doubts=(doubt(DoubtKind.NOISY),)))
    assert "30° left" in found.text
    assert "direction unknown" in found.text
    assert "source 7: silent: a <b>bold" in found.text
    assert found.tags.count("polygon") == 1
    assert "0 sources" in view(LiveReport(0.5, 0, ())).text


def test_audio_has_a_player() -> None:
    """A sound has a player, which plays the first two of its channels."""
    assert "audio" in view(ea.Audio(0.1 * np.ones((3, 800)), 8000)).tags
    assert "audio" not in view(ea.Audio(np.zeros((1, 0)), 8000)).tags


def test_other_values_are_escaped() -> None:
    """A value of an unknown type is shown as its escaped repr."""
    assert notebook_html("<i>") == "<pre>&#x27;&lt;i&gt;&#x27;</pre>"
