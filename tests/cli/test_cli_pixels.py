"""Positions in an image through the command line and Python: learn, localize, separate, reports."""

import csv
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import InputError
from earatlas.plotting.pictures import plot_on_picture
from earatlas.simulation.camera import Camera

CAMERA = Camera(640, 480)
TRUE = np.array([[180.0, 150.0], [470.0, 330.0]])
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of impulse responses with pixels, two recordings and a picture."""
    folder = tmp_path_factory.mktemp("pixels")
    columns, rows = np.meshgrid(np.arange(40, 640, 80), np.arange(40, 480, 80))
    positions = np.stack([columns, rows], axis=-1).reshape(-1, 2)
    head = ea.simulated_head(CAMERA.directions(positions))
    with (folder / "pixels.csv").open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["file", "x", "y"])
        for i, (x, y) in enumerate(positions):
            response = ea.Audio(head.responses().samples[i], 48_000)
            table.writerow([response.write(folder / f"{i}.wav").name, x, y])
    talkers = ea.simulated_head(CAMERA.directions(TRUE))
    voices = [ea.synthetic_speech(2.0, seed=seed) for seed in (3, 4)]
    for name, n in (("one", 1), ("two", 2)):
        scene = ea.render_scene(talkers, voices[:n], talkers.directions[:n])
        scene.mixture.write(folder / f"{name}.wav")
    matplotlib.image.imsave(folder / "picture.png", np.zeros((480, 640)))
    matplotlib.image.imsave(folder / "small.png", np.zeros((48, 64)))
    ea.learn(ea.read_recordings(folder / "pixels.csv", image=CAMERA.plane)).save(
        folder / "camera.atlas"
    )
    return folder


def test_learning_reports_pixels(folder: Path, run: Run, tmp_path: Path) -> None:
    """`learn` and `info` describe positions; the atlas file keeps unit and scale."""
    atlas = ea.Atlas.load(folder / "camera.atlas")
    assert atlas.space == CAMERA.plane
    facts = json.loads(run("info", folder / "camera.atlas", "--json").stdout)
    assert facts["image"]["unit"] == "pixels"
    assert facts["spacing_pixels"] == 80
    assert 1 < facts["held_out"]["median_pixels"] < 20
    assert "median_degrees" not in facts["held_out"]
    text = run("info", folder / "camera.atlas").stdout
    assert "48, 80 pixels apart" in text
    assert "°" not in text
    table = run("info", folder / "pixels.csv", "--image-size", "640x480", "--plot",
                tmp_path / "head.png")  # fmt: skip
    assert "x 40 … 600, y 40 … 440, largest gap 57 pixels" in table.stdout


def test_a_sound_is_localized_in_pixels(folder: Path, run: Run, tmp_path: Path) -> None:
    """Position, radius and track are in pixels, and drawn over the picture."""
    atlas, track = folder / "camera.atlas", tmp_path / "track.csv"
    answer = json.loads(run("localize", atlas, folder / "one.wav", "--json").stdout)
    error = np.linalg.norm(answer["direction"] - TRUE[0])
    assert 0.01 < error < 25
    assert answer["unit"] == "pixels"
    assert error < answer["radius_90"] < 80
    assert answer["alternatives"][0]["radius_90"] == pytest.approx(answer["radius_90"], rel=0.05)
    shown = run("localize", atlas, folder / "one.wav", "--track", track, "--plot",
                tmp_path / "one.png", "--picture", folder / "picture.png")  # fmt: skip
    assert " pixels, 90 % within " in shown.stdout
    assert track.read_text().startswith("time,x,y,")
    drawn, picture = (
        matplotlib.image.imread(path)[..., :3]
        for path in (tmp_path / "one.png", folder / "picture.png")
    )
    assert 0.3 < np.mean(np.abs(drawn - picture[0, 0]).max(axis=-1) < 0.02) < 0.9


def test_sources_are_separated_in_pixels(folder: Path, run: Run, tmp_path: Path) -> None:
    """Both sources have positions in pixels; the report shows them on the picture."""
    shown = run("separate", folder / "camera.atlas", folder / "two.wav", "-n", "2", "-o", tmp_path,
                "--report", "--picture", folder / "picture.png")  # fmt: skip
    assert "pixels" in shown.stdout
    page = (tmp_path / "two.html").read_text()
    again = run("separate", folder / "camera.atlas", folder / "two.wav", "-n", "2", "-o", tmp_path,
                "--json")  # fmt: skip
    answer = json.loads(again.stdout)
    found = np.array([source["direction"] for source in answer["sources"]])
    found = found[np.argsort(found[:, 0])]
    assert np.linalg.norm(found - TRUE, axis=1).max() < 40
    assert {source["unit"] for source in answer["sources"]} == {"pixels"}
    assert 'href="data:image/png;base64' in page
    assert "°" not in page


def test_another_picture_makes_the_report_again(folder: Path, run: Run, tmp_path: Path) -> None:
    """With --resume, a report is made again if the contents of its picture changed."""
    picture = tmp_path / "room.png"
    shutil.copy(folder / "picture.png", picture)
    call = ("separate", folder / "camera.atlas", folder / "two.wav", "-n", "1", "-o",
            tmp_path / "out", "--report", "--picture", picture, "--resume")  # fmt: skip
    run(*call)
    first = (tmp_path / "out" / "two.html").read_bytes()
    assert "1 of 1 are done already" in run(*call).stderr
    matplotlib.image.imsave(picture, np.eye(480, 640))
    assert "the contents of 'room.png' changed" in run(*call).stderr
    assert (tmp_path / "out" / "two.html").read_bytes() != first


def test_degrees_and_pixels_are_not_mixed(folder: Path, run: Run, tmp_path: Path) -> None:
    """A space, a table, an image size or a picture of the other kind is refused."""
    pixels = ea.read_recordings(folder / "pixels.csv")
    for head, space in (
        (ea.simulated_head(ea.Sphere().grid(20.0)), CAMERA.plane),
        (ea.simulated_head(ea.Sphere().grid(20.0)), ea.Plane(((0, 640), (0, 480)))),
        (pixels, ea.Sphere()),
        (pixels, ea.Plane()),
    ):
        with pytest.raises(InputError, match="space must have the unit of the head"):
            ea.learn(head, space=space)
    where = ea.Atlas.load(folder / "camera.atlas").localize(ea.read_audio(folder / "one.wav"))
    with pytest.raises(InputError, match="picture must have the 640 x 480 pixels"):
        plot_on_picture([where.posterior], folder / "small.png")
    both = folder / "both.csv"
    both.write_text("file,x,y,azimuth,elevation\n0.wav,1,2,3,4\n")
    for arguments, message in (
        (("learn", both, "-o", tmp_path / "a.atlas"), "got both"),
        (("learn", "simulated", "-o", tmp_path / "a.atlas", "--image-size", "64x48"),
         "image must be used with a .csv table of positions"),
        (("learn", folder / "pixels.csv", "-o", tmp_path / "a.atlas", "--image-size", "300x200"),
         "positions must lie between 0 and 300 pixels"),
        (("learn", folder / "pixels.csv", "-o", tmp_path / "a.atlas", "--image-size", "big"),
         "WIDTHxHEIGHT"),
        (("learn", folder / "pixels.csv", "-o", tmp_path / "a.atlas", "--field-of-view", "60"),
         "with --image-size"),
        (("localize", folder / "camera.atlas", folder / "one.wav", "--picture",
          folder / "picture.png"), "with --plot"),
        (("localize", "people", folder / "one.wav", "--plot", tmp_path / "p.png", "--picture",
          folder / "picture.png"), "atlas of positions in pixels"),
        (("localize", folder / "camera.atlas", folder / "one.wav", "--yaw", "10"),
         "yaw must be used with an atlas of directions"),
        (("listen", folder / "camera.atlas", "--separate", "--from", folder / "one.wav", "--fast"),
         "atlas must be one of directions to separate live sound, got one of positions"),
        (("simulate", folder / "pixels.csv", "-o", tmp_path / "scene", "--sound",
          f"{folder / 'one.wav'}:180:150"), "The head must have directions in degrees to render"),
    ):  # fmt: skip
        result = run(*arguments)
        assert result.returncode == 2, arguments
        assert message in " ".join(result.stderr.split()), arguments
