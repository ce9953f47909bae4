"""Tests of zoom, selection, loop, options and corrections by hand in a browser."""

# ruff: noqa: F401, F811  (the fixtures of the other tests in a browser)

from pathlib import Path
from typing import Any

import pytest
from test_studio_browser import (
    address,
    browser,
    chromium,
    drop_file,
    mixture_file,
    page,
    scene,
    wait_for_result,
)

pytestmark = pytest.mark.browser

STATE = """async () => {
  const { app } = await import("./static/main.js");
  const { player, time, view, id } = app.page.result;
  const { start, end, selection } = time.timeline;
  const at = player.position();
  return { at, loop: player.loop, volume: player.volume, start, end, selection, id,
    colours: view.sources.map((s) => s.colour) };
}"""


def open_result(page: Any, mixture_file: Path) -> None:
    """Separate the mixture and wait for its report."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    page.get_by_role("link", name="Report").wait_for(timeout=60_000)


def test_zoom_selection_loop_and_read_out(page: Any, mixture_file: Path) -> None:
    """A dragged part is selected, zoomed, repeated, and analysed as a recording of its own."""
    open_result(page, mixture_file)
    waveform = page.locator(".stack canvas").first
    waveform.evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    box = waveform.bounding_box()
    x, y, width = box["x"] + 46, box["y"] + 20, box["width"] - 46
    page.mouse.click(x + 0.5 * width, y)
    seconds = page.evaluate(STATE)["end"]
    assert page.evaluate(STATE)["at"] == pytest.approx(0.5 * seconds, abs=0.02)
    page.locator("main").focus()
    page.keyboard.press("Shift+ArrowLeft")
    assert page.evaluate(STATE)["at"] == pytest.approx(0.5 * seconds - 0.1, abs=0.02)
    page.mouse.move(x + 0.2 * width, y)
    page.mouse.down()
    page.mouse.move(x + 0.9 * width, y, steps=4)
    page.mouse.up()
    chosen = page.evaluate(STATE)["selection"]
    assert chosen["start"] == pytest.approx(0.2 * seconds, abs=0.02)
    assert chosen["end"] == pytest.approx(0.9 * seconds, abs=0.02)
    assert page.evaluate(STATE)["loop"] is None
    page.get_by_role("button", name="Loop").click()
    assert page.evaluate(STATE)["loop"] == chosen
    page.get_by_role("button", name="Zoom to the selection").click()
    state = page.evaluate(STATE)
    assert (state["start"], state["end"]) == (chosen["start"], pytest.approx(chosen["end"]))
    page.get_by_role("button", name="Show all").click()
    assert page.evaluate(STATE)["start"] == 0
    page.get_by_label("Volume").fill("0.25")
    assert page.evaluate(STATE)["volume"] == 0.25
    spectrogram = page.locator(".stack figure canvas").last
    spectrogram.evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    box = spectrogram.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 0.5 * box["height"])
    read_out = page.locator(".readout").inner_text()
    assert " Hz · " in read_out
    assert " dB" in read_out
    page.get_by_role("button", name="Analyse selection").click()
    start, end = (f"{chosen[key]:.2f}" for key in ("start", "end"))
    page.locator("h1", has_text=f"party ({start} to {end} s).wav").wait_for(timeout=60_000)
    wait_for_result(page)


def test_correction_by_hand(page: Any, mixture_file: Path) -> None:
    """Sources are renamed, moved, split, merged and removed; the rest keeps colour and name."""
    open_result(page, mixture_file)
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


def test_a_source_is_dragged(page: Any, mixture_file: Path) -> None:
    """A source follows the pointer on the sphere, and Cancel restores the answer."""
    open_result(page, mixture_file)
    page.get_by_role("button", name="Correct by hand").click()
    place = """async () => {
      const { app } = await import("./static/main.js");
      const { vector } = await import("./static/sphere.js");
      return app.sphere.at(vector(app.sphere.items[0].direction));
    }"""
    page.evaluate("scrollTo(0, 0)")
    box, before = page.locator("canvas.sphere").bounding_box(), page.locator(".source .note")
    x, y, _ = page.evaluate(place)
    text = before.first.inner_text()
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + x + 40, box["y"] + y + 30, steps=4)
    page.mouse.up()
    assert before.first.inner_text() != text
    page.get_by_role("button", name="Cancel").click()
    assert page.get_by_role("button", name="Solo source 1").is_visible()


def test_ears_are_swapped(page: Any, mixture_file: Path) -> None:
    """The channels of the answer are those that were chosen."""
    open_result(page, mixture_file)
    page.get_by_text("Channels and output").click()
    page.get_by_role("button", name="Swap ears").click()
    page.get_by_role("button", name="Apply").click()
    page.get_by_label("Left ear: channel").wait_for(timeout=60_000)
    wait_for_result(page)
    assert page.get_by_label("Left ear: channel").input_value() == "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_corrections_are_accessible(
    browser: Any,
    address: str,
    mixture_file: Path,
    scheme: str,
) -> None:
    """The audit finds nothing while a part is selected and sources are corrected, on a phone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = browser.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    open_result(page, mixture_file)
    page.get_by_label("Selection from").fill("0.2")
    page.get_by_label("Selection to").fill("0.9")
    page.get_by_label("Selection to").press("Tab")
    page.get_by_role("button", name="Zoom to the selection").click()
    page.get_by_text("Channels and output").click()
    page.get_by_role("button", name="Correct by hand").click()
    found = axe.Axe().run(page).response["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
