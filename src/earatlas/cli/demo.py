"""`earatlas demo`: the main job with no data of one's own."""

from __future__ import annotations

import time
from pathlib import Path

import typer
from rich.table import Table

from earatlas.atlas import learn
from earatlas.audio import read_audio
from earatlas.cli.console import JsonOption, OutputOption, out, print_json, progress, say
from earatlas.cues import audio_cues
from earatlas.directions import Sphere, great_circle_error
from earatlas.errors import InputError
from earatlas.heads import simulated_head
from earatlas.scenes import Staging, render_scene

__all__ = ["commands"]

commands = typer.Typer()

# Between the lattice's directions, so that nothing that was learned is asked again.
_PLACES = ((41.0, 1.0), (-64.0, 24.0), (152.0, -13.0))


@commands.command(epilog="Example: earatlas demo -o demo")
def demo(output: OutputOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Learn the built-in simulated head, let three talkers speak around it, and find each one."""
    from earatlas.plots import plot_belief, plot_cues, plot_head, save
    from earatlas.speech import demo_talkers

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output folder must be writable, got '{output}' ({error.strerror}). "
            "Choose another folder."
        ) from error
    start = time.perf_counter()
    head = simulated_head(Sphere().grid(6.5))
    with progress("learning the simulated head") as update:
        atlas = learn(head, progress=update)
    path = atlas.save(output / "simulated.atlas")
    talkers, answers, pictures = demo_talkers(len(_PLACES)), [], []
    with progress("listening to the talkers") as update:
        for number, ((name, sound), place) in enumerate(zip(talkers, _PLACES, strict=True), 1):
            scene = render_scene(
                simulated_head([place]), [sound], [place], staging=Staging(snr_db=20.0)
            )
            recording = scene.mixture.write(output / f"{name.lower()}.wav")
            where = atlas.localize(read_audio(recording))
            answers.append(
                {
                    "talker": name,
                    "file": str(recording),
                    "true": list(place),
                    **where.to_dict(),
                    "error": round(float(great_circle_error(place, where.direction)), 2),
                }
            )
            if number == 1:
                belief = plot_belief(where.belief, title=f"{name}, noise at 20 dB", truth=place)
                pictures.append(save(belief, output / "belief.png"))
                cues = plot_cues(audio_cues(scene.mixture), title=f"{name}: interaural cues")
                pictures.append(save(cues, output / "cues.png"))
            update(number, len(_PLACES))
    pictures.append(save(plot_head(head), output / "head.png"))
    seconds = time.perf_counter() - start
    if as_json:
        print_json(
            {
                "atlas": str(path),
                "sources": answers,
                "pictures": [str(picture) for picture in pictures],
                "seconds": round(seconds, 1),
            }
        )
        return
    accuracy = atlas.accuracy
    assert accuracy is not None  # the lattice has more than enough directions to hold some out
    say(
        f"Learned {len(head)} directions of a simulated head: median error "
        f"{accuracy.median_degrees:.1f}° on {accuracy.held_out} that were held out."
    )
    table = Table("talker", "azimuth, elevation", "found", "error", box=None, padding=(0, 2))
    for answer in answers:
        true, found = (f"{a:6.1f}°, {e:5.1f}°" for a, e in (answer["true"], answer["direction"]))
        table.add_row(str(answer["talker"]), true, found, f"{answer['error']:.1f}°")
    out.print(table, highlight=False)
    for picture in pictures:
        say(f"picture: {picture}")
    say(f"atlas: {path}; try it: earatlas localize {path} YOUR.wav ({seconds:.0f} s in all)")
