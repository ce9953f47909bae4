"""`earatlas demo`: the main job with no data of one's own."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from earatlas.atlas import learn
from earatlas.cli.console import JsonOption, OutputOption, print_json, progress, say
from earatlas.cli.truth import comparison, comparison_lines, written_sounds
from earatlas.heads.simulated import simulated_head
from earatlas.judging.truth import Truth
from earatlas.scenes.scene import Staging, render_scene
from earatlas.space.spaces import Sphere

__all__ = ["commands"]

commands = typer.Typer()

# Between the lattice's directions, so that nothing that was learned is asked again.
_PLACES = ((41.0, 1.0), (-64.0, 24.0))


@commands.command(epilog="Example: earatlas demo -o demo")
def demo(output: OutputOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Learn the built-in simulated head, let two talkers speak at once, and take them apart."""
    from earatlas.report import write_report
    from earatlas.scenes.speech import demo_talkers

    begin = time.perf_counter()
    with progress("speaking"):
        names, sounds = zip(*demo_talkers(len(_PLACES)), strict=True)
        true = render_scene(
            simulated_head(_PLACES), sounds, _PLACES, staging=Staging(snr_db=30.0), names=names
        )
        true.write(output)  # before the learning: a folder that cannot be written to says so here
    mixture = output / "mixture.wav"
    head = simulated_head(Sphere().grid(6.5))
    with progress("learning the simulated head") as update:
        atlas = learn(head, progress=update)
    path = atlas.save(output / "simulated.atlas")
    with progress("separating the talkers") as update:
        start = time.perf_counter()
        scene, files = atlas.separate_file(mixture, output, progress=update)
        separating = time.perf_counter() - start
    with progress("writing the report"):
        truth = Truth.of(true)
        rows = comparison(scene, truth, *written_sounds(mixture, files))
        named = {source.name: file for source, file in zip(scene.sources, files, strict=True)}
        report = write_report(
            output / "report.html",
            scene,
            title=f"{' and '.join(names)} at once",
            truth=truth,
            files={"mixture": mixture, **named},
            elapsed_seconds=separating,
        )
    seconds = time.perf_counter() - begin
    sources = [
        {**source.to_dict(), "file": str(file)}
        for source, file in zip(scene.sources, files, strict=True)
    ]
    accuracy = atlas.accuracy
    assert accuracy is not None  # the lattice has more than enough directions to hold some out
    if as_json:
        print_json(
            {
                "atlas": str(path),
                "held_out": vars(accuracy),
                "file": str(mixture),
                "n_sources": len(sources),
                "sources": sources,
                "truth": rows,
                "report": str(report),
                "separating_seconds": round(separating, 2),
                "seconds": round(seconds, 1),
            }
        )
        return
    say(
        f"Learned {len(head)} directions of a simulated head: median error "
        f"{accuracy.median_degrees:.1f}° on {accuracy.held_out} held out."
    )
    say(
        f"{' and '.join(names)} talk at once for {scene.seconds:.1f} s; nobody says where, or how "
        "many they are."
    )
    say(f"Found {len(files)} sources and separated them in {separating:.1f} s:")
    for line in comparison_lines(rows):
        say(line)
    say("  (SDR: a voice over all else; SIR: over the other voice; before → after)")
    heard = [f"{named[row['source']]} ({row['name']})" for row in rows if row["source"]]
    say(f"listen: {', '.join(heard)}")
    say(f"report: {report} (open it in a browser: look and listen)")
    say(f"atlas:  {path} ({seconds:.0f} s in all)")
    say("Your own: earatlas learn HEAD.sofa -o my.atlas")
    say("          earatlas separate my.atlas PARTY.wav -o out --report")
