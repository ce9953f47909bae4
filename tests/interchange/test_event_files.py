"""RTTM and DCASE files of scenes and streams, read as other programs read them."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from live_reports import conversation
from made_scenes import make_scene

import earatlas as ea
from earatlas.errors import InputError
from earatlas.interchange.dcase import DcaseSink
from earatlas.interchange.rttm import RttmSink, rttm_line

Run = Callable[..., subprocess.CompletedProcess[str]]


def read_dcase(path: Path) -> dict[int, list[tuple[int, int, float, float]]]:
    """Read rows of five columns by frame, as the baseline of the DCASE task does."""
    found = defaultdict(list)
    for line in path.read_text().splitlines():
        words = line.strip().split(",")
        assert len(words) == 5
        frame, class_index, source = map(int, words[:3])
        found[frame].append((class_index, source, float(words[3]), float(words[4])))
    return found


def read_rttm(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Return starts and ends by the name of the source, as pyannote.database reads them."""
    util = pytest.importorskip("pyannote.database.util", reason="pyannote.database is needed")
    ((recording, annotation),) = util.load_rttm(path).items()
    assert recording == "_".join(path.stem.split())
    found = defaultdict(list)
    for segment, _, label in annotation.itertracks(yield_label=True):
        found[label].append((round(segment.start, 3), round(segment.end, 3)))
    return found


def test_rttm_of_a_scene(tmp_path: Path) -> None:
    """Segments are the rows in which a source is active; all rows but the second are."""
    scene, _ = make_scene()
    found = read_rttm(ea.write_rttm(scene, tmp_path / "a party.rttm"))
    assert found == {name: [(0.0, 0.05), (0.1, 0.25)] for name in ("source1", "source2")}


def test_dcase_of_a_scene(tmp_path: Path) -> None:
    """Active sources have a row in each frame of 100 ms, with azimuths positive to the left."""
    scene, _ = make_scene(places=((30.4, 10), (-150, -40)), seconds=1.0)
    found = read_dcase(ea.write_dcase(scene, tmp_path / "party.csv", class_index=7))
    silent = {2, 3}  # the second of five rows
    assert set(found) == set(range(10)) - silent
    assert found[0] == [(7, 0, 30.0, 10.0), (7, 1, -150.0, -40.0)]


def test_dcase_needs_directions(tmp_path: Path) -> None:
    """Scenes of other coordinates have no DCASE file; a circle has directions."""
    pixels, _ = make_scene(ea.Plane(((0, 640), (0, 480))), ((100, 50), (600, 400)))
    with pytest.raises(InputError, match="must have directions"):
        ea.write_dcase(pixels, tmp_path / "x.csv")
    ring, _ = make_scene(ea.Circle(), ((30, 5), (-150, 5)))
    assert read_dcase(ea.write_dcase(ring, tmp_path / "y.csv"))[1][0] == (0, 0, 30.0, 5.0)


def test_rttm_of_a_stream(tmp_path: Path) -> None:
    """A segment begins with its source, not with its confirmation, and ends with its last sound."""
    sink = RttmSink(tmp_path / "live.rttm")
    for report in conversation():
        sink.send(report)
    sink.close()
    found = read_rttm(tmp_path / "live.rttm")
    assert found["track1"] == [(0.1, 0.8), (1.65, 2.0)]
    assert found["track4"] == [(0.5, 1.45)]


def test_lines_are_on_the_disk_when_a_segment_ends(tmp_path: Path) -> None:
    """A stream that is killed keeps the segments that have ended."""
    sink = RttmSink(tmp_path / "live.rttm")
    for report in conversation()[:30]:
        sink.send(report)
    assert len((tmp_path / "live.rttm").read_text().splitlines()) == 2
    sink.close()


def test_dcase_of_a_stream(tmp_path: Path) -> None:
    """Frames are complete and have only confirmed, active sources with a known direction."""
    sink = DcaseSink(tmp_path / "live.csv")
    for report in conversation():
        sink.send(report)
    sink.close()
    found = read_dcase(tmp_path / "live.csv")
    frames = {n: [k for k, rows in found.items() if n in {row[1] for row in rows}] for n in (1, 4)}
    assert frames[1] == [*range(2, 12), *range(16, 20)]  # active until 0.4 s after its last sound
    assert frames[4] == [9, 10, 11, 12, 13]
    assert found[9] == [(0, 1, 30.0, -5.0), (0, 4, -120.0, 21.0)]


def test_names_have_no_white_space() -> None:
    """White space separates the fields of RTTM, so names have none."""
    assert len(rttm_line("a b\tc", 0.0, 1.0, " x y ").split()) == 10
    assert rttm_line("", 0, 1, "").split()[1] == "_"


def test_unwritable_file(tmp_path: Path) -> None:
    """A folder that does not exist is an error with a remedy."""
    for sink in (RttmSink, DcaseSink):
        with pytest.raises(InputError, match="Check that its folder exists"):
            sink(tmp_path / "none" / "x")


def test_separate_writes_both(tmp_path: Path, run: Run) -> None:
    """`separate --rttm --dcase` writes both beside the sounds, and replaces only its own files."""
    ea.example_recording().write(tmp_path / "party.wav")
    command = ("separate", str(tmp_path / "party.wav"), "-n", "2", "-o", str(tmp_path / "out"))
    answer = json.loads(run(*command, "--rttm", "--dcase", "--json").stdout)
    assert answer["rttm"].endswith("party.rttm")
    assert answer["dcase"].endswith("party.dcase.csv")
    assert set(read_rttm(Path(answer["rttm"]))) == {"source1", "source2"}
    rows = read_dcase(Path(answer["dcase"]))
    assert max(rows) <= 25
    for file in (tmp_path / "out").glob("*.wav"):
        file.unlink()
    assert run(*command, "--rttm").returncode == 2


def test_other_files_of_the_same_name_do_not_matter(tmp_path: Path, run: Run) -> None:
    """A table and a page that were not asked for are neither refused nor changed."""
    ea.example_recording().write(tmp_path / "party.wav")
    for name in ("party.csv", "party.html", "party.rttm"):
        (tmp_path / name).write_text("mine")
    done = run("separate", str(tmp_path / "party.wav"), "-o", str(tmp_path), "--dcase")
    assert done.returncode == 0, done.stderr
    assert {(tmp_path / f"party.{end}").read_text() for end in ("csv", "html", "rttm")} == {"mine"}


def test_listen_writes_both(tmp_path: Path, run: Run) -> None:
    """`listen --separate` writes both while it listens, and does not replace files."""
    ea.example_recording().write(tmp_path / "party.wav")
    files = "--rttm", str(tmp_path / "x.rttm"), "--dcase", str(tmp_path / "x.csv")
    command = "listen", str(tmp_path / "party.wav"), "--fast", "--json"
    assert run(*command, "--separate", *files).returncode == 0
    assert set(read_rttm(tmp_path / "x.rttm")) >= {"track1"}
    assert np.unique([row[1] for rows in read_dcase(tmp_path / "x.csv").values() for row in rows])[
        0
    ]
    assert run(*command, "--separate", *files).returncode == 2
    assert run(*command, *files).returncode == 2  # needs --separate
    before = (tmp_path / "party.wav").read_bytes()
    own = "--separate", "--force", "--rttm", str(tmp_path / "party.wav")
    assert run(*command, *own).returncode == 2
    assert (tmp_path / "party.wav").read_bytes() == before
