"""The command listen --separate: files, JSON, raw samples, sockets and yaw streams."""

import errno
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from command_line import default_signals
from tests_support import refused

import earatlas as ea
from earatlas.cli.audio_input import PcmFormat, StreamClock, _from_pcm, to_pcm
from earatlas.cli.listen_options import ListenOptions, parse_direction, parse_socket
from earatlas.cli.listen_separate import _Outputs
from earatlas.cli.live_table import live_line, live_table
from earatlas.cli.yaw_feed import YawFeed
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.localization.head_rotation import HeadMotion
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.streaming.sockets import Broadcast, LiveServer, odas_tracks
from earatlas.streaming.track_files import GrowingWav, TrackFiles, _header

Run = Callable[..., subprocess.CompletedProcess[str]]
RATE = 16_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, atlas: ea.Atlas, atlas_head: ea.Head) -> Path:
    """An atlas, and a mixture of two synthetic talkers of 2.5 s."""
    path = tmp_path_factory.mktemp("listen")
    ready = atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)
    ready.save(path / "head.atlas")
    sounds = [ea.synthetic_speech(2.5, seed=seed) for seed in (3, 4)]
    scene = ea.render_scene(atlas_head, sounds, [[50.0, 10.0], [-70.0, 0.0]])
    soundfile.write(path / "party.wav", scene.mixture.samples.T, RATE, subtype="FLOAT")
    return path


def source(
    number: int = 1, *, confirmed: bool = True, samples: np.ndarray | None = None, **changes: Any
) -> LiveSource:
    """Return a live source with default values."""
    fields: dict[str, Any] = {
        "direction": np.array([30.0, -10.0]), "radius_90": 4.2, "since": 0.5, "age": 0.1,
        "level_db": -30.0, "active": True, "speed": 0.0, **changes,
    }  # fmt: skip
    sound = np.zeros((2, 0)) if samples is None else samples
    return LiveSource(number, confirmed=confirmed, samples=sound, **fields)


def test_separate_a_file(run: Run, folder: Path, tmp_path: Path) -> None:
    """There are JSON lines with a summary at the end, and one sound file per track."""
    result = run(
        "listen", folder / "head.atlas", "--separate", "--from", folder / "party.wav", "--fast",
        "--json", "-o", tmp_path / "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    *lines, last = [json.loads(text) for text in result.stdout.splitlines()]
    summary = last["summary"]
    assert {"seconds", "delay_ms", "late_blocks", "dropped_samples", "tracks"} <= set(summary)
    assert summary["seconds"] == pytest.approx(2.5, abs=0.1)
    assert 0 < summary["delay_ms"] <= 120
    assert (summary["late_blocks"], summary["measured_delay_ms"]) == (
        0,
        None,
    )  # --fast: no block is late
    assert summary["work_seconds"] > 0
    assert len(summary["tracks"]) >= 2
    for track in summary["tracks"]:
        sound, rate = soundfile.read(tmp_path / "out" / track["file"])
        assert rate == RATE
        assert len(sound) == pytest.approx(track["seconds"] * RATE, abs=20)
        assert track["start"] + track["seconds"] == pytest.approx(summary["seconds"], abs=0.01)
        assert np.abs(sound).max() > 0.01
    fields = {"id", "direction", "radius_90", "confirmed", "active", "file", "since", "doubts"}
    assert all(fields <= set(entry) for line in lines for entry in line["sources"])
    again = run("listen", folder / "head.atlas", "--separate", "-o", tmp_path / "out", "--stdin")
    assert again.returncode == 2
    assert "tracks of an earlier run" in again.stderr


def test_force_deletes_earlier_tracks(tmp_path: Path) -> None:
    """--force deletes all track files, and nothing else."""
    for name in ("track1.wav", "track12.wav", "track02.wav", "tracks.wav", "track1.txt"):
        (tmp_path / name).touch()

    def options(*, force: bool) -> ListenOptions:
        return ListenOptions.of(
            tmp_path, None, None, None, form=PcmFormat.s16, as_json=False, every=0.5, force=force
        )

    with pytest.raises(ea.InputError, match="--force"):
        options(force=False)
    assert options(force=True).folder == tmp_path
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"track02.wav", "tracks.wav", "track1.txt"}


def test_only_writes_the_nearest_source(folder: Path) -> None:
    """--only writes as many samples as the input has, also before a source is active."""
    command = [
        sys.executable, "-m", "earatlas", "listen", str(folder / "head.atlas"), "--separate",
        "--stdin", "--rate", str(RATE), "--only", "-70,0", "--format", "f32", "--channels", "3",
    ]  # fmt: skip
    samples, _ = soundfile.read(folder / "party.wav", dtype="float32")
    samples = np.concatenate([np.zeros((RATE, 2), dtype=np.float32), samples])  # no source yet
    raw = np.concatenate([samples, samples[:, :1]], axis=1).astype("<f4").tobytes() + b"odd"
    result = subprocess.run([*command, "--json"], input=raw, capture_output=True, check=True)
    piped = np.frombuffer(result.stdout, dtype="<f4").reshape(-1, 2)
    assert len(piped) == len(samples)  # JSON is on standard error
    assert not piped[:RATE].any()
    late = slice(2 * RATE, None)
    left, right = (piped[late] ** 2).mean(axis=0)
    both_left, both_right = (samples[late] ** 2).mean(axis=0)
    assert right / left > 1.1 * both_right / both_left > 0  # the source is on the right
    *reports, last = map(json.loads, result.stderr.splitlines())
    assert "summary" in last
    assert all("sources" in report for report in reports)
    frames = RATE // 2
    short = raw[: frames * 3 * 4] + b"odd"
    as_text = subprocess.run(command, input=short, capture_output=True, check=True)
    assert len(as_text.stdout) == frames * 2 * 4
    assert b"samples dropped" in as_text.stderr
    assert b"3 bytes at the end are not a whole frame of f32 samples" in b" ".join(
        as_text.stderr.split()
    )


def test_sigterm_ends_with_a_summary(folder: Path, tmp_path: Path) -> None:
    """SIGTERM ends like Ctrl-C: with a summary, and complete files."""
    command = [
        sys.executable, "-m", "earatlas", "listen", str(folder / "head.atlas"), "--separate",
        "--stdin", "--rate", str(RATE), "-o", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    samples, _ = soundfile.read(folder / "party.wav")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, preexec_fn=default_signals) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(to_pcm(samples.T, PcmFormat.s16))
        process.stdin.flush()
        while json.loads(process.stdout.readline())["time"] < 2.0:
            pass
        process.send_signal(signal.SIGTERM)
        last = json.loads(process.stdout.read().splitlines()[-1])
        assert process.wait(60) == 0
    tracks = last["summary"]["tracks"]
    ends = [track["start"] + track["seconds"] for track in tracks]
    assert max(ends) == pytest.approx(last["summary"]["seconds"], abs=0.04)  # a block


def test_yaw_that_is_too_short_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    """The error comes before any of the file is processed."""
    yaw = tmp_path / "yaw.csv"
    yaw.write_text("time,yaw\n0,0\n2,10\n")
    result = run(
        "listen", folder / "head.atlas", "--separate", "--from", folder / "party.wav", "--fast",
        "--yaw", yaw, "--json",
    )  # fmt: skip
    assert result.returncode == 2
    assert not result.stdout
    assert "yaw must last as long as the sound (2.5" in result.stderr


def test_invalid_yaw_lines_are_reported(run: Run, folder: Path, tmp_path: Path) -> None:
    """Without a valid line, directions are relative to the head."""
    lines = tmp_path / "lines"
    lines.write_text('garbage\n{"yaw": "x"}\n')
    result = run(
        "listen", folder / "head.atlas", "--separate", "--from", folder / "party.wav", "--fast",
        "--yaw-stream", lines,
    )  # fmt: skip
    assert result.returncode == 0
    assert "2 lines of the yaw stream were not a valid yaw" in " ".join(result.stderr.split())


def test_files_are_valid_after_a_kill(folder: Path, tmp_path: Path) -> None:
    """The files that were written until the kill can be played."""
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "earatlas", "listen", str(folder / "head.atlas"), "--separate",
        "--stdin", "--rate", str(RATE), "-o", str(out),
    ]  # fmt: skip
    samples, _ = soundfile.read(folder / "party.wav")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(to_pcm(samples.T, PcmFormat.s16))
        process.stdin.flush()
        until = time.monotonic() + 60
        while not _seconds(out) and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
    assert _seconds(out) >= 1.0


def _seconds(folder: Path) -> float:
    """Return the duration of the longest file that can be read."""
    return max((soundfile.info(file).duration for file in folder.glob("track*.wav")), default=0.0)


def test_growing_file_is_valid_after_each_second(tmp_path: Path) -> None:
    """The file is valid before it is closed, and finally contains all samples bit by bit."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 2500)).astype(np.float32).astype(np.float64)
    wav = GrowingWav(tmp_path / "a.wav", 1000)
    for i in range(0, 2400, 300):
        wav.append(x[:, i : i + 300])
    before, rate = soundfile.read(tmp_path / "a.wav")
    assert rate == 1000
    np.testing.assert_array_equal(before.T, x[:, :2400])
    wav.append(x[:, 2400:])
    wav.close()
    np.testing.assert_array_equal(soundfile.read(tmp_path / "a.wav")[0].T, x)


def test_file_of_more_than_four_gigabytes(tmp_path: Path) -> None:
    """A file of more than 4 GB is RF64 with the right length."""
    frames = 600_000_000
    with (tmp_path / "long.wav").open("wb") as file:
        file.write(_header(RATE, frames))
        file.truncate(len(_header(RATE, frames)) + 8 * frames)  # a sparse file
    info = soundfile.info(tmp_path / "long.wav")
    assert (info.format, info.frames, info.channels) == ("RF64", frames, 2)


def test_full_disk_while_listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk gives one sentence; the files written until then can be played."""
    files = TrackFiles(tmp_path, 1000)
    sound = np.full((2, 1500), 0.25)
    files.write(LiveReport(1.5, 0, (source(samples=sound),)))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(GrowingWav, "append", full)
    with pytest.raises(ea.InputError, match=r"must have room.*can be played"):
        files.write(LiveReport(3.0, 1500, (source(samples=sound),)))
    files.close()
    assert soundfile.info(tmp_path / "track1.wav").frames == 1500


def test_tracks_that_end_are_closed_and_unconfirmed_ones_have_no_file(tmp_path: Path) -> None:
    """A file starts and ends with the sound of its track."""
    files = TrackFiles(tmp_path, 1000)
    sound = np.concatenate([np.zeros((2, 40)), np.full((2, 60), 0.5)], axis=1)
    other = source(2, confirmed=False, samples=sound)
    files.write(LiveReport(0.1, 0, (source(samples=sound), other)))
    files.write(LiveReport(0.2, 100, (other,), ended=(source(samples=sound),)))
    files.close()
    assert [path.name for path in tmp_path.glob("*.wav")] == ["track1.wav"]
    assert soundfile.info(tmp_path / "track1.wav").frames == 160
    assert files.tracks[1]["start"] == pytest.approx(0.04)


@pytest.mark.parametrize("form", list(PcmFormat))
def test_raw_samples_round_trip(form: PcmFormat) -> None:
    """Samples agree to the resolution of the format, and are clipped to full scale."""
    x = np.array([[0.5, -0.25, 0.001, -1.0], [0.125, 1.5, -1.5, 0.0]])
    back = _from_pcm(to_pcm(x, form), form).reshape(-1, 2).T
    step = {"s16": 2.0**-15, "s24": 2.0**-23, "f32": 1e-7}[form]
    expected = x if form == PcmFormat.f32 else np.clip(x, -1, 1 - step)
    np.testing.assert_allclose(back, expected, atol=step / 2)


def lines_of(link: socket.socket, count: int) -> list[dict[str, Any]]:
    """Read this many lines of JSON."""
    with link.makefile("rb") as file:
        return [json.loads(file.readline()) for _ in range(count)]


def test_slow_clients_do_not_block() -> None:
    """One client stalls, one dies, and one reads everything."""
    port = Broadcast("127.0.0.1", 0)
    stalled, dead, good = (socket.create_connection(("127.0.0.1", port.port)) for _ in range(3))
    port.send(b"{}\n")
    dead.close()
    good.setblocking(False)
    line = json.dumps({"x": "y" * 50_000}).encode() + b"\n"
    received = 0
    for _ in range(200):
        port.send(line)
        while received < 200 * len(line):
            try:
                received += len(good.recv(1 << 20))
            except BlockingIOError:
                break
    assert len(port) == 2
    assert port.dropped > 0
    assert received > 100 * len(line)
    with pytest.raises(ea.InputError, match="free port"):
        Broadcast("127.0.0.1", port.port)
    stalled.close()
    good.close()
    port.close()


def start_server() -> LiveServer:
    """Return a server on two free consecutive ports."""
    for _ in range(50):
        with suppress(ea.InputError):
            return LiveServer("127.0.0.1", 0, RATE)
    raise AssertionError("no two ports in a row are free")


def test_tracks_and_sound_over_sockets() -> None:
    """Vectors are as in ODAS (x front, y left, z up); sound comes in whole messages."""
    server = start_server()
    tracks = socket.create_connection(("127.0.0.1", server.tracks.port), timeout=60)
    sound = socket.create_connection(("127.0.0.1", server.tracks.port + 1), timeout=60)
    x = np.array([[0.5, -0.5, 0.25], [0.0, 0.125, 2.0]])
    report = LiveReport(1.0, 7, (source(3, samples=x, direction=np.array([90.0, 30.0])),))
    server.send_tracks(report)
    server.send_sound(report)
    (message,) = lines_of(tracks, 1)
    own = message["src"][0]
    assert (message["timeStamp"], own["id"], own["activity"], own["radius_90"]) == (1, 3, 1.0, 4.2)
    np.testing.assert_allclose([own["x"], own["y"], own["z"]], [0, 0.866, 0.5], atol=1e-3)
    with sound.makefile("rb") as file:
        head = json.loads(file.readline())
        assert (head["start"], head["samples"], head["ids"]) == (7, 3, [3])
        raw = np.frombuffer(file.read(3 * 4), dtype="<i2").reshape(-1, 2).T
    np.testing.assert_array_equal(raw, [[16384, -16384, 8192], [0, 4096, 32767]])
    server.close()
    tracks.close()
    sound.close()
    assert odas_tracks(LiveReport(0.0, 0, (source(confirmed=False),)), 4)["src"] == []


def test_client_of_the_guide_works(tmp_path: Path) -> None:
    """The client of the guide works as printed, except for the port."""
    page = (Path(__file__).parents[2] / "docs" / "guide" / "live.md").read_text()
    (client,) = re.findall(r"^```py\n(.*?)^```$", page, re.S | re.M)
    server = start_server()
    port = server.tracks.port
    client = client.replace("9000", str(port)).replace("9001", str(port + 1))
    command = [sys.executable, "-c", client]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        report = LiveReport(1.0, 0, (source(5, samples=np.full((2, 512), 0.5)),))
        deadline = time.monotonic() + 60
        while not (len(server.tracks) and len(server.sound)) and time.monotonic() < deadline:
            server.tracks.send(b"")
            server.sound.send(b"")
            time.sleep(0.02)
        for k in range(32):
            if k % 16 == 15:
                server.send_tracks(report)
            server.send_sound(report)
            time.sleep(0.032)
        path = tmp_path / "track5.raw"
        while path.stat().st_size < 28 * 2048 and time.monotonic() < deadline:
            time.sleep(0.02)
        received_bytes = path.stat().st_size  # except for its buffer
        server.close()
        assert process.stdout is not None
        output = process.stdout.read()
    assert received_bytes >= 28 * 2048
    assert output.splitlines() == ["5 (0.85, 0.49, -0.17) within 4.2°"] * 2
    assert path.read_bytes() == b"\x00\x40" * (2 * 512 * 32)


def test_yaw_stream_keeps_the_last_valid_line(tmp_path: Path) -> None:
    """Partial lines wait; invalid lines and jumps are skipped; the end changes nothing."""
    read, write = os.pipe()
    feed = YawFeed(f"fd:{read}")
    assert feed.at(0.1) == 0.0
    os.write(write, b'{"yaw": 20.5, "pitch": 3}\n{"yaw": 2')
    assert feed.at(0.2) == 20.5
    os.write(write, b'5}\nnonsense\n{"yaw": NaN}\n{"no": 1}\n\n{"yaw": 175}\n')
    assert feed.at(0.3) == 25.0
    assert feed.skipped == 4
    os.write(write, b"-179.5\n")
    os.close(write)
    assert feed.at(5.0) == -179.5
    assert feed.at(6.0) == -179.5
    feed.close()
    os.close(read)
    (tmp_path / "yaw.jsonl").write_text('{"yaw": 1}\n')
    other = YawFeed(str(tmp_path / "yaw.jsonl"))
    assert other.at(0.0) == 1.0
    other.close()
    for wrong in ("fd:999", "fd:x", str(tmp_path / "none")):
        with pytest.raises(ea.InputError, match="yaw stream must"):
            YawFeed(wrong)


def test_late_yaw_does_not_jump() -> None:
    """A late first line, and a turn after a pause, do not make the yaw jump."""
    read, write = os.pipe()
    feed, motion = YawFeed(f"fd:{read}"), HeadMotion(None, None)
    yaw, block = [], 0.032
    for k in range(1, 101):
        if k == 4:
            os.write(write, b'{"yaw": 150}\n{"yaw": 1%s}\n' % (400 * b"0"))
        if k == 40:
            os.write(write, b'{"yaw": -120}\n')
        yaw.append(feed.at(k * block))
        motion.update(k * block, yaw[-1])  # raises an error for jumps
    assert (yaw[2], yaw[38], yaw[99]) == (0.0, 150.0, -120.0)
    assert 0 < yaw[3] < 33
    assert yaw[8] == 150.0  # within 0.2 s
    assert 150 < yaw[39] < 183  # the shorter arc, across the back
    assert feed.skipped == 1
    feed.close()
    os.close(read)
    os.close(write)


def test_live_table() -> None:
    """The table has direction, angles, level and state of each source, and doubts below."""
    from rich.console import Console

    sources = (
        source(1, speed=21.0),
        source(2, active=False, age=3.2, level_db=-np.inf, radius_90=33.0),
        source(3, confirmed=False),
    )
    report = LiveReport(9.5, 0, sources, doubts=(Doubt(DoubtKind.NOISY, "it is", 1.0),))
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(live_table(report, "9.5 s"))
    text = console.export_text()
    for words in ("30° left, 10° down, front", "± 4°", "moves at 21°/s", "silent for 3.2 s", "new"):
        assert words in text
    assert "doubtful: noisy" in text
    narrow = Console(width=80, record=True, file=io.StringIO())
    narrow.print(live_table(report, "9.5 s", narrow.width))
    rows = narrow.export_text().splitlines()
    assert len(rows) == 1 + len(sources) + 2  # no row is wrapped or cut
    for words in ("since", "30° left, 10° down, front", "moves at 21°/s", "silent for 3.2 s"):
        assert any(words in row for row in rows)
    assert live_line(report).endswith("±4°; 2: 30° left, 10° down, front ±33°, silent")
    assert "no sources" in live_line(LiveReport(1.0, 0, ()))


def test_alternatives_in_live_reports() -> None:
    """The other direction is in a line below the table, in the log line, the repr and JSON."""
    from rich.console import Console

    both = tuple(Alternative(np.array([a, 0.0]), p, 7.0) for a, p in ((40.0, 0.7), (140.0, 0.3)))
    ambiguous = source(direction=np.array([40.0, 0.0]), radius_90=80.0, alternatives=both)
    report = LiveReport(1.0, 0, (ambiguous,))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(live_table(report, "", console.width))
    assert "track 1: or 140° left, ear height, behind (30 %)" in console.export_text()
    assert live_line(report).endswith("±80°, or 140° left, ear height, behind (30 %)")
    assert ", or (140.0, 0.0) 30 %, active" in repr(ambiguous)
    assert [one["probability"] for one in ambiguous.to_dict()["alternatives"]] == [0.7, 0.3]
    lateral = source(radius_90=120.0, alternatives=(), lateral_angle=LateralAngle(-20.0, 6.0))
    words = "20° right of the median plane, 90 % within 6.0°"
    assert live_line(LiveReport(1.0, 0, (lateral,))).endswith(f"direction unknown, {words}")
    assert "direction unknown, lateral angle -20 ± 6, active" in repr(lateral)
    assert lateral.to_dict()["lateral_angle"] == {"angle": -20.0, "radius_90": 6.0}


def test_unknown_directions_in_live_reports() -> None:
    """A source with a radius above 90° has no direction in the table, the line and the repr."""
    from rich.console import Console

    report = LiveReport(1.0, 0, (source(radius_90=163.0),))
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(live_table(report, ""))
    for text in (console.export_text(), live_line(report), repr(report), repr(report.sources[0])):
        assert "direction unknown" in text
        assert "163" not in text
        assert "30°" not in text


def test_clock_counts_late_blocks() -> None:
    """One slow block is tolerated; a stream that falls behind stays late."""
    clock = StreamClock(1000)
    for seconds in (0.01, 0.09, 0.01, 0.01):
        clock.add_block(seconds, 50)
    assert clock.late_blocks == 0
    for _ in range(4):
        clock.add_block(0.09, 50)
    assert clock.late_blocks == 2
    assert clock.samples == 400


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "30,0"], "--separate"),
        (["--delay", "0.5"], "--delay must be used with --separate"),
        (["--separate", "--delay", "3"], "--delay must be from 0.024 to 1 s, got 3"),
        (["--separate", "--delay", "500"], "got 500. Give it in seconds: 0.112 is the default."),
        (["--separate", "--only", "north"], "azimuth,elevation"),
        (["--separate", "--channels", "1"], "from 2 to 64"),
        (["--separate", "--socket", "localhost"], "HOST:PORT"),
        (["--separate", "--rate", "4000"], "from 8000"),
        (["--separate", "--sources", "9"], "--sources must be from 1 to 6, got 9"),
        (["--separate", "--from", "party.wav"], "must be one of"),
        (["party.wav"], "Add --from FILE"),
        (["--separate", "--yaw-stream", "fd:99"], "yaw stream must"),
        (["--separate"], "got nothing"),
        (["--separate", "--memory", "3"], "--memory must be used without --separate, got both"),
        (["--separate", "--yaw", "9", "--yaw-stream", "fd:9"], "without --yaw-stream, got both"),
        (["--device", "3"], "--device must be used without --stdin, got both"),
        (["--from", "x.wav", "--rate", "8000"], "--rate must be used without --from, got both"),
        (["--from", "x.wav", "--channels", "6"], "--channels must be used without --from"),
        (["--sources", "2"], "--sources must be used with --separate"),
    ],
)
def test_bad_options_are_refused(run: Run, folder: Path, options: list[str], words: str) -> None:
    """Bad options give one sentence and exit code 2."""
    result = run("listen", folder / "head.atlas", "--stdin", *options)
    assert result.returncode == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    "option", [("--delay", "9"), ("--sources", "9"), ("--adapt",), ("--only", "north")]
)
def test_option_that_is_refused_leaves_no_folder(
    run: Run, folder: Path, tmp_path: Path, option: tuple[str, ...]
) -> None:
    """The output folder is created after all options have been checked."""
    command = ["listen", folder / "head.atlas", "--separate", "--stdin", "-o", tmp_path / "out"]
    assert run(*command, *option).returncode == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("start", "name"),
    [(b"RIFF", "WAV"), (b"RF64", "WAV"), (b"FORM", "AIFF"), (b"fLaC", "FLAC"), (b"OggS", "OGG")],
)
@pytest.mark.parametrize("options", [[], ["--separate"]])
def test_sound_file_on_standard_input_is_refused(
    run: Run, folder: Path, start: bytes, name: str, options: list[str]
) -> None:
    """A header instead of raw samples is recognized by its first bytes."""
    result = run("listen", folder / "head.atlas", "--stdin", *options, stdin=start + bytes(4000))
    refused(result, f"Standard input starts with a {name} header", "Use --from FILE.")


def test_parse_directions_and_sockets() -> None:
    """An azimuth alone has elevation 0; a port alone is on this machine."""
    assert parse_direction("30") == (30.0, 0.0)
    assert parse_direction("-30.5,12") == (-30.5, 12.0)
    assert parse_socket("9000") == ("127.0.0.1", 9000)
    assert parse_socket("0.0.0.0:9000") == ("0.0.0.0", 9000)


@pytest.mark.parametrize(("last", "times"), [(1.0, [0.5, 1.0]), (1.2, [0.5, 1.0, 1.2])])
def test_the_last_report_is_printed_once(last: float, times: list[float]) -> None:
    """The end repeats no report that was just printed, but passes its sound on."""
    printed: list[float] = []
    sounds: list[float] = []
    outputs = _Outputs(every=0.5)
    outputs.periodic.append(lambda report: printed.append(report.time))
    outputs.sound.append(lambda report: sounds.append(report.time))
    for time_seconds in (0.25, 0.5, 0.75, 1.0):
        outputs.take(LiveReport(time_seconds, 0, ()))
    outputs.end(LiveReport(last, 0, ()))
    assert printed == times
    assert sounds == [0.25, 0.5, 0.75, 1.0, last]
