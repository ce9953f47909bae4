"""Tests of recordings in the browser: files, jobs, history, sessions, heads and scenes."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import earatlas as ea
from browser.studio_tab import (
    PLACES,
    SESSION,
    download,
    drop_files,
    playback,
    wait_for_result,
    wav_bytes,
)
from earatlas.packaged_atlases import EXAMPLE_ATLAS

pytestmark = pytest.mark.browser


def test_settings_and_history(page: Any, mixture_file: Path) -> None:
    """Settings apply to one recording only; the browser goes back to earlier recordings."""
    drop_files(page, ("party.wav", mixture_file.read_bytes()))
    wait_for_result(page)
    page.get_by_label("Sources").select_option("3")
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("3 sources as requested").wait_for(timeout=60_000)
    wait_for_result(page)
    samples, rate = soundfile.read(mixture_file)
    loud = mixture_file.with_name("loud.wav")
    soundfile.write(loud, 40 * samples, rate)
    drop_files(page, ("loud.wav", loud.read_bytes()))
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


def test_worker_killed_after_the_preview(result: Any) -> None:
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
    result.evaluate(fails)
    result.get_by_role("alert").get_by_text("ended by the system").wait_for(timeout=10_000)


def test_address_of_the_page_that_is_left(result: Any) -> None:
    """A result that arrives when the user goes to another page does not take its address away."""
    leaves = """async () => {
      const { app } = await import("./static/main.js");
      history.pushState(null, "", "#recording/recording7");  // the page is changed a moment later
      app.page.setAddress("recording1");
      return location.hash;
    }"""
    assert result.evaluate(leaves) == "#recording/recording7"


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a text", "cannot be read as sound"), (b"", "must not be empty")],
)
def test_error_message(page: Any, data: bytes, message: str) -> None:
    """A file that cannot be read gives an error message, and the page stays usable."""
    drop_files(page, ("<img src=x onerror=alert(1)>.wav", data))
    alert = page.get_by_role("alert")
    alert.wait_for(timeout=30_000)
    assert message in alert.inner_text()
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("button", name="Choose a file").wait_for()


def test_cancel(page: Any, tmp_path: Path) -> None:
    """Cancelling a running job returns to the empty page, where the recording is listed."""
    head = ea.simulated_head(ea.Sphere().grid(20.0))
    sounds = [ea.synthetic_speech(60.0, seed=seed) for seed in (1, 2)]
    places = [head.directions[20], head.directions[70]]
    mixture = ea.render_scene(head, sounds, places).mixture
    drop_files(page, ("long.wav", wav_bytes(mixture, tmp_path)))
    # An upload that is cancelled leaves no recording.
    stage = page.locator(".busy .note", has_text=re.compile(r"\w"))
    stage.filter(has_not_text="uploading").wait_for(timeout=60_000)
    page.get_by_role("button", name="Cancel").click(timeout=30_000)
    page.get_by_role("button", name="Choose a file").wait_for(timeout=10_000)
    assert page.locator(".source").count() == 0
    page.locator(".earlier li", has_text="long.wav").get_by_text("cancelled").wait_for()


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


def test_tabs_have_separate_sessions(
    page: Any, mixture_file: Path, browser: Any, address: str
) -> None:
    """A tab does not see the recordings of another; a reloaded tab keeps its own."""
    drop_files(page, ("party.wav", mixture_file.read_bytes()))
    wait_for_result(page)
    own_key = page.evaluate(SESSION)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate(SESSION) == own_key
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
    assert other.evaluate(SESSION) != own_key
    other.close()


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


def test_several_dropped_files_are_listed(page: Any, mixture_file: Path) -> None:
    """All dropped recordings are separated; they are listed with their results."""
    data = mixture_file.read_bytes()
    drop_files(page, ("one.wav", data), ("two.wav", data))
    for name in ("one.wav", "two.wav"):
        row = page.locator(".earlier li", has_text=name)
        row.get_by_text("2 sources found").wait_for(timeout=60_000)


def test_all_results_are_saved_as_one_file(page: Any, mixture_file: Path, tmp_path: Path) -> None:
    """Several dropped recordings are separated, and all of them are in one ZIP file."""
    short = ea.read_audio(mixture_file)
    data = wav_bytes(ea.Audio(short.samples[:, :4000], short.rate), tmp_path)
    drop_files(page, ("take 1.wav", data), ("take 2.wav", data))
    button = page.get_by_role("button", name="Save all 2 as ZIP")
    button.wait_for(timeout=120_000)
    with zipfile.ZipFile(download(page, button, tmp_path / "all.zip")) as archive:
        names = archive.namelist()
    for n in (1, 2):
        assert f"take {n}/take {n}.wav" in names
        assert f"take {n}/pictures/scene.svg" in names
        assert f"take {n}/take {n}_report.html" in names


def test_full_queue_is_waited_for(page: Any) -> None:
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


def test_cancelled_repetition_keeps_the_result(page: Any, mixture_file: Path) -> None:
    """The result of before is shown again, and can be played."""
    drop_files(page, ("party.wav", mixture_file.read_bytes()))
    wait_for_result(page)
    page.get_by_role("button", name="Apply").click()  # waits until the report is written
    page.get_by_role("button", name="Cancel").click()
    wait_for_result(page)
    assert page.locator(".source").count() == 2
    assert np.abs(playback(page)).max() > 0.01


def test_own_head_is_renamed_and_removed(page: Any) -> None:
    """A head that was added has a name of the user's choice; removing it selects another one."""
    drop_files(page, ("mine.atlas", EXAMPLE_ATLAS.read_bytes()))
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
