"""`earatlas demo`: learn a simulated head, and separate two simulated talkers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earatlas.atlas import Atlas, learn
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import print_json, print_line, progress
from earatlas.cli.ground_truth import compare_with_truth, format_comparison, read_separated
from earatlas.cli.options import ForceOption, JsonOption, OutputOption
from earatlas.cli.outputs import OutputFiles, claim_scene
from earatlas.cli.simulate import talker_signals
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.simulated import simulated_head
from earatlas.separation.pipeline import source_file_name
from earatlas.separation.result import SceneSummary
from earatlas.separation.separator import MAX_SOURCES
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene

__all__ = ["app", "demo"]

app = command_app()

_DIRECTIONS = ((41.0, 1.0), (-64.0, 24.0))  # degrees; between the learned directions


@dataclass(frozen=True)
class _Separated:
    """Result of the separation, compared with the ground truth."""

    scene: SceneSummary
    files: list[Path]  # one per source
    seconds: float  # processing time
    rows: list[dict[str, Any]]  # comparison with the ground truth, one per true source
    report: Path

    @property
    def named(self) -> dict[str, Path]:
        """The files by the name of their source."""
        return {
            source.name: file for source, file in zip(self.scene.sources, self.files, strict=True)
        }


@app.command(cls=Command, epilog=examples("earatlas demo -o demo"))
def demo(
    output: OutputOption = Path("demo"), force: ForceOption = False, as_json: JsonOption = False
) -> None:
    """Separate two simulated talkers; needs no data.

    Learns an atlas from the built-in simulated head, mixes two talkers who speak at the same time,
    separates them, and writes the sounds and a report that opens in a browser.
    """
    begin = time.perf_counter()
    outputs = OutputFiles(force=force)
    claim_scene(outputs, output, _file_names())
    true = _render_talkers()
    true.write(output)  # before the learning, to fail early if the folder is not writable
    with progress("learning the simulated head") as update:
        atlas = learn(simulated_head(Sphere().grid(6.5)), progress=update)  # degrees apart
    path = atlas.save(output / "simulated.atlas")
    separated = _separate(atlas, true, output)
    seconds = time.perf_counter() - begin
    outputs.report()
    if as_json:
        answer = _answer(atlas, path, separated, output / "mixture.wav")
        print_json({**answer, "seconds": round(seconds, 1)})
    else:
        _print(atlas, path, separated, true.names, seconds)


def _file_names() -> list[str]:
    """Return the names of the files that are written beside the scene."""
    sounds = [source_file_name("mixture.wav", m) for m in range(MAX_SOURCES)]
    return ["simulated.atlas", "report.html", *sounds]


def _render_talkers() -> SimulatedScene:
    """Render the talkers around the simulated head."""
    rate = 16_000  # Hz
    names, sounds = talker_signals(len(_DIRECTIONS), rate)
    with progress("rendering"):
        return render_scene(
            simulated_head(_DIRECTIONS),
            sounds,
            _DIRECTIONS,
            rate=rate,
            settings=SceneSettings(snr_db=30.0),
            names=names,
        )


def _separate(atlas: Atlas, true: SimulatedScene, folder: Path) -> _Separated:
    """Separate the mixture, compare it with the ground truth, and write the report."""
    from earatlas.report import write_report

    mixture = folder / "mixture.wav"
    with progress("separating the talkers") as update:
        start = time.perf_counter()
        scene, files = atlas.separate_file(mixture, folder, progress=update)
        seconds = time.perf_counter() - start
    with progress("writing the report"):
        truth = GroundTruth.of(true)
        rows = compare_with_truth(scene, truth, *read_separated(mixture, files))
        separated = _Separated(scene, files, seconds, rows, folder / "report.html")
        write_report(
            separated.report,
            scene,
            title=f"{' and '.join(true.names)} at once",
            truth=truth,
            files={"mixture": mixture, **separated.named},
            elapsed_seconds=seconds,
        )
    return separated


def _answer(atlas: Atlas, path: Path, separated: _Separated, mixture: Path) -> dict[str, Any]:
    """Return the result as JSON values."""
    sources = [
        {**source.to_dict(), "file": str(separated.named[source.name])}
        for source in separated.scene.sources
    ]
    return {
        "atlas": str(path),
        "held_out": None if atlas.accuracy is None else vars(atlas.accuracy),
        "file": str(mixture),
        "n_sources": len(sources),
        "sources": sources,
        "doubts": [str(doubt) for doubt in separated.scene.doubts],
        "truth": separated.rows,
        "report": str(separated.report),
        "separating_seconds": round(separated.seconds, 2),
    }


def _print(
    atlas: Atlas, path: Path, separated: _Separated, names: tuple[str, ...], seconds: float
) -> None:
    """Print the result as text."""
    accuracy = atlas.accuracy
    assert accuracy is not None  # there are enough directions to hold some out
    print_line(
        f"Learned {atlas.about['directions']} directions of a simulated head: median error "
        f"{accuracy.median_degrees:.1f}° on {accuracy.held_out} held-out directions."
    )
    print_line(
        f"{' and '.join(names)} talk at the same time for {separated.scene.seconds:.1f} s. Their "
        "number and directions are not given."
    )
    print_line(
        f"Found {len(separated.files)} sources and separated them in {separated.seconds:.1f} s:"
    )
    for line in format_comparison(separated.rows):
        print_line(line)
    print_line(
        "  (SDR: talker to everything else; SIR: talker to the other talker; before → after)"
    )
    sounds = [
        f"{separated.named[row['source']]} ({row['name']})"
        for row in separated.rows
        if row["source"]
    ]
    print_line(f"listen: {', '.join(sounds)}")
    print_line(f"report: {separated.report} (open it in a browser)")
    print_line(f"atlas:  {path} ({seconds:.0f} s in total)")
    print_line("Next: earatlas learn HEAD.sofa -o my.atlas")
    print_line("      earatlas separate my.atlas PARTY.wav -o out --report")
