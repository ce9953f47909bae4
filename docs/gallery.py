"""Make the pictures and sounds of the documentation: `python docs/gallery.py` (no data needed).

It needs `pip install '.[rooms,speech]'`. Everything is made from the simulated head and the
synthesized talkers and written to docs/gallery/, including the numbers of the page (numbers.md).
The figures of the demo's report (README) and of the studio go to docs/images/; they are
screenshots, which need Chromium and playwright. The figures of docs/results.md are drawn again from
their rows. The fingerprints of the drawing code are stored in docs/pictures.json; `python
docs/pictures.py` lists pictures that were made by earlier drawing code.

    python docs/gallery.py                     # all parts: some minutes
    python docs/gallery.py figures demo        # of figures, demo, studio, results
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import numpy as np
import pictures
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image

import earatlas as ea
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.evaluation.score import score
from earatlas.plotting.cues import plot_cues
from earatlas.plotting.heads import plot_head
from earatlas.plotting.posteriors import plot_posterior
from earatlas.plotting.scenes import plot_scene
from earatlas.plotting.style import save
from earatlas.simulation.speech import demo_talkers

FOLDER = Path(__file__).parent / "gallery"
IMAGES = Path(__file__).parent / "images"
ROOM = ea.Room(size_metres=(6.0, 5.0, 3.0), t60_seconds=0.3)
DIRECTIONS = [[41.0, 3.0], [-58.0, 17.0]]  # between the learned directions, degrees
SECONDS = 4


def talkers(room: ea.Room | None) -> ea.SimulatedScene:
    """Render two simultaneous talkers with a head that has exactly their directions."""
    spoken = demo_talkers(2)
    sounds = [sound[: SECONDS * 16_000] for _, sound in spoken]
    directions = np.concatenate([DIRECTIONS, ea.Sphere().grid(6.0)])
    head = ea.simulated_head(directions)
    return ea.render_scene(head, sounds, DIRECTIONS, room=room, names=[name for name, _ in spoken])


def separated(atlas: ea.Atlas, party: ea.SimulatedScene, name: str) -> str:
    """Write the signals and the figure of a scene; return a table of players and numbers."""
    party.mixture.write(FOLDER / f"{name}_mixture.ogg")
    lines = ["| | " + " | ".join(party.names) + " |", "|---" * (len(party.names) + 1) + "|"]
    for rendering in ("soft", "spatial"):
        scene = atlas.separate(party.mixture, n_sources=len(party.names), rendering=rendering)
        found = score(
            party.images,
            np.stack([source.audio.samples for source in scene.sources]),
            party.mixture.samples,
            directions=party.directions,
            estimated_directions=scene.directions,
        )
        sources = [scene.sources[j] for j in found.by_sound.found]
        files = [f"{name}_{rendering}_{talker.lower()}.ogg" for talker in party.names]
        for source, file in zip(sources, files, strict=True):
            source.audio.write(FOLDER / file)
        decibels = found.quality.sdr_db.mean(axis=1)
        lines.append(row(rendering, [player(file) for file in files]))
        lines.append(row("SDR", [f"{value:.1f} dB" for value in decibels]))
    lines.append(row("true direction", map(place, party.directions)))
    lines.append(row("estimated direction", [place(source.direction) for source in sources]))
    lines.append(row("90 % radius", [f"{source.radius_90:.1f}°" for source in sources]))
    draw(plot_scene(scene, truth=GroundTruth.of(party)), FOLDER / f"{name}.png")
    before = ", ".join(f"{round(value, 1) + 0.0}" for value in found.mixture.sdr_db.mean(axis=1))
    return f"The mixture (SDR {before} dB): {player(f'{name}_mixture.ogg')}\n\n" + "\n".join(lines)


def small(path: Path) -> None:
    """Reduce a figure to a palette of 256 colours, which takes a third of the bytes."""
    with Image.open(path) as image:
        # Median cut alone changes the colour of small areas.
        few = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=4)
    few.save(path, optimize=True)


def draw(figure: Figure, path: Path) -> None:
    """Save a figure for the site."""
    small(save(figure, path))


def in_noise(alone: ea.Audio, snr_db: float) -> ea.Audio:
    """Add noise that is independent between the ears."""
    noise = np.random.default_rng(0).normal(size=alone.samples.shape) * alone.samples.std()
    return ea.Audio(alone.samples + noise * 10 ** (-snr_db / 20), alone.rate)


def demo_of_the_readme() -> None:
    """Take a screenshot of the upper part of the demo's report: images/demo.png."""
    browser = find_browser()
    with TemporaryDirectory() as folder:
        demo = "from earatlas.cli import main; main()"
        subprocess.run([sys.executable, "-c", demo, "demo", "-o", folder], check=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        look = ["--hide-scrollbars", "--window-size=1040,1240"]
        shot = IMAGES / "demo.png"
        page = Path(folder, "report.html").as_uri()
        subprocess.run([browser, *flags, *look, f"--screenshot={shot}", page], check=True)
    small(shot)


def studio_of_the_guide() -> None:
    """Take a screenshot of the studio with two separated voices: images/studio.png."""
    browser = find_browser()
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "earatlas", "studio", "--no-browser"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        sync_playwright() as playwright,
    ):
        assert process.stdout is not None
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = playwright.chromium.launch(executable_path=browser, args=flags)
        page = chromium.new_page(viewport={"width": 1280, "height": 1160})
        page.goto(process.stdout.readline().strip())
        page.get_by_text("Try two voices").click()
        page.get_by_role("link", name="Report").wait_for(timeout=120_000)
        page.screenshot(path=IMAGES / "studio.png")
        chromium.close()
        process.terminate()
    small(IMAGES / "studio.png")


def find_browser() -> str:
    """Return the path of a browser for screenshots."""
    browser = which("chromium") or which("google-chrome")
    if browser is None:
        sys.exit("Screenshots need Chromium on the path. Install it, or choose other parts.")
    return browser


def results_of_the_paper() -> None:
    """Draw the figures of docs/results.md again from the stored rows."""
    command = [sys.executable, "-m", "earatlas", "reproduce", "all", "--draw-only"]
    subprocess.run([*command, "-o", str(FOLDER.parent)], check=True)


def row(label: str, cells: Iterable[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {label} | " + " | ".join(cells) + " |"


def player(file: str) -> str:
    """Return an HTML player."""
    return f'<audio controls preload="none" src="gallery/{file}"></audio>'


def place(direction: ArrayLike) -> str:
    """Format azimuth and elevation."""
    azimuth, elevation = np.asarray(direction)
    return f"{azimuth:.1f}°, {elevation:.1f}°"


def figures() -> None:
    """Make the figures, sounds and numbers of the gallery."""
    FOLDER.mkdir(exist_ok=True)
    head = ea.simulated_head(ea.Sphere().grid(6.0))
    draw(plot_head(head), FOLDER / "head.png")
    atlas = ea.learn(head)
    party = talkers(None)
    draw(plot_cues(ea.audio_cues(party.mixture)), FOLDER / "cues.png")
    alone, truth = party.image(0), party.directions[0]
    sentences = []
    for name, snr_db in (("posterior", np.inf), ("posterior_noise", 15.0)):
        where = atlas.localize(in_noise(alone, snr_db))
        draw(plot_posterior(where.posterior, truth=truth), FOLDER / f"{name}.png")
        quality = "no noise" if np.isinf(snr_db) else f"noise at {snr_db:.0f} dB SNR"
        sentences.append(
            f"{quality}: true {place(truth)}, estimated {place(where.direction)}, "
            f"90 % radius {where.radius_90:.1f}°"
        )
    parts = {
        "single": "; ".join(sentences) + ".",
        "anechoic": separated(atlas, party, "anechoic"),
        "room": separated(atlas, talkers(ROOM), "room"),
    }
    text = "\n".join(
        f"--8<-- [start:{name}]\n{part}\n--8<-- [end:{name}]" for name, part in parts.items()
    )
    (FOLDER / "numbers.md").write_text(text + "\n", encoding="utf-8")


PARTS = {
    "figures": (figures, "gallery/"),
    "demo": (demo_of_the_readme, "images/demo"),
    "studio": (studio_of_the_guide, "images/studio"),
    "results": (results_of_the_paper, "results/"),
}


def main() -> None:
    """Make the chosen parts, and store the fingerprints of their drawing code."""
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"PART must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    for name in chosen:
        make, start = PARTS[name]
        make()
        pictures.record(one for one in pictures.pictures() if one.startswith(start))
    pictures.main([])


if __name__ == "__main__":
    main()
