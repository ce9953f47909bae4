"""Speed of the studio for a user: the command, its processes, and the page in a browser.

    python benchmarks/studio.py            # all parts: five minutes
    python benchmarks/studio.py start answer frames size memory archive

Needs Chromium and playwright (the group `dev`). Elapsed seconds depend on the machine and its load;
CPU seconds are those of the processes of the studio.
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

DIRECTIONS = [[41.0, 1.0], [-64.0, 24.0], [150.0, -20.0]]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
ROTATE_SPHERE = """async () => {
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
    """Start the command; yield its address, its process, and the seconds until the address."""
    start_time = time.perf_counter()
    command = [sys.executable, "-m", "earatlas", "studio", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            yield address, process, time.perf_counter() - start_time
        finally:
            process.terminate()


@contextmanager
def open_page(address: str) -> Iterator[tuple[Any, float]]:
    """Open the page in a browser; yield it and the seconds until it is usable."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto("about:blank")
        start_time = time.perf_counter()
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        yield page, time.perf_counter() - start_time
        browser.close()


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # children are listed per thread
    children = [int(child) for file in lists for child in file.read_text().split()]
    return [pid, *(p for child in children for p in process_tree(child))]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants."""
    ticks = 0
    for process in process_tree(pid):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process and its descendants in MB."""
    pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in process_tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def recording(folder: Path, seconds: float, rate: int, talkers: int) -> Path:
    """Write a recording of talkers around the simulated head."""
    signals = [np.resize(t.speak(rate=rate), int(seconds * rate)) for t in DEMO_TALKERS[:talkers]]
    directions = DIRECTIONS[:talkers]
    scene = ea.render_scene(
        ea.simulated_head(directions),
        signals,
        directions,
        rate=rate,
        settings=ea.SceneSettings(snr_db=40.0),
    )
    return scene.mixture.write(folder / f"{talkers}.wav")


def wait_until_idle(pid: int) -> None:
    """Wait until the processes are idle."""
    before = -1.0
    while cpu_seconds(pid) - before > 0.05:
        before = cpu_seconds(pid)
        time.sleep(1.0)


def choose_file(page: Any, file: Path) -> None:
    """Choose a file in the page."""
    page.locator("input[type=file][accept*=audio]").set_input_files(str(file))


def start() -> None:
    """Print the seconds from the command to a usable page."""
    for _ in range(3):
        with studio() as (address, _, printed):
            start_time = time.perf_counter()
            with urllib.request.urlopen(address) as response:
                response.read()
            served = time.perf_counter() - start_time
            with open_page(address) as (_, ready):
                print(f"address after {printed:.2f} s, page {served:.2f} s, usable {ready:.2f} s")


def answer() -> None:
    """Print the seconds from choosing a recording of 10 s to the sources on the page."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        for rate in (16_000, 48_000):
            file = recording(Path(folder), 10.0, rate, 2)
            with open_page(address) as (page, _):
                wait_until_idle(process.pid)
                cpu_before, start_time = cpu_seconds(process.pid), time.perf_counter()
                choose_file(page, file)
                page.wait_for_selector(".source", timeout=120_000)
                seconds = time.perf_counter() - start_time
                spent = cpu_seconds(process.pid) - cpu_before
                print(f"10 s at {rate} Hz: first answer {seconds:.2f} s, CPU {spent:.2f} s")


def frames() -> None:
    """Print the frame rate when rotating the sphere with three sources."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        file = recording(Path(folder), 4.0, 16_000, 3)
        with open_page(address) as (page, _):
            choose_file(page, file)
            page.wait_for_selector(".source", timeout=120_000)
            wait_until_idle(process.pid)
            count = page.locator(".source").count()
            rate, frame_ms = page.evaluate(ROTATE_SPHERE)
            print(f"{count} sources: {rate:.0f} frames per second, {frame_ms:.1f} ms per frame")


def size() -> None:
    """Print the installed size that the extra `studio` adds."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    base_packages = all_requirements(project["dependencies"])
    studio_packages = all_requirements(project["optional-dependencies"]["studio"])
    total = 0
    for name in sorted(studio_packages - base_packages):
        files = distribution(name).files or []
        size_bytes = sum(p.stat().st_size for f in files if (p := Path(str(f.locate()))).is_file())
        total += size_bytes
        print(f"  {name}: {size_bytes / 1e6:.1f} MB")
    print(f"installed size of the extra: {total / 1e6:.1f} MB")


def all_requirements(requirements: list[str]) -> set[str]:
    """Return the required packages, including indirect ones."""
    packages: set[str] = set()
    pending = list(requirements)
    while pending:
        name = re.split(r"[ ;<>=!\[~(]", pending.pop())[0].lower().replace("_", "-")
        if name in packages:
            continue
        try:
            pending += [r for r in distribution(name).requires or [] if "extra" not in r]
            packages.add(name)
        except PackageNotFoundError:
            continue
    return packages


def memory() -> None:
    """Print the resident memory of all processes after 5 to 50 recordings."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        data = recording(Path(folder), 3.0, 16_000, 2).read_bytes()
        with open_page(address) as (page, _):
            for number in range(1, 51):
                page.evaluate(PROCESS_RECORDING, data.hex())
                if number in (5, 10, 20, 30, 40, 50):
                    print(f"after {number} recordings: {memory_mb(process.pid):.0f} MB")


def archive() -> None:
    """Print the time and memory of a ZIP file of 20 recordings, with and without new pictures."""
    with tempfile.TemporaryDirectory() as folder, studio() as (address, process, _):
        data = recording(Path(folder), 3.0, 16_000, 2).read_bytes()
        with open_page(address) as (page, _):
            for _ in range(20):
                page.evaluate(PROCESS_RECORDING, data.hex())
            wait_until_idle(process.pid)
            for _ in range(2):
                before, cpu_before = server_mb(process.pid), cpu_seconds(process.pid)
                size_mb, most_mb = page.evaluate(MAKE_ARCHIVE) / 1e6, server_mb(process.pid)
                spent = cpu_seconds(process.pid) - cpu_before
                print(
                    f"ZIP of 20 recordings: {size_mb:.0f} MB, CPU {spent:.1f} s, memory of the "
                    f"server {before:.0f} MB before, {most_mb:.0f} MB after"
                )


def server_mb(pid: int) -> float:
    """Return the largest resident memory of one process so far in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e3


MAKE_ARCHIVE = """async () => {
  const { address, get, pollJob, post } = await import("./static/api.js");
  const recordings = (await get("recordings")).recordings.map(({ recording }) => recording);
  const { job } = await post("pictures", { recordings });
  await pollJob(job, () => {});
  const response = await fetch(address(`archive?recordings=${recordings.join(",")}`));
  const reader = response.body.getReader();
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return size;
    size += value.length;
  }
}"""
PROCESS_RECORDING = """async (hex) => {
  const { upload, pollJob } = await import("./static/api.js");
  const bytes = Uint8Array.from(hex.match(/../g), (two) => parseInt(two, 16));
  const { job } = await upload("recordings", bytes, { name: "x.wav", head: "simulated" });
  const done = await pollJob(job, () => {});
  if (done.state !== "done") throw new Error(done.error);
}"""


if __name__ == "__main__":
    parts = {
        "start": start, "answer": answer, "frames": frames, "size": size, "memory": memory,
        "archive": archive,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description="Measure the studio as a user sees it.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}; default: all"
    )
    chosen = parser.parse_args().parts or list(parts)
    if unknown := set(chosen) - set(parts):
        parser.error(f"PART must be one of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    for part in chosen:
        print(f"--- {part}")
        parts[part]()
