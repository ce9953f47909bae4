"""The studio, measured as a user meets it: a real browser, the command, and its processes.

    python benchmarks/studio.py            # all of it: five minutes
    python benchmarks/studio.py start answer frames size memory

Needs Chromium and playwright (the group `dev`). Seconds are of this machine and of what else it
does; beside them stand the CPU seconds of the studio's own processes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

import earatlas as ea
from earatlas.simulation.speech import DEMO_TALKERS

PLACES = [[41.0, 1.0], [-64.0, 24.0], [150.0, -20.0]]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
TURN = """async () => {
  const { app } = await import("./static/main.js");
  const ball = app.sphere;
  const begin = performance.now(), first = ball.frames;
  let spent = 0;
  const paint = ball.paint.bind(ball);
  ball.paint = () => { const t = performance.now(); paint(); spent += performance.now() - t; };
  await new Promise((done) => {
    const step = () => {
      ball.turn(ball.yaw + 1, ball.pitch);
      if (performance.now() - begin < 4000) requestAnimationFrame(step); else done();
    };
    step();
  });
  const frames = ball.frames - first, seconds = (performance.now() - begin) / 1000;
  return [frames / seconds, spent / frames];
}"""


@contextmanager
def studio() -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """The command in a process of its own: its address, and the seconds until that is printed."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "earatlas", "studio", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            yield address, process, time.perf_counter() - begin
        finally:
            process.terminate()


@contextmanager
def page_of(address: str) -> Iterator[tuple[Any, float]]:
    """The page in a browser, and the seconds until it can be used."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto("about:blank")
        begin = time.perf_counter()
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        yield page, time.perf_counter() - begin
        browser.close()


def tree(pid: int) -> list[int]:
    """A process and those that it started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # a thread has children of its own
    below = [int(child) for file in lists for child in file.read_text().split()]
    return [pid, *(p for child in below for p in tree(child))]


def cpu_seconds(pid: int) -> float:
    """Of a process and those that it started."""
    ticks = 0
    for process in tree(pid):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Resident memory of a process and those that it started."""
    pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def recording(folder: Path, seconds: float, rate: int, talkers: int) -> Path:
    """Talkers around the simulated head."""
    voices = [np.resize(t.speak(rate=rate), int(seconds * rate)) for t in DEMO_TALKERS[:talkers]]
    places = PLACES[:talkers]
    scene = ea.render_scene(
        ea.simulated_head(places), voices, places, rate=rate, settings=ea.SceneSettings(snr_db=40.0)
    )
    return scene.mixture.write(folder / f"{talkers}.wav")


def settled(pid: int) -> None:
    """Wait until the workers are warm: nobody computes any more."""
    before = -1.0
    while cpu_seconds(pid) - before > 0.05:
        before = cpu_seconds(pid)
        time.sleep(1.0)


def drop(page: Any, file: Path) -> None:
    """Choose a file."""
    page.locator("input[type=file][accept*=audio]").set_input_files(str(file))


def start() -> None:
    """From the command to a page that can be used."""
    for _ in range(3):
        with studio() as (address, _, printed):
            begin = time.perf_counter()
            with urllib.request.urlopen(address) as answer:
                answer.read()
            served = time.perf_counter() - begin
            with page_of(address) as (_, ready):
                print(
                    f"address after {printed:.2f} s, page {served:.2f} s later; ready {ready:.2f} s"
                )


def answer() -> None:
    """From the drop of 10 s to the sources on the page, and to the report."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        for rate in (16_000, 48_000):
            file = recording(Path(folder), 10.0, rate, 2)
            with page_of(address) as (page, _):
                settled(process.pid)
                used, begin = cpu_seconds(process.pid), time.perf_counter()
                drop(page, file)
                page.wait_for_selector(".source", timeout=120_000)
                seconds = time.perf_counter() - begin
                spent = cpu_seconds(process.pid) - used
                print(f"10 s at {rate} Hz: first answer {seconds:.2f} s, CPU {spent:.2f} s")


def frames() -> None:
    """Turning the sphere with three sources."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        file = recording(Path(folder), 4.0, 16_000, 3)
        with page_of(address) as (page, _):
            drop(page, file)
            page.wait_for_selector(".source", timeout=120_000)
            settled(process.pid)
            count = page.locator(".source").count()
            rate, each = page.evaluate(TURN)
            print(f"{count} sources: {rate:.0f} frames a second, {each:.1f} ms to draw one")


def size() -> None:
    """What the extra adds to an installation of the package without it."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    without = closure(project["dependencies"])
    mine = closure(project["optional-dependencies"]["studio"])
    total = 0
    for name in sorted(mine - without):
        files = distribution(name).files or []
        own = sum(p.stat().st_size for f in files if (p := Path(str(f.locate()))).is_file())
        total += own
        print(f"  {name}: {own / 1e6:.1f} MB")
    print(f"installed size of the extra: {total / 1e6:.1f} MB")


def closure(requirements: list[str]) -> set[str]:
    """Packages that are needed, with those that they need."""
    found: set[str] = set()
    todo = list(requirements)
    while todo:
        name = re.split(r"[ ;<>=!\[~(]", todo.pop())[0].lower().replace("_", "-")
        if name in found:
            continue
        try:
            todo += [r for r in distribution(name).requires or [] if "extra" not in r]
            found.add(name)
        except PackageNotFoundError:
            continue
    return found


def memory() -> None:
    """Resident memory of all processes after 5 and after 50 recordings."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        data = recording(Path(folder), 3.0, 16_000, 2).read_bytes()
        with page_of(address) as (page, _):
            for number in range(1, 51):
                page.evaluate(ONE, data.hex())
                if number in (5, 10, 20, 30, 40, 50):
                    print(f"after {number} recordings: {memory_mb(process.pid):.0f} MB")


ONE = """async (hex) => {
  const { upload, followed } = await import("./static/api.js");
  const bytes = Uint8Array.from(hex.match(/../g), (two) => parseInt(two, 16));
  const { job } = await upload("recordings", bytes, { name: "x.wav", head: "simulated" });
  const done = await followed(job, () => {});
  if (done.state !== "done") throw new Error(done.error);
}"""


if __name__ == "__main__":
    parts = {"start": start, "answer": answer, "frames": frames, "size": size, "memory": memory}
    parser = argparse.ArgumentParser(description="The studio, measured as a user meets it.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}; all of them")
    wished = parser.parse_args().parts or list(parts)
    if unknown := set(wished) - set(parts):
        parser.error(f"PART must be one of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    for part in wished:
        print(f"--- {part}")
        parts[part]()
