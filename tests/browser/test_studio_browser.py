"""Tests of the studio in a browser: displayed texts, playback, uploads, and recording.

The studio is started like a user starts it. The tests are skipped without a browser.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
import soundfile

import earatlas as ea
from earatlas.plotting.palette import COLOURS
from earatlas.studio.session import SIMULATED_ATLAS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

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
NAMES = ("chromium", "chromium-browser", "google-chrome")
PLACES = [[41.0, 1.0], [-64.0, 24.0]]
pytestmark = pytest.mark.browser

DROP = """async ([name, data, kind]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const held = new DataTransfer();
  held.items.add(new File([bytes], name, { type: kind }));
  const how = { dataTransfer: held, bubbles: true, cancelable: true };
  window.dispatchEvent(new DragEvent("drop", how));
}"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Return a function that starts a browser with these flags."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the path")
    with playwright.sync_playwright() as started:
        opened: list[Any] = []

        def start(*flags: str) -> Any:
            browser = started.chromium.launch(executable_path=path, args=[*FLAGS, *flags])
            opened.append(browser)
            return browser

        yield start
        for browser in opened:
            browser.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a studio in its own process, and return its address."""
    command = [sys.executable, "-m", "earatlas", "studio", "--no-browser"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="session")
def browser(chromium: Any) -> Any:
    """Return one browser for all tests that need no special flags."""
    return chromium()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """Open the studio in a new tab; errors of its scripts fail the test."""
    yield from open_page(browser, address)


def open_page(browser: Any, address: str) -> Iterator[Any]:
    """Open the studio in a new tab, and check at the end that there were no script errors."""
    tab = browser.new_page(viewport={"width": 1280, "height": 860})
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


@pytest.fixture(scope="session")
def scene() -> ea.SimulatedScene:
    """Return two synthetic talkers with known images."""
    sounds = [ea.synthetic_speech(1.5, seed=1), ea.synthetic_speech(1.5, seed=2)]
    return ea.render_scene(ea.simulated_head(PLACES), sounds, PLACES)


@pytest.fixture(scope="session")
def mixture_file(scene: ea.SimulatedScene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the mixture to a file."""
    return scene.mixture.write(tmp_path_factory.mktemp("party") / "party.wav")


MONITORED = """async () => {
  const { app } = await import("./static/main.js");
  for (let i = 0; i < 100 && !app.page.next; i += 1) await new Promise((r) => setTimeout(r, 100));
  return app.page.next;
}"""


def drop_file(page: Any, name: str, data: bytes) -> None:
    """Drop a file on the page."""
    page.evaluate(DROP, [name, base64.b64encode(data).decode(), "audio/wav"])


def wait_for_result(page: Any) -> None:
    """Wait for the result and its sounds."""
    page.wait_for_selector(".source button:not([disabled])", timeout=60_000)
    page.wait_for_selector(".round:not([disabled])", timeout=20_000)


def playback(page: Any) -> np.ndarray:
    """Return the samples (2, n) that the page would play now."""
    return page_samples(page, "(player) => player.render()")


def page_samples(page: Any, make: str) -> np.ndarray:
    """Return the samples (2, n) of an AudioBuffer that a script makes with the page's player."""
    script = f"""async () => {{
      const {{ app }} = await import("./static/main.js");
      const {{ Player }} = await import("./static/player.js");
      const buffer = await ({make})(app.page.player, Player);
      return [0, 1].map((c) => Array.from(buffer.getChannelData(c)));
    }}"""
    return np.array(page.evaluate(script))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation of two sounds (2, n)."""
    n = min(a.shape[1], b.shape[1])
    x, y = a[:, :n].ravel(), b[:, :n].ravel()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def test_solo_mute_and_mixture(page: Any, mixture_file: Path, scene: ea.SimulatedScene) -> None:
    """Solo plays the talker at the displayed direction; all sources add up to the mixture."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    assert page.locator(".source").count() == 2
    places = page.locator(".source .place").all_inner_texts()
    mixture = scene.mixture.samples
    for m, place in enumerate(places):
        page.get_by_role("button", name=f"Solo source {m + 1}").click()
        played = playback(page)
        true = 0 if "left" in place else 1
        assert correlation(played, scene.images[true]) > 0.9
        assert correlation(played, scene.images[1 - true]) < 0.4
    page.keyboard.press("0")
    assert correlation(playback(page), mixture) > 0.9999
    page.get_by_role("button", name="Mixture").click()
    assert correlation(playback(page), mixture) > 0.99999
    page.get_by_role("button", name="Mute source 1").click()  # separated, without the first source
    alone = playback(page)
    page.get_by_role("button", name="Mute source 1").click()
    page.get_by_role("button", name="Solo source 2").click()
    assert correlation(alone, playback(page)) > 0.99999


def test_two_example_voices(page: Any) -> None:
    """The example needs no file: two voices are separated with their true directions."""
    page.get_by_role("button", name="Try two voices").click()
    wait_for_result(page)
    assert page.locator(".source").count() == 2
    assert page.get_by_text("true direction", exact=True).is_visible()


def test_switching_is_seamless(page: Any, mixture_file: Path, scene: ea.SimulatedScene) -> None:
    """Switching between mixture and sources continues at the same sample."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    switched = page_samples(
        page,
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


def test_settings_and_history(page: Any, mixture_file: Path) -> None:
    """Settings apply to one recording only; the browser goes back to earlier recordings."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    page.get_by_label("Sources").select_option("3")
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("3 sources as requested").wait_for(timeout=60_000)
    wait_for_result(page)
    samples, rate = soundfile.read(mixture_file)
    loud = mixture_file.with_name("loud.wav")
    soundfile.write(loud, 40 * samples, rate)
    drop_file(page, "loud.wav", loud.read_bytes())
    page.locator("h1", has_text="loud.wav").wait_for()
    wait_for_result(page)
    assert "found" in page.locator(".facts").inner_text()
    warned = page.locator(".doubts").first.inner_text()
    assert "'loud.wav'" in warned
    assert "session-" not in warned
    page.go_back()
    page.locator("h1", has_text="party.wav").wait_for(timeout=20_000)
    page.go_forward()
    page.locator("h1", has_text="loud.wav").wait_for(timeout=20_000)


def test_worker_killed_after_the_preview(page: Any, mixture_file: Path) -> None:
    """The page shows the error instead of the preview."""
    fails = """async () => {
      const { app } = await import("./static/main.js");
      const real = window.fetch;
      let requests = 0;
      window.fetch = async (path, options) => {
        const response = await real(path, options);
        if (!path.includes("/jobs/")) return response;
        const job = await response.json();
        const files = { mixture: "mixture.wav", sounds: [] };
        const view = { ...job.result, preliminary: true, files };
        const state = requests++ < 2 ? { state: "running", result_version: 1, result: view }
          : { state: "failed", error: "The process was ended by the system." };
        return new Response(JSON.stringify({ ...job, ...state }));
      };
      const { get } = await import("./static/api.js");
      const [one] = (await get("recordings")).recordings;
      app.page.reopen(one);
    }"""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    page.get_by_role("link", name="Report").wait_for(timeout=20_000)
    page.evaluate(fails)
    page.get_by_role("alert").get_by_text("ended by the system").wait_for(timeout=10_000)


def test_playback_by_keyboard(page: Any, mixture_file: Path) -> None:
    """The space bar starts and stops playback, and the clock advances."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    page.locator("main").focus()
    page.keyboard.press(" ")
    page.wait_for_selector("[aria-label=Pause]")
    for _ in range(100):
        if page.locator(".clock").inner_text() > "0.2":
            break
        page.wait_for_timeout(50)
    page.keyboard.press(" ")
    page.wait_for_selector("[aria-label=Play]")
    assert page.locator(".clock").inner_text() > "0.2"


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a text", "cannot be read as sound"), (b"", "must not be empty")],
)
def test_error_message(page: Any, data: bytes, message: str) -> None:
    """A file that cannot be read gives an error message, and the page stays usable."""
    drop_file(page, "<img src=x onerror=alert(1)>.wav", data)
    alert = page.get_by_role("alert")
    alert.wait_for(timeout=30_000)
    assert message in alert.inner_text()
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("button", name="Choose a file").wait_for()


def test_cancel(page: Any) -> None:
    """Cancelling a running job returns to the empty page."""
    head = ea.simulated_head(ea.Sphere().grid(20.0))
    sounds = [ea.synthetic_speech(40.0, seed=seed) for seed in (1, 2)]
    places = [head.directions[20], head.directions[70]]
    path = ea.render_scene(head, sounds, places).mixture
    data = _wav(path)
    drop_file(page, "long.wav", data)
    page.get_by_role("button", name="Cancel").click(timeout=30_000)
    page.get_by_role("button", name="Choose a file").wait_for(timeout=10_000)
    assert page.locator(".source").count() == 0


def _wav(audio: ea.Audio) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return audio.write(Path(folder) / "x.wav").read_bytes()


def test_scene_is_rendered_and_separated(page: Any) -> None:
    """A talker is dragged on the sphere, and the result is compared with the truth."""
    page.get_by_role("link", name="Make a scene").click()
    box = page.locator("canvas.sphere").bounding_box()
    place = """async () => {
      const { app } = await import("./static/main.js");
      const { vector } = await import("./static/sphere.js");
      return app.page.sphere.at(vector(app.page.sphere.items[0].direction));
    }"""
    x, y, _ = page.evaluate(place)
    before = page.locator(".source .note").first.inner_text()
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + x + 40, box["y"] + y + 30, steps=4)
    page.mouse.up()
    after = page.locator(".source .note").first.inner_text()
    assert after != before
    page.get_by_role("button", name="Listen").click()
    page.get_by_role("button", name="Stop").click(timeout=60_000)
    page.get_by_role("button", name="Render and separate").click()
    wait_for_result(page)
    table = page.get_by_role("region", name="Comparison with the ground truth")
    assert after.split(",")[0] in table.inner_text()
    assert table.locator("tbody tr").count() == 2


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_layout_and_names_of_controls(
    page: Any, mixture_file: Path, width: int, scheme: str, tmp_path: Path
) -> None:
    """No page is wider than its window, and every control has a name."""
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    for name in ("Make a scene", "Recording"):
        page.get_by_role("link", name=name).click()
        page.locator("#tabs a[aria-current=page]", has_text=name).wait_for()  # it is mounted later
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"{scheme}{width}.png", full_page=True)
    nameless = """() => [...document.querySelectorAll("button, a, select, input, canvas[role]")]
      .filter((e) => e.tabIndex >= 0 && !e.closest("[aria-hidden=true]"))
      .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML)"""
    assert page.evaluate(nameless) == []


def test_tabs_have_separate_sessions(
    page: Any, mixture_file: Path, browser: Any, address: str
) -> None:
    """A tab does not see the recordings of another; a reloaded tab keeps its own."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    key = "sessionStorage.getItem('earatlas-session' + location.pathname)"
    own_key = page.evaluate(key)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate(key) == own_key
    wait_for_result(page)  # the recording in the address
    page.get_by_role("button", name="Another recording").click()
    earlier = page.get_by_role("region", name="Earlier recordings")
    earlier.get_by_role("button", name="party.wav").first.click()
    wait_for_result(page)
    assert page.locator(".source").count() == 2
    page.get_by_role("link", name="Report").wait_for()
    page.get_by_role("button", name="Another recording").click()
    earlier.get_by_role("button", name="Remove party.wav").click()
    earlier.wait_for(state="detached")
    other = browser.new_page()
    other.goto(address)
    other.wait_for_selector("body[data-ready]")
    assert other.evaluate(key) != own_key
    other.close()


@pytest.fixture(scope="module")
def two_ears(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start a browser whose microphones record a talker on the right."""
    place = [-70.0, 5.0]
    speech = ea.synthetic_speech(6.0, 48_000, seed=1)
    sound = ea.render_scene(ea.simulated_head([place]), [speech], [place], rate=48_000).mixture
    path = tmp_path_factory.mktemp("ears") / "ears.wav"
    soundfile.write(path, sound.samples.T, sound.rate, "PCM_16")
    return chromium(*MICROPHONES, f"--use-file-for-fake-audio-capture={path}")


def test_live(two_ears: Any, address: str) -> None:
    """The talker appears at its direction; a recording is separated like any other."""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.wait_for_selector(".source .place", timeout=60_000)
        for _ in range(100):
            if "right" in page.locator(".source .place").first.inner_text():
                break
            page.wait_for_timeout(100)
        assert "right" in page.locator(".source .place").first.inner_text()
        page.get_by_role("button", name="Play source").first.click()
        page.wait_for_timeout(500)
        assert page.evaluate(MONITORED) > 0
        page.get_by_role("button", name="Record").click()
        page.wait_for_timeout(2500)
        page.get_by_role("button", name="Stop and separate").click()
        wait_for_result(page)
        assert "right" in page.locator(".source .place").first.inner_text()


def test_leaving_the_live_page_keeps_the_recording(two_ears: Any, address: str) -> None:
    """A recording is separated after the user visited another page."""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.get_by_role("button", name="Record").click(timeout=60_000)
        page.wait_for_timeout(1500)
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


def test_explainer_page(page: Any) -> None:
    """The active charts change with the direction, and the steps of VESSL can be selected."""
    page.get_by_role("link", name="How it works").click()
    charts = page.get_by_role("region", name="Charts")
    charts.wait_for(timeout=90_000)
    before = charts.inner_text()
    page.get_by_label("Azimuth", exact=True).fill("120")
    assert charts.inner_text() != before
    step = page.get_by_role("region", name="VESSL")
    assert "Step 1 of" in step.inner_text()
    page.get_by_label("Step", exact=True).fill("9")
    assert "Step 10 of" in step.inner_text()


def test_sphere_is_rotated(page: Any, mixture_file: Path) -> None:
    """The sphere is rotated by mouse and by keys."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    view_angles = """async () => {
      const { app } = await import("./static/main.js");
      return [app.sphere.yaw, app.sphere.pitch];
    }"""
    yaw, pitch = page.evaluate(view_angles)
    box = page.locator("canvas.sphere").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 80, steps=3)
    page.mouse.up()
    rotated = page.evaluate(view_angles)
    assert rotated[0] > yaw + 5
    assert rotated[1] < pitch - 1
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(view_angles)[0] == pytest.approx(rotated[0] - 5)
    page.keyboard.press("Home")
    assert page.evaluate(view_angles) == [yaw, pitch]


def test_files_can_be_chosen_again_after_errors(page: Any, tmp_path: Path) -> None:
    """After an error the same file or another one can be chosen."""
    (tmp_path / "bad.sofa").write_bytes(b"no SOFA")
    (tmp_path / "ears").mkdir()
    (tmp_path / "ears" / "table.csv").write_text("no,columns")
    page.get_by_role("button", name="Heads").click()
    for button, chosen, message in (
        ("Learn a .sofa file", "bad.sofa", "bad.sofa"),
        ("Learn a .sofa file", "bad.sofa", "bad.sofa"),
        ("Learn a folder", "ears", "table must have the columns"),
    ):
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=button).click(timeout=60_000)
        chooser.value.set_files(tmp_path / chosen)
        page.locator("dialog").get_by_role("alert").get_by_text(message).wait_for(timeout=60_000)


def test_live_page_is_started_twice(two_ears: Any, address: str) -> None:
    """Also the second time, nothing is sent before the studio is ready."""
    ready = """async () => (await import("./static/main.js")).app.page.ready"""
    for page in open_page(two_ears, f"{address}#live"):
        page.get_by_role("button", name="Listen").click()
        page.get_by_role("button", name="Stop").click(timeout=60_000)
        page.get_by_role("button", name="Listen").click()
        assert not page.evaluate(ready)
        page.get_by_role("button", name="Stop").click(timeout=60_000)


def test_expired_session_is_forgotten(page: Any) -> None:
    """The key of an expired session is removed."""
    script = """async () => {
      const { get } = await import("./static/api.js");
      window.fetch = async () => new Response("{}", { status: 410 });
      await get("heads").catch(() => {});
      return sessionStorage.length;
    }"""
    assert page.evaluate("sessionStorage.length") == 1
    assert page.evaluate(script) == 0


def test_other_head_is_offered(page: Any, tmp_path: Path) -> None:
    """A recording that does not fit the head can be separated with another one at once."""
    talker = ea.render_scene(
        ea.simulated_head(PLACES), [ea.synthetic_speech(3.0, seed=1)], PLACES[:1]
    ).mixture
    file = ea.Audio(talker.samples[:, ::2], talker.rate).write(tmp_path / "wrong.wav")
    page.locator("input[type=file][accept*=audio]").set_input_files(str(file))
    wait_for_result(page)
    assert "does not fit this head" in page.locator(".doubts").first.inner_text()
    assert "head: Simulated head" in page.locator(".facts").inner_text()
    assert page.locator(".doubts code").first.inner_text() == "learn --unit same"
    page.locator(".choices button", has_text="People").click()
    page.locator(".facts", has_text="head: People").wait_for(timeout=60_000)
    assert page.locator("#heads select").input_value() == "people"


def test_skip_link_moves_the_focus(page: Any) -> None:
    """The link to the content focuses it, and the page stays as it is."""
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.get_by_role("heading", name="Drop a binaural recording here").is_visible()


def test_several_dropped_files_are_listed(page: Any, mixture_file: Path) -> None:
    """All dropped recordings are separated; they are listed with their results."""
    data = base64.b64encode(mixture_file.read_bytes()).decode()
    page.evaluate(
        """(data) => {
          const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
          const held = new DataTransfer();
          for (const name of ["one.wav", "two.wav"]) held.items.add(new File([bytes], name));
          window.dispatchEvent(new DragEvent("drop", { dataTransfer: held, cancelable: true }));
        }""",
        data,
    )
    for name in ("one.wav", "two.wav"):
        row = page.locator(".earlier li", has_text=name)
        row.get_by_text("2 sources found").wait_for(timeout=60_000)


def test_cancelled_repetition_keeps_the_result(page: Any, mixture_file: Path) -> None:
    """The result of before is shown again, and can be played."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    page.get_by_role("button", name="Apply").click()  # waits until the report is written
    page.get_by_role("button", name="Cancel").click()
    wait_for_result(page)
    assert page.locator(".source").count() == 2
    assert np.abs(playback(page)).max() > 0.01


def test_own_head_is_renamed_and_removed(page: Any) -> None:
    """A head that was added has a name of the user's choice; removing it selects another one."""
    drop_file(page, "mine.atlas", SIMULATED_ATLAS.read_bytes())
    dialog = page.get_by_role("dialog")
    name = dialog.get_by_label("Name of the head")
    name.wait_for(timeout=60_000)
    name.fill("Cellar head")
    dialog.get_by_role("button", name="Rename").click()
    dialog.get_by_role("heading", name="Cellar head").wait_for()
    assert "Cellar head" in page.locator("#heads select").inner_text()
    dialog.get_by_role("button", name="Remove").click()
    dialog.wait_for(state="hidden")
    assert page.locator("#heads select").input_value() == "people"
    assert "Cellar head" not in page.locator("#heads select").inner_text()


def download(page: Any, button: Any, path: Path) -> Path:
    """Click on a button that saves a file, and return the file."""
    with page.expect_download(timeout=120_000) as started:
        button.click()
    started.value.save_as(path)
    return path


def test_pictures_are_saved(page: Any, mixture_file: Path, tmp_path: Path) -> None:
    """Pictures are saved as PNG and SVG with the colours of the sources; the page is unchanged."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    for menu in page.locator("details.save summary").all():
        menu.click()
    pixels = """() => document.querySelector("canvas.map").toDataURL()"""
    page.wait_for_timeout(300)
    before = page.evaluate(pixels)
    for name in ("Sphere", "Over time", "Map of directions"):
        saved = {
            kind: download(
                page,
                page.get_by_role("button", name=f"Save {name} as {kind}"),
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
    assert page.evaluate(pixels) == before


def test_differences_and_maps(page: Any, mixture_file: Path) -> None:
    """The spectrogram shows level and phase differences with a scale; a map has a close-up."""
    drop_file(page, "party.wav", mixture_file.read_bytes())
    wait_for_result(page)
    shown = """() => [...document.querySelectorAll(".stack canvas")].at(-2).toDataURL()"""
    pictures = {page.evaluate(shown)}
    charts = page.get_by_role("region", name="Over time")
    for name, text in (("ILD", "left louder"), ("IPD", "right leads"), ("Level", "0 dB")):
        charts.get_by_role("button", name=name, exact=True).click()
        assert text in charts.locator("figcaption").last.inner_text()
        pictures.add(page.evaluate(shown))
    assert len(pictures) == 4
    card = page.get_by_role("region", name="Map of directions")
    whole = page.evaluate("document.querySelector('canvas.map').toDataURL()")
    card.get_by_role("button", name="Map of source 2").click()
    assert page.evaluate("document.querySelector('canvas.map').toDataURL()") != whole
    box = card.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.45 * box["height"])
    # The centre of a close-up is close to the source.
    place = page.locator(".source .place").nth(1).inner_text()
    assert card.locator(".fields .note").inner_text().split(" ")[1][:4] == place.split(" ")[1][:4]


def test_all_results_are_saved_as_one_file(page: Any, mixture_file: Path, tmp_path: Path) -> None:
    """Several dropped recordings are separated, and all of them are in one ZIP file."""
    short = ea.read_audio(mixture_file)
    data = _wav(ea.Audio(short.samples[:, :4000], short.rate))
    page.evaluate(
        """([data, count]) => {
          const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
          const held = new DataTransfer();
          for (let i = 1; i <= count; i += 1) held.items.add(new File([bytes], `take ${i}.wav`));
          window.dispatchEvent(new DragEvent("drop", { dataTransfer: held, cancelable: true }));
        }""",
        [base64.b64encode(data).decode(), 2],
    )
    button = page.get_by_role("button", name="Save all 2 as ZIP")
    button.wait_for(timeout=120_000)
    with zipfile.ZipFile(download(page, button, tmp_path / "all.zip")) as archive:
        names = archive.namelist()
    for n in (1, 2):
        assert f"take {n}/take {n}.wav" in names
        assert f"take {n}/pictures/scene.svg" in names
        assert f"take {n}/take {n}_report.html" in names


def test_full_queue_is_waited_for(page: Any, mixture_file: Path) -> None:
    """While the studio refuses uploads because its queue is full, they are tried again."""
    waits = """async () => {
      const { uploadAll } = await import("./static/several.js");
      const real = XMLHttpRequest.prototype.send;
      let tries = 0;
      XMLHttpRequest.prototype.send = function send() {
        tries += 1;
        const [status, text] = tries < 3 ? [429, '{"error":"full"}'] : [400, '{"error":"bad"}'];
        Object.defineProperty(this, "status", { get: () => status });
        Object.defineProperty(this, "responseText", { get: () => text });
        this.onload();
      };
      const texts = [];
      const progress = (text) => texts.push(text);
      const files = [new File([], "a.wav")];
      const refused = await uploadAll(files, {}, progress, new AbortController().signal);
      XMLHttpRequest.prototype.send = real;
      return [tries, refused, texts.some((text) => text.includes("waiting"))];
    }"""
    assert page.evaluate(waits) == [3, ["a.wav: bad"], True]


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
        page.wait_for_timeout(500)
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


def test_directions_and_steps_are_heard(page: Any) -> None:
    """A click on the sphere plays a sound from there: the nearer ear is louder."""
    page.get_by_role("link", name="How it works").click()
    page.get_by_role("region", name="Charts").wait_for(timeout=90_000)
    card = page.get_by_role("region", name="A direction")
    box = card.locator("canvas").bounding_box()
    rendered = """async () => {
      const { app } = await import("./static/main.js");
      const { sound } = app.page;
      await sound.prepare();
      const [left, right] = [0, 1].map((ear) =>
        sound.response(sound.at).getChannelData(ear).reduce((sum, x) => sum + x * x, 0));
      return [sound.playing, 10 * Math.log10(right / left)];
    }"""
    decibels = {}
    for side, x in (("left", 0.36), ("right", 0.64)):
        page.mouse.click(box["x"] + x * box["width"], box["y"] + 0.55 * box["height"])
        assert side in card.locator(".place").inner_text()
        card.get_by_role("button", name="Stop").wait_for(timeout=20_000)
        playing, decibels[side] = page.evaluate(rendered)
        assert playing
    assert decibels["right"] > 1
    assert decibels["left"] < -1
    steps = page.get_by_role("region", name="VESSL")
    steps.get_by_role("button", name="Hugh").click()
    assert card.get_by_role("button", name="Hear it").is_visible()  # one sound at a time
    page.get_by_label("Step", exact=True).fill("9")
    played = """async () => {
      const { app } = await import("./static/main.js");
      return app.page.stepSound.file;
    }"""
    assert page.evaluate(played) == "step10_2.wav"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(browser: Any, address: str, scheme: str) -> None:
    """The audit of axe-core finds nothing on any page: contrasts, names, roles and structure."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    # The studio's own policy forbids scripts of others, such as the audit.
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-ready]")

    def audit() -> list[str]:
        found = axe.Axe().run(page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]

    assert audit() == []
    page.get_by_role("button", name="Heads").click()
    page.locator("dialog dl").wait_for(timeout=60_000)
    assert audit() == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Try two voices").click()
    wait_for_result(page)
    for menu in page.locator("details.save summary").all():
        menu.click()
    page.get_by_role("button", name="IPD").click()
    assert audit() == []
    for name, ready in (("Make a scene", "canvas"), ("Live", "h1"), ("How it works", ".curve")):
        page.get_by_role("link", name=name).click()
        page.locator(f"main {ready}").first.wait_for(timeout=60_000)
        assert audit() == [], name
    for menu in page.locator("details.save summary").all():
        menu.click()
    assert audit() == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_live_page_is_accessible(two_ears: Any, address: str, scheme: str) -> None:
    """The audit finds nothing while the page listens; it fits on a phone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = two_ears.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.goto(f"{address}#live")
    page.get_by_role("button", name="Listen").click()
    page.get_by_role("region", name="History").wait_for(timeout=60_000)
    found = axe.Axe().run(page).response["violations"]
    width = page.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []
    assert width <= 390


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
