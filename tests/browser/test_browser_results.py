"""Tests of a separated recording in the browser: playback, plots, pictures and corrections."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

import earatlas as ea
from browser.studio_tab import (
    STATE,
    correlation,
    download,
    drop_files,
    open_page,
    page_samples,
    playback,
    wait_for_result,
)
from earatlas.plotting.palette import COLOURS

pytestmark = pytest.mark.browser


def test_solo_mute_and_mixture(result: Any, scene: ea.SimulatedScene) -> None:
    """Solo plays the talker at the displayed direction; all sources add up to the mixture."""
    assert result.locator(".source").count() == 2
    places = result.locator(".source .place").all_inner_texts()
    mixture = scene.mixture.samples
    for m, place in enumerate(places):
        result.get_by_role("button", name=f"Solo source {m + 1}").click()
        played = playback(result)
        true = 0 if "left" in place else 1
        assert correlation(played, scene.images[true]) > 0.9
        assert correlation(played, scene.images[1 - true]) < 0.4
    result.keyboard.press("0")
    assert correlation(playback(result), mixture) > 0.9999
    result.get_by_role("button", name="Mixture").click()
    assert correlation(playback(result), mixture) > 0.99999
    # Separated, without the first source.
    result.get_by_role("button", name="Mute source 1").click()
    alone = playback(result)
    result.get_by_role("button", name="Mute source 1").click()
    result.get_by_role("button", name="Solo source 2").click()
    assert correlation(alone, playback(result)) > 0.99999


def test_two_example_voices(browser: Any, example: tuple[str, str]) -> None:
    """The example needs no file: two voices are separated with their true directions."""
    for page in open_page(browser, *example):
        wait_for_result(page)
        assert page.locator(".source").count() == 2
        assert page.get_by_text("true direction", exact=True).is_visible()


def test_switching_is_seamless(result: Any, scene: ea.SimulatedScene) -> None:
    """Switching between mixture and sources continues at the same sample."""
    switched = page_samples(
        result,
        """async (player, Player) => {
          const { buffers, scale } = player;
          const other = Object.assign(new Player(player.rate), { buffers, scale });
          const context = new OfflineAudioContext(2, player.buffers[0].length, player.rate);
          other.context = context;
          other.running = other.graph(context, 0, 0);
          for (const [at, mixed] of [[0.32, true], [0.64, false], [1.008, true]]) {
            context.suspend(at).then(() => { other.select({ mixed }); context.resume(); });
          }
          return context.startRendering();
        }""",
    )
    mixture = scene.mixture.samples
    n = min(mixture.shape[1], switched.shape[1])
    scale = float((switched[:, :n] * mixture[:, :n]).sum() / (mixture[:, :n] ** 2).sum())
    # The sources add up to the mixture, so that switching changes nothing.
    assert np.abs(switched[:, :n] - scale * mixture[:, :n]).max() < 1e-3 * np.abs(switched).max()


def test_playback_by_keyboard(result: Any) -> None:
    """The space bar starts and stops playback, and the clock advances."""
    result.locator("main").focus()
    result.keyboard.press(" ")
    result.wait_for_selector("[aria-label=Pause]")
    result.wait_for_function("() => document.querySelector('.clock').textContent > '0.2'")
    result.keyboard.press(" ")
    result.wait_for_selector("[aria-label=Play]")
    assert result.locator(".clock").inner_text() > "0.2"


def test_sphere_is_rotated(result: Any) -> None:
    """The sphere is rotated by mouse and by keys."""
    view_angles = """async () => {
      const { app } = await import("./static/main.js");
      return [app.sphere.yaw, app.sphere.pitch];
    }"""
    yaw, pitch = result.evaluate(view_angles)
    box = result.locator("canvas.sphere").bounding_box()
    result.mouse.move(box["x"] + 100, box["y"] + 100)
    result.mouse.down()
    result.mouse.move(box["x"] + 160, box["y"] + 80, steps=3)
    result.mouse.up()
    rotated = result.evaluate(view_angles)
    assert rotated[0] > yaw + 5
    assert rotated[1] < pitch - 1
    result.keyboard.press("ArrowLeft")
    assert result.evaluate(view_angles)[0] == pytest.approx(rotated[0] - 5)
    result.keyboard.press("Home")
    assert result.evaluate(view_angles) == [yaw, pitch]


def test_pictures_are_saved(result: Any, tmp_path: Path) -> None:
    """Pictures are saved as PNG and SVG with the colours of the sources; the page is unchanged."""
    for menu in result.locator("details.save summary").all():
        menu.click()
    pixels = """() => document.querySelector("canvas.map").toDataURL()"""
    result.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    before = result.evaluate(pixels)
    for name in ("Sphere", "Over time", "Map of directions"):
        saved = {
            kind: download(
                result,
                result.get_by_role("button", name=f"Save {name} as {kind}"),
                tmp_path / f"picture.{kind.lower()}",
            ).read_bytes()
            for kind in ("PNG", "SVG")
        }
        text = saved["SVG"].decode()
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert COLOURS[0] in text
        assert COLOURS[1] in text
        image = matplotlib.image.imread(tmp_path / "picture.png")
        width = float(re.search(r'width="([0-9.]+)"', text)[1])  # type: ignore[index]
        assert image.shape[1] == pytest.approx(2 * width, abs=2)
        assert image[..., :3].std() > 0.01
    assert result.evaluate(pixels) == before


def test_differences_and_maps(result: Any) -> None:
    """The spectrogram shows level and phase differences with a scale; a map has a close-up."""
    shown = """() => [...document.querySelectorAll(".stack canvas")].at(-2).toDataURL()"""
    pictures = {result.evaluate(shown)}
    charts = result.get_by_role("region", name="Over time")
    for name, text in (("ILD", "left louder"), ("IPD", "right leads"), ("Level", "0 dB")):
        charts.get_by_role("button", name=name, exact=True).click()
        assert text in charts.locator("figcaption").last.inner_text()
        pictures.add(result.evaluate(shown))
    assert len(pictures) == 4
    card = result.get_by_role("region", name="Map of directions")
    whole = result.evaluate("document.querySelector('canvas.map').toDataURL()")
    card.get_by_role("button", name="Map of source 2").click()
    assert result.evaluate("document.querySelector('canvas.map').toDataURL()") != whole
    box = card.locator("canvas").bounding_box()
    result.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.45 * box["height"])
    # The centre of a close-up is close to the source.
    place = result.locator(".source .place").nth(1).inner_text()
    assert card.locator(".fields .note").inner_text().split(" ")[1][:4] == place.split(" ")[1][:4]


def test_zoom_selection_loop_and_read_out(result: Any) -> None:
    """A dragged part is selected, zoomed, repeated, and analysed as a recording of its own."""
    waveform = result.locator(".stack canvas").first
    waveform.evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    box = waveform.bounding_box()
    x, y, width = box["x"] + 58, box["y"] + 20, box["width"] - 58
    result.mouse.click(x + 0.5 * width, y)
    seconds = result.evaluate(STATE)["end"]
    assert result.evaluate(STATE)["at"] == pytest.approx(0.5 * seconds, abs=0.02)
    result.locator("main").focus()
    result.keyboard.press("Shift+ArrowLeft")
    assert result.evaluate(STATE)["at"] == pytest.approx(0.5 * seconds - 0.1, abs=0.02)
    result.mouse.move(x + 0.2 * width, y)
    result.mouse.down()
    result.mouse.move(x + 0.9 * width, y, steps=4)
    result.mouse.up()
    chosen = result.evaluate(STATE)["selection"]
    assert chosen["start"] == pytest.approx(0.2 * seconds, abs=0.02)
    assert chosen["end"] == pytest.approx(0.9 * seconds, abs=0.02)
    assert result.evaluate(STATE)["loop"] is None
    result.get_by_role("button", name="Loop").click()
    assert result.evaluate(STATE)["loop"] == chosen
    result.get_by_role("button", name="Zoom to the selection").click()
    state = result.evaluate(STATE)
    assert (state["start"], state["end"]) == (chosen["start"], pytest.approx(chosen["end"]))
    result.get_by_role("button", name="Show all").click()
    assert result.evaluate(STATE)["start"] == 0
    result.get_by_label("Volume").fill("0.25")
    assert result.evaluate(STATE)["volume"] == 0.25
    spectrogram = result.locator(".stack figure canvas").last
    spectrogram.evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    box = spectrogram.bounding_box()
    result.mouse.move(box["x"] + 300, box["y"] + 0.5 * box["height"])
    read_out = result.locator(".readout").inner_text()
    assert " Hz · " in read_out
    assert " dB" in read_out
    result.get_by_role("button", name="Analyse selection").click()
    start, end = (f"{chosen[key]:.2f}" for key in ("start", "end"))
    result.locator("h1", has_text=f"party ({start} to {end} s).wav").wait_for(timeout=60_000)
    wait_for_result(result)


def test_a_source_is_dragged(result: Any) -> None:
    """A source follows the pointer on the sphere, and Cancel restores the answer."""
    result.get_by_role("button", name="Correct by hand").click()
    place = """async () => {
      const { app } = await import("./static/main.js");
      const { vector } = await import("./static/sphere.js");
      return app.sphere.at(vector(app.sphere.items[0].direction));
    }"""
    result.evaluate("scrollTo(0, 0)")
    box, before = result.locator("canvas.sphere").bounding_box(), result.locator(".source .note")
    x, y, _ = result.evaluate(place)
    text = before.first.inner_text()
    result.mouse.move(box["x"] + x, box["y"] + y)
    result.mouse.down()
    result.mouse.move(box["x"] + x + 40, box["y"] + y + 30, steps=4)
    result.mouse.up()
    assert before.first.inner_text() != text
    result.get_by_role("button", name="Cancel").click()
    assert result.get_by_role("button", name="Solo source 1").is_visible()


def test_correction_by_hand(page: Any, mixture_file: Path) -> None:
    """Sources are renamed, moved, split, merged and removed; the rest keeps colour and name."""
    drop_files(page, ("party.wav", mixture_file.read_bytes()))
    wait_for_result(page, report=True)
    before = page.evaluate(STATE)["colours"]
    page.get_by_role("button", name="Correct by hand").click()
    page.get_by_label("Name of source 2").fill("Hugh")
    page.get_by_label("Name of source 2").press("Tab")
    page.get_by_role("button", name="Split Hugh").or_(
        page.get_by_role("button", name="Split source 2")
    ).click()
    assert page.locator(".source").count() == 3
    page.get_by_label("Merge source 3 with").select_option("2")
    assert page.locator(".source").count() == 2
    page.get_by_role("button", name="Remove source 1").click()
    page.get_by_label("Azimuth of Hugh").fill("50")
    page.get_by_label("Elevation of Hugh").fill("20")
    page.get_by_role("button", name="Separate again").click()
    page.get_by_text("1 source at given directions").wait_for(timeout=60_000)
    wait_for_result(page)
    card = page.locator(".source")
    assert card.count() == 1
    assert "Hugh" in card.inner_text()
    assert "50° right, 20° up" in card.inner_text()
    assert "given by hand" in card.inner_text()
    assert page.evaluate(STATE)["colours"] == before[1:]
    assert page.get_by_role("link", name="Hugh").count() == 1


def test_ears_are_swapped(page: Any, mixture_file: Path) -> None:
    """The channels of the answer are those that were chosen."""
    drop_files(page, ("party.wav", mixture_file.read_bytes()))
    wait_for_result(page, report=True)
    page.get_by_text("Channels and output").click()
    page.get_by_role("button", name="Swap ears").click()
    page.get_by_role("button", name="Apply").click()
    page.get_by_label("Left ear: channel").wait_for(timeout=60_000)
    wait_for_result(page)
    assert page.get_by_label("Left ear: channel").input_value() == "1"
