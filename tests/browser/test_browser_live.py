"""Tests of the live page with simulated microphones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.studio_tab import MICROPHONES, download, open_page, wait_for_result, wait_until

pytestmark = pytest.mark.browser

MONITORED = """async () => {
  const { app } = await import("./static/main.js");
  return app.page.next > 0;
}"""
TALKER_IS_RIGHT = "() => document.querySelector('.source .place')?.textContent.includes('right')"
RECORDED = """async () => {
  const { app } = await import("./static/main.js");
  return app.page.count >= 1.5 * app.page.rate;
}"""


def test_live(two_ears: Any, address: str) -> None:
    """The talker appears at its direction; a recording is separated like any other."""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.wait_for_function(TALKER_IS_RIGHT, timeout=60_000)
        page.get_by_role("button", name="Play source").first.click()
        wait_until(page, MONITORED)
        page.get_by_role("button", name="Record").click()
        wait_until(page, RECORDED)
        page.get_by_role("button", name="Stop and separate").click()
        wait_for_result(page)
        assert "right" in page.locator(".source .place").first.inner_text()


def test_leaving_the_live_page_keeps_the_recording(two_ears: Any, address: str) -> None:
    """A recording is separated after the user visited another page."""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.get_by_role("button", name="Record").click(timeout=60_000)
        wait_until(page, RECORDED)
        page.get_by_role("link", name="How it works").click()
        page.get_by_role("link", name="Recording").click()
        page.locator("h1", has_text="live.wav").wait_for(timeout=20_000)


def test_mono_input_is_refused(browser: Any, address: str) -> None:
    """An input with one channel is refused with an explanation."""
    for page in open_page(browser, f"{address}#live"):
        page.evaluate(
            """() => { navigator.mediaDevices.getUserMedia = async () => {
              const track = { getSettings: () => ({ channelCount: 1 }), stop: () => {} };
              return { getAudioTracks: () => [track], getTracks: () => [track] };
            }; }"""
        )
        page.get_by_role("button", name="Listen").click()
        alert = page.get_by_role("alert")
        alert.wait_for()
        assert "one channel" in alert.inner_text()
        page.get_by_role("link", name="Recording").click()
        page.get_by_role("button", name="Record two channels").click()
        page.get_by_role("alert").wait_for()


def test_live_page_is_started_twice(two_ears: Any, address: str) -> None:
    """Also the second time, nothing is sent before the studio is ready."""
    ready = """async () => (await import("./static/main.js")).app.page.ready"""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.get_by_role("button", name="Stop").click(timeout=60_000)
        page.get_by_role("button", name="Listen").click()
        assert not page.evaluate(ready)
        page.get_by_role("button", name="Stop").click(timeout=60_000)


def test_live_input_meters_and_history(two_ears: Any, address: str, tmp_path: Path) -> None:
    """Another input can be chosen while listening; the history has the talker's track."""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.wait_for_selector(".source .place", timeout=60_000)
        meters = page.get_by_role("region", name="Input levels")
        assert meters.locator("meter").count() == 2
        page.wait_for_function(
            "() => [...document.querySelectorAll('.ears meter')].every((one) => one.value > -50)"
        )
        choice = page.get_by_label("Input", exact=True)
        assert choice.locator("option").count() >= 2
        choice.select_option(index=1)
        page.get_by_role("status").get_by_text("The input was changed").wait_for()
        clock = float(page.locator(".clock").inner_text().split()[0])
        page.wait_for_function(
            f"() => parseFloat(document.querySelector('.clock').textContent) > {clock} + 1"
        )
        table = download(
            page, page.get_by_role("button", name="Save tracks (CSV)"), tmp_path / "tracks.csv"
        )
        rows = [line.split(",") for line in table.read_text().splitlines()]
        assert rows[0][2:6] == [
            "azimuth_degrees", "elevation_degrees",
            "azimuth_band_90_degrees", "elevation_band_90_degrees",
        ]  # fmt: skip
        azimuths = np.array([float(row[2]) for row in rows[1:]])
        assert len(azimuths) >= 2
        assert abs(np.median(azimuths) + 70) < 20
        assert all(0 < float(row[4]) <= 180 for row in rows[1:])


def test_unknown_live_direction_is_not_drawn(chromium: Any, address: str) -> None:
    """Equal channels have no direction: the source has a card, and no mark on the sphere."""
    for page in open_page(chromium(*MICROPHONES), f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.locator(".source .place", has_text="direction unknown").wait_for(timeout=60_000)
        unknown = """async () => {
          const { app } = await import("./static/main.js");
          return app.sphere.items.map((item) => item.unknown);
        }"""
        assert page.evaluate(unknown) == [True]


def test_clipping_is_shown(page: Any) -> None:
    """A meter shows clipping, and which ear is silent."""
    shows = """async () => {
      const { EarMeters } = await import("./static/devices.js");
      const meters = new EarMeters();
      const loud = new Float32Array(480).fill(1), silent = new Float32Array(480);
      meters.update(loud, silent, 48000);
      return [...meters.ears.map(({ clip }) => clip.hidden), meters.note.textContent];
    }"""
    left, right, note = page.evaluate(shows)
    assert (left, right) == (False, True)
    assert note.startswith("Right ear: almost no sound")
