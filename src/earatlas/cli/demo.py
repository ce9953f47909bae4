"""`earatlas demo`: the main job with no data of one's own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earatlas.atlas import Atlas, learn
from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.console import print_json, progress, say
from earatlas.cli.ground_truth import comparison, comparison_lines, written_sounds
from earatlas.cli.options import ForceOption, JsonOption, OutputOption
from earatlas.cli.outputs import Outputs, claim_scene
from earatlas.cli.simulate import voices
from earatlas.evaluation.ground_truth import Truth
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.simulated import simulated_head
from earatlas.separation.pipeline import sound_file
from earatlas.separation.result import FoundScene
from earatlas.separation.separator import MOST_SOURCES
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene

__all__ = ["app", "demo"]

app = one_command()

# Between the lattice's directions, so that nothing that was learned is asked again.
_PLACES = ((41.0, 1.0), (-64.0, 24.0))
_SPACING_DEGREES = 6.5  # of the lattice
_RATE = 16_000


@dataclass(frozen=True)
class _Taken:
    """The talkers taken apart."""

    scene: FoundScene
    files: list[Path]  # a source's each
    seconds: float  # that it took
    rows: list[dict[str, Any]]  # beside the truth
    report: Path

    @property
    def named(self) -> dict[str, Path]:
        return {
            source.name: file for source, file in zip(self.scene.sources, self.files, strict=True)
        }


@app.command(cls=Command, epilog=examples("earatlas demo -o demo"))
def demo(
    output: OutputOption = Path("demo"), force: ForceOption = False, as_json: JsonOption = False
) -> None:
    """Learn the built-in simulated head, let two talkers speak at once, and take them apart."""
    begin = time.perf_counter()
    outputs = Outputs(force=force)
    claim_scene(outputs, output, _file_names())
    true = _spoken()
    true.write(output)  # before the learning: a folder that cannot be written to says so here
    with progress("learning the simulated head") as update:
        atlas = learn(simulated_head(Sphere().grid(_SPACING_DEGREES)), progress=update)
    path = atlas.save(output / "simulated.atlas")
    taken = _take_apart(atlas, true, output)
    seconds = time.perf_counter() - begin
    outputs.tell()
    if as_json:
        answer = _answer(atlas, path, taken, output / "mixture.wav")
        print_json({**answer, "seconds": round(seconds, 1)})
    else:
        _print(atlas, path, taken, true.names, seconds)


def _file_names() -> list[str]:
    """What is written beside the scene."""
    sounds = [sound_file("mixture.wav", m) for m in range(MOST_SOURCES)]
    return ["simulated.atlas", "report.html", *sounds]


def _spoken() -> SimulatedScene:
    names, sounds = voices(len(_PLACES), _RATE)
    with progress("rendering"):
        return render_scene(
            simulated_head(_PLACES), sounds, _PLACES, rate=_RATE, settings=SceneSettings(snr_db=30.0),
            names=names,
        )  # fmt: skip


def _take_apart(atlas: Atlas, true: SimulatedScene, folder: Path) -> _Taken:
    from earatlas.report import write_report

    mixture = folder / "mixture.wav"
    with progress("separating the talkers") as update:
        start = time.perf_counter()
        scene, files = atlas.separate_file(mixture, folder, progress=update)
        seconds = time.perf_counter() - start
    with progress("writing the report"):
        truth = Truth.of(true)
        rows = comparison(scene, truth, *written_sounds(mixture, files))
        taken = _Taken(scene, files, seconds, rows, folder / "report.html")
        write_report(
            taken.report,
            scene,
            title=f"{' and '.join(true.names)} at once",
            truth=truth,
            files={"mixture": mixture, **taken.named},
            elapsed_seconds=seconds,
        )
    return taken


def _answer(atlas: Atlas, path: Path, taken: _Taken, mixture: Path) -> dict[str, Any]:
    sources = [
        {**source.to_dict(), "file": str(taken.named[source.name])}
        for source in taken.scene.sources
    ]
    return {
        "atlas": str(path),
        "held_out": None if atlas.accuracy is None else vars(atlas.accuracy),
        "file": str(mixture),
        "n_sources": len(sources),
        "sources": sources,
        "doubts": [str(doubt) for doubt in taken.scene.doubts],
        "truth": taken.rows,
        "report": str(taken.report),
        "separating_seconds": round(taken.seconds, 2),
    }


def _print(atlas: Atlas, path: Path, taken: _Taken, names: tuple[str, ...], seconds: float) -> None:
    accuracy = atlas.accuracy
    assert accuracy is not None  # the lattice has more than enough directions to hold some out
    say(
        f"Learned {atlas.about['directions']} directions of a simulated head: median error "
        f"{accuracy.median_degrees:.1f}° on {accuracy.held_out} held out."
    )
    say(
        f"{' and '.join(names)} talk at once for {taken.scene.seconds:.1f} s; nobody says where, "
        "or how many they are."
    )
    say(f"Found {len(taken.files)} sources and separated them in {taken.seconds:.1f} s:")
    for line in comparison_lines(taken.rows):
        say(line)
    say("  (SDR: a voice over all else; SIR: over the other voice; before → after)")
    heard = [f"{taken.named[row['source']]} ({row['name']})" for row in taken.rows if row["source"]]
    say(f"listen: {', '.join(heard)}")
    say(f"report: {taken.report} (open it in a browser: look and listen)")
    say(f"atlas:  {path} ({seconds:.0f} s in all)")
    say("Your own: earatlas learn HEAD.sofa -o my.atlas")
    say("          earatlas separate my.atlas PARTY.wav -o out --report")
