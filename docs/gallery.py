"""Makes the pictures and sounds of the gallery: `python docs/gallery.py` (two minutes, no data).

It wants `pip install '.[rooms,speech]'`. Everything comes from the simulated head and the built-in
spoken talkers, and goes into docs/gallery/; the numbers on the page, too (told.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

import earatlas as ea
from earatlas.drawing.beliefs import plot_belief
from earatlas.drawing.cues import plot_cues
from earatlas.drawing.heads import plot_head
from earatlas.drawing.scenes import plot_scene
from earatlas.drawing.style import save
from earatlas.judging.score import score
from earatlas.judging.truth import Truth
from earatlas.scenes.speech import demo_talkers

FOLDER = Path(__file__).parent / "gallery"
ROOM = ea.Room(size_metres=(6.0, 5.0, 3.0), t60_seconds=0.3)
ELSEWHERE = [[41.0, 3.0], [-58.0, 17.0]]  # between the directions that are learned
SECONDS = 4


def talkers(room: ea.Room | None) -> ea.SimulatedScene:
    """Two spoken talkers at once, by a head that has just the directions they stand in."""
    spoken = demo_talkers(2)
    sounds = [sound[: SECONDS * 16_000] for _, sound in spoken]
    directions = np.concatenate([ELSEWHERE, ea.Sphere().grid(6.0)])
    head = ea.simulated_head(directions)
    return ea.render_scene(head, sounds, ELSEWHERE, room=room, names=[name for name, _ in spoken])


def separated(atlas: ea.Atlas, party: ea.SimulatedScene, name: str) -> str:
    """Write sounds and the picture of a scene; returns a table of players and numbers."""
    party.mixture.write(FOLDER / f"{name}_mixture.ogg")
    lines = ["| | " + " | ".join(party.names) + " |", "|---" * (len(party.names) + 1) + "|"]
    for rendering in ("soft", "spatial"):
        scene = atlas.separate(party.mixture, n_sources=len(party.names), rendering=rendering)
        found = score(
            party.images,
            np.stack([source.audio.samples for source in scene.sources]),
            party.mixture.samples,
            directions=party.directions,
            found_directions=scene.directions,
        )
        sources = [scene.sources[j] for j in found.by_sound.found]
        files = [f"{name}_{rendering}_{talker.lower()}.ogg" for talker in party.names]
        for source, file in zip(sources, files, strict=True):
            source.audio.write(FOLDER / file)
        decibels = found.quality.sdr_db.mean(axis=1)
        lines.append(row(rendering, [player(file) for file in files]))
        lines.append(row("SDR", [f"{value:.1f} dB" for value in decibels]))
    lines.append(row("true direction", map(place, party.directions)))
    lines.append(row("found direction", [place(source.direction) for source in sources]))
    lines.append(row("90 % radius", [f"{source.radius_90:.1f}°" for source in sources]))
    save(plot_scene(scene, truth=Truth.of(party)), FOLDER / f"{name}.png")
    before = ", ".join(f"{round(value, 1) + 0.0}" for value in found.mixture.sdr_db.mean(axis=1))
    return f"The mixture (SDR {before} dB): {player(f'{name}_mixture.ogg')}\n\n" + "\n".join(lines)


def row(label: str, cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {label} | " + " | ".join(cells) + " |"


def player(file: str) -> str:
    """A sound to listen to on the page."""
    return f'<audio controls preload="none" src="gallery/{file}"></audio>'


def place(direction: ArrayLike) -> str:
    """Azimuth and elevation."""
    azimuth, elevation = np.asarray(direction)
    return f"{azimuth:.1f}°, {elevation:.1f}°"


def main() -> None:
    """All of it."""
    FOLDER.mkdir(exist_ok=True)
    head = ea.simulated_head(ea.Sphere().grid(6.0))
    save(plot_head(head), FOLDER / "head.png")
    atlas = ea.learn(head)
    party = talkers(None)
    save(plot_cues(ea.audio_cues(party.mixture)), FOLDER / "cues.png")
    alone, truth = party.image(0), party.directions[0]
    noise = np.random.default_rng(0).normal(size=alone.samples.shape) * alone.samples.std()
    told = []
    for name, snr_db in (("belief", np.inf), ("belief_noise", 15.0)):
        noisy = ea.Audio(alone.samples + noise * 10 ** (-snr_db / 20), alone.rate)
        where = atlas.localize(noisy)
        save(plot_belief(where.belief, truth=truth), FOLDER / f"{name}.png")
        quality = "no noise" if np.isinf(snr_db) else f"noise at {snr_db:.0f} dB SNR"
        told.append(
            f"{quality}: true {place(truth)}, found {place(where.direction)}, "
            f"90 % radius {where.radius_degrees():.1f}°"
        )
    parts = {
        "alone": "; ".join(told) + ".",
        "open": separated(atlas, party, "open"),
        "room": separated(atlas, talkers(ROOM), "room"),
    }
    text = "\n".join(
        f"--8<-- [start:{name}]\n{part}\n--8<-- [end:{name}]" for name, part in parts.items()
    )
    (FOLDER / "told.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
