"""Tests of the studio's requests: recordings, heads, scenes, and their errors."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import soundfile
from made_scenes import make_scene, posterior_at, two_peaks
from studio_pages import TOKEN, Page, studio_page

import earatlas as ea
from earatlas.errors import InputError
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.plotting.palette import COLOURS
from earatlas.studio.jobs import Job
from earatlas.studio.safety import Limits
from earatlas.studio.session import HeadEntry
from earatlas.studio.tasks import Tasks
from earatlas.studio.views import scene_view

PLACES = [[41.0, 1.0], [-64.0, 24.0]]


@pytest.fixture(scope="module")
def mixture_wav(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return two synthetic talkers around the simulated head, as a WAV file."""
    head = ea.simulated_head(PLACES)
    scene = ea.render_scene(
        head, [ea.synthetic_speech(1.2, seed=1), ea.synthetic_speech(1.2, seed=2)], PLACES
    )
    path = scene.mixture.write(tmp_path_factory.mktemp("party") / "party.wav")
    return path.read_bytes()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Open a page of a studio with one worker."""
    with studio_page(tmp_path, Limits(workers=1, waiting=12)) as opened:
        yield opened


@pytest.fixture(scope="module")
def separated(
    mixture_wav: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, dict[str, Any], dict[str, Any]]]:
    """Return a page, its submitted recording, and the ended job."""
    with (
        mock.patch("earatlas.studio.recordings._PREVIEW_SECONDS", 1.0),
        studio_page(
            tmp_path_factory.mktemp("studio"), Limits(workers=1), head=EXAMPLE_ATLAS
        ) as page,
    ):
        query = {"name": "party.wav", "n_sources": "2"}
        submitted = page.post("recordings", params=query, content=mixture_wav).json()
        yield page, submitted, page.wait(submitted)


def test_recording(separated: tuple[Page, dict[str, Any], dict[str, Any]]) -> None:
    """Both sources have the right directions, credible regions and tracks."""
    _, _, job = separated
    assert job["state"] == "done", job
    view = job["result"]
    assert view["name"] == "party.wav"
    found = np.array([source["direction"] for source in view["sources"]])
    errors = ea.great_circle_error(np.array(PLACES)[:, None], found[None])
    assert errors.min(axis=1).max() < 12
    for source in view["sources"]:
        cells = np.array(source["region"]["cells"])
        away = ea.great_circle_error(np.array(source["direction"]), cells)
        assert 0 < source["region"]["half"] < len(cells)
        assert away[: source["region"]["half"]].mean() < away.mean()
        # Cells have equal areas, so their number gives the area of the region.
        area = len(cells) * (source["region"]["cell_degrees"] / 0.8) ** 2
        assert area == pytest.approx(source["credible_90_area"], rel=0.25)
        track = source["track"]
        assert len({len(values) for values in track.values()}) == 1
        silent = [azimuth is None for azimuth in track["azimuth"]]
        assert silent == [elevation is None for elevation in track["elevation"]]
        assert not all(silent)
    assert {source["colour"] for source in view["sources"]} == set(COLOURS[:2])
    assert len(view["images"]["masks"]) == 2
    assert view["settings"] == {
        "n_sources": 2, "rendering": "spatial", "rate": None, "dry": False, "channels": [0, 1],
        "directions": None,
    }  # fmt: skip
    assert "preliminary" not in view
    assert job["result_version"] == 3  # preview, scene, and scene with report


def test_files_of_a_recording(
    separated: tuple[Page, dict[str, Any], dict[str, Any]], mixture_wav: bytes
) -> None:
    """The sounds add up to the mixture; JSON and report contain the name of the recording."""
    page, submitted, job = separated
    files = job["result"]["files"]
    samples = {}
    for name in (files["mixture"], *files["sounds"]):
        answer = page.get(f"recordings/{submitted['recording']}/files/{name}")
        assert answer.headers["content-disposition"].startswith('attachment; filename="party')
        path = Path(page.studio.sessions.get(page.key).folder) / name  # type: ignore[union-attr]
        path.write_bytes(answer.content)
        samples[name] = soundfile.read(path)[0]
    mixture = samples.pop(files["mixture"])
    assert np.abs(sum(samples.values()) - mixture).max() < 1e-3 * np.abs(mixture).max()
    saved = page.get(f"recordings/{submitted['recording']}/files/{files['json']}").json()
    assert saved["file"] == "party.wav"
    assert [source["file"] for source in saved["sources"]] == files["sounds"]
    report = page.get(f"recordings/{submitted['recording']}/files/{files['report']}")
    assert "party.wav" in report.text
    assert str(page.studio.sessions.get(page.key).folder) not in report.text  # type: ignore[union-attr]


def test_known_result_is_not_sent_again(
    separated: tuple[Page, dict[str, Any], dict[str, Any]],
) -> None:
    """A result takes hundreds of kilobytes, and the page asks ten times per second."""
    page, submitted, job = separated
    known = page.get(f"jobs/{submitted['job']}?version={job['result_version']}").json()
    assert "result" not in known
    assert "result" in page.get(f"jobs/{submitted['job']}?version=1").json()


def test_recordings_of_a_reloaded_page(
    separated: tuple[Page, dict[str, Any], dict[str, Any]],
) -> None:
    """A reloaded page gets its recordings, without scenes that were only rendered."""
    page, submitted, job = separated
    talkers = [{"voice": 0, "azimuth": 20, "elevation": 0}]
    page.wait(page.post("scenes", json={"talkers": talkers, "head": "simulated"}).json())
    assert page.get("recordings").json()["recordings"] == [
        {**submitted, "state": "done", "facts": job["result"]["facts"][:2]}
    ]


def test_recording_is_separated_again_and_removed(
    page: Page, mixture_wav: bytes, tmp_path: Path
) -> None:
    """Other settings give another result, whose predecessors are deleted as the recording is."""
    query = {"n_sources": "1", "rendering": "soft"}
    submitted = page.post("recordings", params=query, content=mixture_wav).json()
    assert len(page.wait(submitted)["result"]["sources"]) == 1
    entry = page.session.recordings[submitted["recording"]]
    for n_sources, expected in (
        (2, ["separation1", "separation2"]),
        (1, ["separation2", "separation3"]),
    ):
        options = {"n_sources": n_sources, "rendering": "soft"}
        again = page.post(f"recordings/{entry.id}/separate", json=options).json()
        assert again["recording"] == submitted["recording"]
        assert len(page.wait(again)["result"]["sources"]) == n_sources
        assert sorted(path.name for path in entry.folder.glob("separation*")) == expected
    assert len(page.session.jobs) == 2
    assert page.client.delete(page.at(f"recordings/{submitted['recording']}")).status_code == 200
    assert not list(tmp_path.rglob("*.wav"))
    assert page.get(f"jobs/{again['job']}").status_code == 404


def test_cancelled_separation_keeps_the_previous_result(
    separated: tuple[Page, dict[str, Any], dict[str, Any]],
) -> None:
    """After a cancelled or failed repetition, the recording has its previous result and files."""
    page, submitted, job = separated
    entry = page.session.recordings[submitted["recording"]]
    sound = f"recordings/{entry.id}/files/{job['result']['files']['sounds'][0]}"
    before = page.get(sound).content
    with mock.patch.object(page.studio.pool, "submit"):
        again = page.post(f"recordings/{entry.id}/separate", json={"n_sources": 1}).json()
    repetition = page.session.jobs[again["job"]]
    assert page.get("recordings").json()["recordings"][0]["job"] == again["job"]
    assert page.get(sound).status_code == 404  # the files of the repetition are not there yet
    page.client.delete(page.at(f"jobs/{again['job']}"))
    assert repetition.state == "cancelled"
    for state in ("cancelled", "failed"):
        repetition.state = state
        listed = page.get("recordings").json()["recordings"][0]
        assert (listed["job"], listed["state"]) == (submitted["job"], "done")
        assert page.get(sound).content == before
    assert page.get(f"jobs/{submitted['job']}").json()["result"] == job["result"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is a text", "cannot be read as sound"),
        (b"RIFF\xff\xff\xff\x7fWAVEfmt ", "'x.wav'"),
        (b"", "file must not be empty"),
    ],
)
def test_file_that_is_not_a_sound(page: Page, content: bytes, message: str) -> None:
    """The error message contains the user's name of the file."""
    answer = page.post("recordings", params={"name": "x.wav"}, content=content)
    job = page.wait(answer.json()) if answer.status_code == 200 else answer.json()
    assert message in job["error"]
    assert "upload" not in job["error"]
    assert page.get("heads").status_code == 200


def test_mono_file(page: Page, tmp_path: Path) -> None:
    """A mono file is refused with an explanation."""
    soundfile.write(tmp_path / "mono.wav", ea.synthetic_speech(0.6), 16_000)
    content = (tmp_path / "mono.wav").read_bytes()
    job = page.wait(page.post("recordings", params={"name": "mono.wav"}, content=content).json())
    assert job["state"] == "failed"
    assert "carries no interaural cues" in job["error"]


def test_long_file(page: Page, tmp_path: Path) -> None:
    """A recording that is too long for the page is refused."""
    soundfile.write(tmp_path / "long.flac", np.full((301 * 4000, 2), 0.1), 4000)
    content = (tmp_path / "long.flac").read_bytes()
    job = page.wait(page.post("recordings", params={"name": "long.flac"}, content=content).json())
    assert "at most 5 min 0 s in the studio, got 5 min 1 s" in job["error"]


def test_twenty_uploads_at_once(page: Page) -> None:
    """Some uploads may be refused; all others are processed, and the studio keeps running."""

    def send(number: int) -> Any:
        return page.post("recordings", params={"name": f"{number}.wav"}, content=b"not a sound")

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(send, range(20)))
    submitted = [answer.json() for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} <= {429}
    assert len(submitted) >= 12
    for job in submitted:
        assert page.wait(job)["state"] == "failed"
    assert page.wait(send(21).json())["state"] == "failed"  # there is room again


def test_full_queue(tmp_path: Path) -> None:
    """An upload is refused with a remedy before anything is stored."""
    with studio_page(tmp_path, Limits(workers=1, waiting=0)) as page:
        answer = page.post("recordings", content=b"x")
        assert answer.status_code == 429
        assert "Try again when one is done" in answer.json()["error"]
        assert page.post("heads", params={"name": "x.sofa"}, content=b"x").status_code == 429
        assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_folder_of_recordings_is_learned(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are uploaded with the browser's names and stored under the studio's."""
    learned: list[ea.Head] = []

    def learn(head: ea.Head, progress: object) -> ea.Atlas:
        learned.append(head)
        return ea.Atlas.load(EXAMPLE_ATLAS)

    monkeypatch.setattr("earatlas.studio.heads.learn", learn)
    directions = [[float(a), e] for e in (-20.0, 25.0) for a in range(-168, 180, 24)]
    ears = ea.simulated_head(directions).responses()
    number = page.post("folders", params={"name": "my ears"}).json()["head"]
    assert page.post(f"folders/{number}/learn", json={}).status_code == 400  # no table yet
    rows = ["file,azimuth,elevation"]
    for i, (azimuth, elevation) in enumerate(directions):
        path = ea.Audio(ears.samples[i], int(ears.rate)).write(tmp_path / "one.wav")
        name = f"../sub/{i}.wav"
        page.post(f"folders/{number}", params={"name": name}, content=path.read_bytes())
        rows.append(f"{name},{azimuth},{elevation}")
    page.post(f"folders/{number}", params={"name": "positions.csv"}, content="\n".join(rows))
    job = page.wait(page.post(f"folders/{number}/learn", json={}).json())
    assert job["state"] == "done", job
    assert np.abs(learned[0].directions - directions).max() < 1e-9
    assert np.abs(learned[0].responses().samples - ears.samples).max() < 1e-6
    assert job["result"]["name"] == "my ears"
    assert len(job["result"]["points"]) == len(directions)
    heads = {head["id"]: head for head in page.get("heads").json()["heads"]}
    assert heads[number] == {
        "id": number, "name": "my ears", "ready": True, "can_render": True, "own": True,
    }  # fmt: skip


def test_table_with_unknown_files(page: Page) -> None:
    """A path in a table does not reach the file system."""
    number = page.post("folders", params={"name": "x"}).json()["head"]
    table = "file,azimuth,elevation\n/etc/passwd,0,0\n"
    page.post(f"folders/{number}", params={"name": "t.csv"}, content=table)
    job = page.wait(page.post(f"folders/{number}/learn", json={}).json())
    assert "not in the dropped folder" in job["error"]
    assert "passwd" not in job["error"]


def test_heads(page: Page, tmp_path: Path) -> None:
    """The built-in head is available; an atlas can be added; other files are refused."""
    assert [head["id"] for head in page.get("heads").json()["heads"]] == [
        "people",
        "simulated",
    ]
    described = page.wait(page.post("heads/simulated/describe").json())["result"]
    assert described["held_out"]["median_degrees"] < 2
    submitted = page.post(
        "heads", params={"name": "m.atlas"}, content=EXAMPLE_ATLAS.read_bytes()
    ).json()
    assert page.wait(submitted)["result"]["directions"] == described["directions"]
    broken = page.post("heads", params={"name": "m.atlas"}, content=b"not an atlas").json()
    assert "atlas must be" in page.wait(broken)["error"]
    assert page.post("recordings", params={"head": broken["head"]["id"]}).status_code == 400
    assert page.post("recordings", params={"head": "no"}).status_code == 404
    assert page.post("heads", params={"name": "x.wav"}, content=b"x").status_code == 400


def test_head_given_at_start(tmp_path: Path) -> None:
    """A given head comes first; scenes cannot be rendered with an atlas alone."""
    with studio_page(tmp_path, Limits(workers=1), head=EXAMPLE_ATLAS) as page:
        heads = page.get("heads").json()["heads"]
        assert [head["id"] for head in heads] == ["given", "people", "simulated"]
        talkers = [{"voice": 0, "azimuth": 0, "elevation": 0}]
        answer = page.post("scenes", json={"head": "given", "talkers": talkers})
        assert "Drop the .sofa file" in answer.json()["error"]


def test_heads_are_kept_renamed_and_removed(tmp_path: Path) -> None:
    """A later studio with the same folder has the head; those of the studio cannot be changed."""
    with studio_page(tmp_path) as page:
        added = page.post("heads", params={"name": "a.atlas"}, content=EXAMPLE_ATLAS.read_bytes())
        head = added.json()["head"]["id"]
        assert page.wait(added.json())["state"] == "done"
        assert page.get(f"heads/{head}/atlas").content == EXAMPLE_ATLAS.read_bytes()
        renamed = page.post(f"heads/{head}", json={"name": "../my\nears"}).json()["head"]
        assert renamed["name"] == "myears"
        for path in ("heads/people", "heads/people/atlas"):
            answer = page.post(path) if path == "heads/people" else page.get(path)
            assert answer.status_code == 400
            assert "that you have added" in answer.json()["error"]
    with studio_page(tmp_path) as page:
        listed = {one["id"]: one for one in page.get("heads").json()["heads"]}
        assert listed[head] == {
            "id": head, "name": "myears", "ready": True, "can_render": False, "own": True,
        }  # fmt: skip
        assert page.client.delete(page.at("heads/people")).status_code == 400
        assert page.client.delete(page.at(f"heads/{head}")).status_code == 200
        assert page.get(f"heads/{head}/atlas").status_code == 404
        assert list((tmp_path / "heads").iterdir()) == []
    with studio_page(tmp_path) as page:
        assert head not in {one["id"] for one in page.get("heads").json()["heads"]}


def test_files_of_heads_that_were_not_learned_are_deleted(tmp_path: Path) -> None:
    """After a failure, when a page is dropped, and what another studio has left at the start."""
    heads, other = tmp_path / "heads", tmp_path / "heads" / "of-the-user"
    other.mkdir(parents=True)
    (heads / "head-0123abcd").mkdir()
    (heads / "head-0123abcd" / "head.atlas").write_bytes(b"not an atlas")
    with studio_page(tmp_path) as page:
        assert list(heads.iterdir()) == [other]
        for name in ("broken.atlas", "broken.sofa"):
            added = page.post("heads", params={"name": name}, content=b"broken").json()
            error = page.wait(added)["error"]
            listed = {head["id"] for head in page.get("heads").json()["heads"]}
            assert listed == {"people", "simulated"}
            assert list(heads.iterdir()) == [other]
            assert page.get(f"jobs/{added['job']}").json()["error"] == error
        page.post("folders", params={"name": "x"})
        assert len(list(heads.iterdir())) == 2
        for _ in range(page.studio.limits.sessions):
            Page(page.client, page.studio)
        assert list(heads.iterdir()) == [other]


def test_a_head_is_renamed_while_it_is_learned(tmp_path: Path) -> None:
    """The name of a head is stored when its atlas is complete."""
    head = HeadEntry("head-0", "before", tmp_path / "head.atlas", own=True)
    head.job = Job({}, on_done=head.complete)
    head.rename("after")
    assert list(tmp_path.iterdir()) == []
    head.job.finish({"done": {}})
    assert [file.read_text() for file in tmp_path.iterdir()] == ["after"]


def test_stored_heads_leave_room_for_recordings(page: Page) -> None:
    """Heads and recordings are counted by themselves."""
    page.session.limits = Limits(entries=3)
    for number in range(3):
        entry = HeadEntry(f"head-{number}", "x", Path("x.atlas"), own=True)
        page.session.heads[entry.id] = entry
    answer = page.post("heads", params={"name": "x.sofa"}, content=b"x")
    assert answer.json()["error"] == "This page already has 3 heads. Remove some."
    assert page.post("recordings", content=b"not a sound").status_code == 200


def test_scene(page: Page, tmp_path: Path) -> None:
    """Talkers have the requested directions, are found there, and are compared with the truth."""
    sounds = []
    for seed in (1, 2):
        soundfile.write(tmp_path / "own.wav", ea.synthetic_speech(1.2, seed=seed), 16_000)
        content = (tmp_path / "own.wav").read_bytes()
        sounds.append(page.post("sounds", params={"name": f"{seed}.wav"}, content=content).json())
    order = {
        "name": "two <b>at once</b>",
        "talkers": [
            {"sound": sounds[0]["sound"], "azimuth": 41.0, "elevation": 1.0},
            {"sound": sounds[1]["sound"], "azimuth": -64.0, "elevation": 24.0},
        ],
        "snr_db": 40,
    }
    made = page.post("scenes", json=order).json()
    assert made["name"] == "b>"  # the last part, as of a path; the page escapes it
    placed = page.wait(made)["result"]
    assert [one["direction"] for one in placed["truth"]] == PLACES
    assert [one["name"] for one in placed["truth"]] == ["1", "2"]
    options = {"n_sources": 2, "head": "simulated"}  # the head that rendered the scene
    again = page.post(f"recordings/{made['recording']}/separate", json=options).json()
    view = page.wait(again)["result"]
    assert [one["direction"] for one in view["truth"]] == PLACES
    assert [row["true"] for row in view["comparison"]] == [
        "41° left, 1° up, front", "64° right, 24° up, front",
    ]  # fmt: skip
    for row in view["comparison"]:
        assert float(row["error"].rstrip("°")) < 12
        assert float(row["after"].rstrip(" dB")) > 3 + float(
            row["before"].rstrip(" dB").replace("−", "-")
        )
    json.dumps(view, allow_nan=False)


def test_all_files_of_the_page_are_served(page: Page) -> None:
    """All files that the page and its modules reference are served, and nothing is external."""
    import re

    todo, seen = ["index.html"], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        path = "" if name == "index.html" else f"static/{name}"
        answer = page.client.get(f"/{TOKEN}/{path}")
        assert answer.status_code == 200, name
        text = answer.text.replace("http://www.w3.org", "")
        assert "http://" not in text
        assert "https://" not in text
        assert " style=" not in text or name.endswith(".svg")
        named = set(re.findall(r'"(?:\./|static/)([\w.]+\.\w+)"', text))
        todo += sorted(named - seen)
    assert {"main.js", "sphere.js", "player.js", "time.js", "studio.css", "shared.css"} <= seen


def test_preview(mixture_wav: bytes, tmp_path: Path) -> None:
    """The preview has the directions of the sources and the mixture, but no sounds."""
    from earatlas.separation.pipeline import SeparationOptions
    from earatlas.studio.recordings import _preview
    from earatlas.studio.tasks import _load_atlas

    path = tmp_path / "party.wav"
    path.write_bytes(mixture_wav)
    view = _preview(_load_atlas(str(EXAMPLE_ATLAS)), path, SeparationOptions(2))
    found = np.array([source["direction"] for source in view["sources"]])
    errors = ea.great_circle_error(np.array(PLACES)[:, None], found[None])
    assert errors.min(axis=1).max() < 12
    assert view["preliminary"]
    assert view["files"] == {"mixture": "mixture.wav", "sounds": []}
    json.dumps(view, allow_nan=False)


def test_too_many_sessions(page: Page, tmp_path: Path) -> None:
    """The least recently used session is dropped with its jobs; its files are kept."""
    page.wait(page.post("recordings", content=b"not a sound").json())
    session = page.studio.sessions.get(page.key)
    assert session is not None
    with page.studio.pool.reserve():
        job = page.studio.pool.submit(session.register_job(Job({"task": "wait"})))
    session.recordings["recording1"].job = job
    second = Page(page.client, page.studio)
    pages = [Page(page.client, page.studio) for _ in range(18)]
    assert page.get("heads").status_code == 200
    pages.append(Page(page.client, page.studio))
    assert second.get("heads").status_code == 410
    assert not job.ended
    for other in pages:
        other.get("heads")
    Page(page.client, page.studio)
    assert page.get("heads").status_code == 410
    assert job.state == "cancelled"
    assert list(tmp_path.glob("session-*/recording1/upload"))


def test_page_with_too_many_recordings(page: Page) -> None:
    """Further uploads are refused and take no places in the queue from other pages."""
    page.session.limits = Limits(entries=3)
    talkers = [{"voice": 0, "azimuth": 0, "elevation": 0}]
    for _ in range(3):
        page.wait(page.post("recordings", content=b"not a sound").json())
    for _ in range(13):
        for answer in (
            page.post("recordings", content=b"not a sound"),
            page.post("scenes", json={"talkers": talkers}),
        ):
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert error.startswith("This page already has 3 recordings.")
            assert "Remove some, or open another page" in error
    other = Page(page.client, page.studio)
    assert other.post("recordings", content=b"not a sound").status_code == 200


def test_old_jobs_are_dropped(page: Page) -> None:
    """Replaced jobs are dropped, and only the last ended jobs are kept."""
    page.session.limits = Limits(entries=5)
    submitted = page.post("recordings", content=b"not a sound").json()
    page.wait(submitted)
    again = page.post(f"recordings/{submitted['recording']}/separate", json={}).json()
    page.wait(again)
    assert page.get(f"jobs/{submitted['job']}").status_code == 404
    for _ in range(8):
        assert page.wait(page.post("heads/simulated/describe").json())["result"]
    session = page.studio.sessions.get(page.key)
    assert session is not None
    assert len(session.jobs) == 6  # five before the last
    assert page.get(f"jobs/{again['job']}").status_code == 404


def test_concurrent_folder_uploads(page: Page) -> None:
    """Each upload has its own file, also if a name is repeated."""
    number = page.post("folders", params={"name": "x"}).json()["head"]

    def send(name: str) -> Any:
        def slowly() -> Iterator[bytes]:
            for letter in name:
                time.sleep(0.005)
                yield letter.encode()

        return page.post(f"folders/{number}", params={"name": name}, content=slowly())

    with ThreadPoolExecutor(4) as threads:
        assert {a.status_code for a in threads.map(send, ("left", "right", "up", "down"))} == {200}
    assert send("left").json() == {"n_sounds": 4}
    assert send("front").json() == {"n_sounds": 5}
    session = page.studio.sessions.get(page.key)
    assert session is not None
    uploads = session.heads[number].uploads
    assert uploads is not None
    assert set(uploads.names) == {"left", "right", "up", "down", "front"}
    for name, own in uploads.names.items():
        assert (session.heads_folder / number / own).read_text() == name


def test_corrected_table_replaces_the_first(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an invalid table, a corrected one can be uploaded and is used."""
    monkeypatch.setattr("earatlas.studio.heads.open_head", mock.Mock(side_effect=InputError("ok")))
    number = page.post("folders", params={"name": "x"}).json()["head"]
    for table, message in (("no,columns", "table must have"), ("file,azimuth,elevation", "ok")):
        page.post(f"folders/{number}", params={"name": "t.csv"}, content=table)
        for _ in range(2):
            job = page.wait(page.post(f"folders/{number}/learn", json={}).json())
            assert message in job["error"]
    assert not {head["id"]: head for head in page.get("heads").json()["heads"]}[number]["ready"]


def test_folder_is_learned_once_at_a_time(page: Page) -> None:
    """A second job that would write the same atlas is refused."""
    number = page.post("folders", params={"name": "x"}).json()["head"]
    page.post(f"folders/{number}", params={"name": "t.csv"}, content="file,azimuth,elevation")
    session = page.studio.sessions.get(page.key)
    assert session is not None
    session.heads[number].job = Job({})
    answer = page.post(f"folders/{number}/learn", json={})
    assert answer.status_code == 400
    assert "before it is learned again" in answer.json()["error"]


def test_messages_name_no_options(tmp_path: Path) -> None:
    """Hints to Python arguments and command-line options do not reach the page."""
    file = tmp_path / "four.wav"
    soundfile.write(file, np.random.default_rng(0).normal(size=(16_000, 4)) / 10, 16_000)
    (tmp_path / "out").mkdir()
    request = {
        "atlas": str(EXAMPLE_ATLAS), "head": "mine", "file": str(file), "name": "mine.wav",
        "folder": str(tmp_path / "out"),
    }  # fmt: skip
    result, _ = Tasks(lambda message: None).run("separate", request, b"")
    (warning,) = [text for text in result["warnings"] if "channels" in text]
    assert warning.startswith("The file 'mine.wav' has 4 channels; the first two are used")
    assert "--" not in warning
    assert "=" not in warning


def test_unknown_direction() -> None:
    """A source whose region covers most of the sphere is shown without a direction."""
    scene, _ = make_scene()
    broad = replace(scene.sources[0], posterior=posterior_at(ea.Sphere(), (30, 10), width=90.0))
    first, second = scene_view(replace(scene, sources=(broad, scene.sources[1])))["sources"]
    assert first["place"] == "direction unknown"
    assert not broad.direction_known
    assert "direction unknown" in repr(broad)
    assert "(unknown)" in repr(replace(scene, sources=(broad, scene.sources[1])))
    assert re.fullmatch(r"90 % in \d+ % of all directions", first["uncertainty"])
    assert first["alternatives_text"] == ""  # the lateral angle is not known, either
    assert second["place"] == "50° right, 20° down, front"
    assert second["uncertainty"].startswith("90 % within ")
    assert (second["alternatives_text"], second["alternative_directions"]) == ("", [])


def test_alternatives_are_shown() -> None:
    """A front-back ambiguity has a text and a point per further direction."""
    scene, _ = make_scene()
    both = two_peaks((70, 0), (110, 0), 0.75, 4.0)
    source = replace(scene.sources[0], posterior=both)
    view = scene_view(replace(scene, sources=(source,)))["sources"][0]
    alternative, lateral = view["alternatives_text"].split("; ")
    assert alternative == "or 110° left, ear height, behind (25 %)"
    assert lateral.startswith("69° left of the median plane, 90 % within ")
    assert view["alternative_directions"] == [[110.0, 0.0]]
    assert [one["direction"] for one in view["alternatives"]] == [[70.0, 0.0], [110.0, 0.0]]
