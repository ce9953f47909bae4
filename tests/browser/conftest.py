"""Fixtures of the browser tests: one studio, browsers, and recordings that are separated once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile

import earatlas as ea
from browser.studio_tab import (
    FLAGS,
    MICROPHONES,
    PLACES,
    SESSION,
    drop_files,
    open_page,
    wait_for_result,
)

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Return a function that starts a browser with these flags."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path")
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


@pytest.fixture(scope="session")
def scene() -> ea.SimulatedScene:
    """Return two synthetic talkers with known images."""
    sounds = [ea.synthetic_speech(1.5, seed=1), ea.synthetic_speech(1.5, seed=2)]
    return ea.render_scene(ea.simulated_head(PLACES), sounds, PLACES)


@pytest.fixture(scope="session")
def mixture_file(scene: ea.SimulatedScene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the mixture to a file."""
    return scene.mixture.write(tmp_path_factory.mktemp("party") / "party.wav")


@pytest.fixture(scope="session")
def separated(browser: Any, address: str, mixture_file: Path) -> tuple[str, str]:
    """Separate the mixture once; return the address of its result, and the session that has it."""
    for tab in open_page(browser, address):
        drop_files(tab, ("party.wav", mixture_file.read_bytes()))
        wait_for_result(tab, report=True)
        found = tab.url, tab.evaluate(SESSION)
    return found


@pytest.fixture
def result(browser: Any, separated: tuple[str, str]) -> Iterator[Any]:
    """Open the separated mixture in a new tab. Tests leave the recording itself as it is."""
    for tab in open_page(browser, *separated):
        wait_for_result(tab, report=True)
        yield tab


@pytest.fixture(scope="module")  # the studio closes the sessions that were not used for longest
def example(browser: Any, address: str) -> tuple[str, str]:
    """Separate the two voices of the example; return address and session of the result."""
    for tab in open_page(browser, address):
        tab.get_by_role("button", name="Try two voices").click()
        wait_for_result(tab, report=True)
        found = tab.url, tab.evaluate(SESSION)
    return found


@pytest.fixture(scope="session")
def two_ears(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start a browser whose microphones record a talker on the right."""
    place = [-70.0, 5.0]
    speech = ea.synthetic_speech(6.0, 48_000, seed=1)
    sound = ea.render_scene(ea.simulated_head([place]), [speech], [place], rate=48_000).mixture
    path = tmp_path_factory.mktemp("ears") / "ears.wav"
    soundfile.write(path, sound.samples.T, sound.rate, "PCM_16")
    return chromium(*MICROPHONES, f"--use-file-for-fake-audio-capture={path}")
