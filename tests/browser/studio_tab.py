"""A tab of the studio in a browser, as the tests use it: files, results, playback and downloads."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import earatlas as ea

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]
MICROPHONES = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
PLACES = [[41.0, 1.0], [-64.0, 24.0]]

DROP = """async ([files]) => {
  const held = new DataTransfer();
  for (const [name, data] of files) {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    held.items.add(new File([bytes], name, { type: "audio/wav" }));
  }
  const how = { dataTransfer: held, bubbles: true, cancelable: true };
  window.dispatchEvent(new DragEvent("drop", how));
}"""
SESSION = "sessionStorage.getItem('earatlas-session' + location.pathname)"
STATE = """async () => {
  const { app } = await import("./static/main.js");
  const { player, time, view, id } = app.page.result;
  const { start, end, selection } = time.timeline;
  const at = player.position();
  return { at, loop: player.loop, volume: player.volume, start, end, selection, id,
    colours: view.sources.map((s) => s.colour) };
}"""


def open_page(
    browser: Any, address: str, session: str | None = None, **options: Any
) -> Iterator[Any]:
    """Open the studio in a new tab, and check at the end that there were no script errors.

    A tab with the `session` of another one has the same recordings. `options` are those of the tab.
    """
    tab = browser.new_page(**{"viewport": {"width": 1280, "height": 860}, **options})
    if session is not None:
        key = "'earatlas-session' + location.pathname"
        tab.add_init_script(f"sessionStorage.setItem({key}, '{session}')")
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda entry: errors.extend([entry.text] if entry.type == "error" else []))
    tab.goto(address)
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#heads select").input_value() == "people"
    tab.locator("#heads select").select_option("simulated")  # the head of the scenes of the tests
    yield tab
    tab.close()
    assert not [text for text in errors if "400" not in text and "429" not in text]


def drop_files(page: Any, *files: tuple[str, bytes]) -> None:
    """Drop files, which have names and contents, on the page."""
    page.evaluate(DROP, [[(name, base64.b64encode(data).decode()) for name, data in files]])


def wait_for_result(page: Any, *, report: bool = False) -> None:
    """Wait for the result and its sounds, and for the report if `report`."""
    page.wait_for_selector(".source button:not([disabled])", timeout=60_000)
    page.wait_for_selector(".round:not([disabled])", timeout=20_000)
    if report:
        page.get_by_role("link", name="Report").wait_for(timeout=60_000)


def wait_until(page: Any, condition: str) -> None:
    """Wait for an asynchronous condition; `wait_for_function` would take its promise for true."""
    end = time.monotonic() + 60.0
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def playback(page: Any) -> np.ndarray:
    """Return the samples (2, n) that the page would play now."""
    return page_samples(page, "(player) => player.render()")


def page_samples(page: Any, make: str) -> np.ndarray:
    """Return the samples (2, n) of an AudioBuffer that a script makes with the page's player."""
    script = f"""async () => {{
      const {{ app }} = await import("./static/main.js");
      const {{ Player }} = await import("./static/player.js");
      const buffer = await ({make})(app.page.player, Player);
      const text = (samples) => {{  // numbers of an array would be sent one by one
        const bytes = new Uint8Array(samples.slice().buffer);
        let characters = "";
        for (let i = 0; i < bytes.length; i += 4096)
          characters += String.fromCharCode(...bytes.subarray(i, i + 4096));
        return btoa(characters);
      }};
      return [0, 1].map((c) => text(buffer.getChannelData(c)));
    }}"""
    channels = [base64.b64decode(text) for text in page.evaluate(script)]
    return np.array([np.frombuffer(data, dtype="<f4") for data in channels], dtype=np.float64)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation of two sounds (2, n)."""
    n = min(a.shape[1], b.shape[1])
    x, y = a[:, :n].ravel(), b[:, :n].ravel()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def wav_bytes(audio: ea.Audio, folder: Path) -> bytes:
    """Return a sound as the bytes of a WAV file; `folder` is for temporary files."""
    return audio.write(folder / "bytes.wav").read_bytes()


def download(page: Any, button: Any, path: Path) -> Path:
    """Click on a button that saves a file, and return the file."""
    with page.expect_download(timeout=120_000) as started:
        button.click()
    started.value.save_as(path)
    return path


def audit(page: Any) -> list[str]:
    """Return what axe-core finds on a page in both colour schemes: contrasts, names, roles, …."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")

    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for one in axe.Axe().run(page).response["violations"]:
            found.append(f"{scheme}: {one['id']}: {one['nodes'][0]['html']}")
    return found
