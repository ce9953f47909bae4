"""The studio's answers: a recording, a head, a scene; and what goes wrong with them."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import soundfile
from studio_pages import TOKEN, Page, studio_page

import earatlas as ea
from earatlas.errors import InputError
from earatlas.studio.jobs import Job
from earatlas.studio.server import Limits
from earatlas.studio.session import BUILT_IN

PLACES = [[41.0, 1.0], [-64.0, 24.0]]


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Two murmurs around the simulated head, as a WAV file."""
    head = ea.simulated_head(PLACES)
    scene = ea.render_scene(
        head, [ea.synthetic_speech(1.2, seed=1), ea.synthetic_speech(1.2, seed=2)], PLACES
    )
    path = scene.mixture.write(tmp_path_factory.mktemp("party") / "party.wav")
    return path.read_bytes()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A page of a studio with one worker."""
    with studio_page(tmp_path, Limits(workers=1, waiting=12)) as opened:
        yield opened


@pytest.fixture(scope="module")
def answered(
    party: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, dict[str, Any], dict[str, Any]]]:
    """A page, what it was told of the party, and how the job ended."""
    with (
        mock.patch("earatlas.studio.recordings._QUICK_SECONDS", 1.0),
        studio_page(tmp_path_factory.mktemp("studio"), Limits(workers=1)) as page,
    ):
        query = {"name": "party.wav", "n_sources": "2"}
        taken = page.post("recordings", params=query, content=party).json()
        yield page, taken, page.done(taken)


def test_a_recording(answered: tuple[Page, dict[str, Any], dict[str, Any]]) -> None:
    """Both sources are where they are, with regions around them and words for them."""
    _, _, job = answered
    assert job["state"] == "done", job
    view = job["answer"]
    assert view["name"] == "party.wav"
    found = np.array([source["direction"] for source in view["sources"]])
    errors = ea.great_circle_error(np.array(PLACES)[:, None], found[None])
    assert errors.min(axis=1).max() < 12
    for source in view["sources"]:
        cells = np.array(source["region"]["cells"])
        away = ea.great_circle_error(np.array(source["direction"]), cells)
        assert 0 < source["region"]["half"] < len(cells)
        assert away[: source["region"]["half"]].mean() < away.mean()
        # Cells of equal size: their number is the region's area.
        area = len(cells) * (source["region"]["cell_degrees"] / 0.8) ** 2
        assert area == pytest.approx(source["credible_90_area"], rel=0.25)
        course = source["course"]
        assert len({len(values) for values in course.values()}) == 1
        silent = [azimuth is None for azimuth in course["azimuth"]]
        assert silent == [elevation is None for elevation in course["elevation"]]
        assert not all(silent)
    assert {source["colour"] for source in view["sources"]} == {"#2f6db5", "#ff9f1c"}
    assert len(view["images"]["masks"]) == 2
    assert view["settings"] == {"n_sources": 2, "rendering": "spatial"}
    assert "first" not in view
    assert job["answers"] == 3  # a first look, all of it, and with the report


def test_its_files(answered: tuple[Page, dict[str, Any], dict[str, Any]], party: bytes) -> None:
    """The sounds add up to the mixture, which is the recording; JSON and report tell its name."""
    page, taken, job = answered
    files = job["answer"]["files"]
    got = {}
    for name in (files["mixture"], *files["sounds"]):
        answer = page.get(f"recordings/{taken['recording']}/files/{name}")
        assert answer.headers["content-disposition"].startswith('attachment; filename="party')
        path = Path(page.studio.sessions.get(page.key).folder) / name  # type: ignore[union-attr]
        path.write_bytes(answer.content)
        got[name] = soundfile.read(path)[0]
    mixture = got.pop(files["mixture"])
    assert np.abs(sum(got.values()) - mixture).max() < 1e-3 * np.abs(mixture).max()
    told = page.get(f"recordings/{taken['recording']}/files/{files['json']}").json()
    assert told["file"] == "party.wav"
    assert [source["file"] for source in told["sources"]] == files["sounds"]
    report = page.get(f"recordings/{taken['recording']}/files/{files['report']}")
    assert "party.wav" in report.text
    assert str(page.studio.sessions.get(page.key).folder) not in report.text  # type: ignore[union-attr]


def test_what_was_seen_is_not_sent_again(
    answered: tuple[Page, dict[str, Any], dict[str, Any]],
) -> None:
    """An answer has hundreds of kilobytes, and the page asks ten times a second."""
    page, taken, job = answered
    seen = page.get(f"jobs/{taken['job']}?seen={job['answers']}").json()
    assert "answer" not in seen
    assert "answer" in page.get(f"jobs/{taken['job']}?seen=1").json()


def test_what_a_page_had(answered: tuple[Page, dict[str, Any], dict[str, Any]]) -> None:
    """A page that is loaded again is told what it had, but not of scenes that were only made."""
    page, taken, job = answered
    talkers = [{"voice": 0, "azimuth": 20, "elevation": 0}]
    page.done(page.post("scenes", json={"talkers": talkers, "head": "simulated"}).json())
    assert page.get("recordings").json()["recordings"] == [
        {**taken, "state": "done", "facts": job["answer"]["facts"][:2]}
    ]


def test_again_and_forgotten(page: Page, party: bytes, tmp_path: Path) -> None:
    """Another number of sources gives another answer; what is removed is gone from the disk."""
    taken = page.post("recordings", params={"n_sources": "1"}, content=party).json()
    assert len(page.done(taken)["answer"]["sources"]) == 1
    again = page.post(
        f"recordings/{taken['recording']}/again", json={"n_sources": 2, "rendering": "soft"}
    ).json()
    assert again["recording"] == taken["recording"]
    assert len(page.done(again)["answer"]["sources"]) == 2
    assert page.client.delete(page.at(f"recordings/{taken['recording']}")).status_code == 200
    assert not list(tmp_path.rglob("*.wav"))
    assert page.get(f"jobs/{again['job']}").status_code == 404


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"this is a text", "which cannot be read as sound"),
        (b"RIFF\xff\xff\xff\x7fWAVEfmt ", "got 'x.wav'"),
        (b"", "file must hold something"),
    ],
)
def test_no_sound(page: Page, content: bytes, says: str) -> None:
    """A text that is called .wav is a sentence, which has the user's name for it."""
    answer = page.post("recordings", params={"name": "x.wav"}, content=content)
    job = page.done(answer.json()) if answer.status_code == 200 else answer.json()
    assert says in job["error"]
    assert "upload" not in job["error"]
    assert page.get("heads").status_code == 200


def test_a_mono_file(page: Page, tmp_path: Path) -> None:
    """Refused aloud, with the remedy."""
    soundfile.write(tmp_path / "mono.wav", ea.synthetic_speech(0.6), 16_000)
    content = (tmp_path / "mono.wav").read_bytes()
    job = page.done(page.post("recordings", params={"name": "mono.wav"}, content=content).json())
    assert job["state"] == "failed"
    assert "A mono sound carries no interaural cues" in job["error"]


def test_a_long_file(page: Page, tmp_path: Path) -> None:
    """More than a browser can hold is for the command line."""
    soundfile.write(tmp_path / "long.flac", np.full((301 * 4000, 2), 0.1), 4000)
    content = (tmp_path / "long.flac").read_bytes()
    job = page.done(page.post("recordings", params={"name": "long.flac"}, content=content).json())
    assert "at most 5 min 0 s in the studio, got 5 min 1 s" in job["error"]


def test_twenty_at_once(page: Page) -> None:
    """Some are told to try again; all others are answered, and the studio lives."""

    def sent(number: int) -> Any:
        return page.post("recordings", params={"name": f"{number}.wav"}, content=b"no sound")

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(sent, range(20)))
    taken = [answer.json() for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} <= {429}
    assert len(taken) >= 12
    for job in taken:
        assert page.done(job)["state"] == "failed"
    assert page.done(sent(21).json())["state"] == "failed"  # there is room again


def test_a_line_that_is_full(tmp_path: Path) -> None:
    """Refused before anything is uploaded, with what to do; a place is given back."""
    with studio_page(tmp_path, Limits(workers=1, waiting=0)) as page:
        answer = page.post("recordings", content=b"x")
        assert answer.status_code == 429
        assert "Try again when something is done" in answer.json()["error"]
        assert page.post("heads", params={"name": "x.sofa"}, content=b"x").status_code == 429
        assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_folder_of_recordings_is_learned(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files come by names of the browser, and are kept under the studio's own."""
    learned: list[ea.Head] = []

    def learn(head: ea.Head, progress: object) -> ea.Atlas:
        learned.append(head)
        return ea.Atlas.load(BUILT_IN)

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
    job = page.done(page.post(f"folders/{number}/learn", json={}).json())
    assert job["state"] == "done", job
    assert np.abs(learned[0].directions - directions).max() < 1e-9
    assert np.abs(learned[0].responses().samples - ears.samples).max() < 1e-6
    assert job["answer"]["name"] == "my ears"
    assert len(job["answer"]["points"]) == len(directions)
    heads = {head["id"]: head for head in page.get("heads").json()["heads"]}
    assert heads[number] == {"id": number, "name": "my ears", "ready": True, "makes_scenes": True}


def test_a_table_that_names_what_is_not_there(page: Page) -> None:
    """A path of the browser's in a table does not reach the disk."""
    number = page.post("folders", params={"name": "x"}).json()["head"]
    table = "file,azimuth,elevation\n/etc/passwd,0,0\n"
    page.post(f"folders/{number}", params={"name": "t.csv"}, content=table)
    job = page.done(page.post(f"folders/{number}/learn", json={}).json())
    assert "not in the folder that was dropped" in job["error"]
    assert "passwd" not in job["error"]


def test_heads(page: Page, tmp_path: Path) -> None:
    """The built-in one is there at once; an atlas is taken; anything else is refused."""
    assert [head["id"] for head in page.get("heads").json()["heads"]] == ["simulated"]
    described = page.done(page.post("heads/simulated/describe").json())["answer"]
    assert described["held_out"]["median_degrees"] < 2
    taken = page.post("heads", params={"name": "m.atlas"}, content=BUILT_IN.read_bytes()).json()
    assert page.done(taken)["answer"]["directions"] == described["directions"]
    broken = page.post("heads", params={"name": "m.atlas"}, content=b"no atlas").json()
    assert "atlas must be" in page.done(broken)["error"]
    assert page.post("recordings", params={"head": broken["head"]["id"]}).status_code == 400
    assert page.post("recordings", params={"head": "no"}).status_code == 404
    assert page.post("heads", params={"name": "x.wav"}, content=b"x").status_code == 400


def test_a_head_that_is_given(tmp_path: Path) -> None:
    """It comes first; scenes cannot be made with an atlas alone, which is said."""
    with studio_page(tmp_path, Limits(workers=1), head=BUILT_IN) as page:
        heads = page.get("heads").json()["heads"]
        assert [head["id"] for head in heads] == ["given", "simulated"]
        talkers = [{"voice": 0, "azimuth": 0, "elevation": 0}]
        answer = page.post("scenes", json={"head": "given", "talkers": talkers})
        assert "Drop the .sofa file" in answer.json()["error"]


def test_a_scene(page: Page, tmp_path: Path) -> None:
    """Its talkers are where they were put, and found there; the truth stands beside."""
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
    assert made["name"] == "b>"  # what follows the last stroke, as of a path; the page escapes it
    placed = page.done(made)["answer"]
    assert [one["direction"] for one in placed["truth"]] == PLACES
    assert [one["name"] for one in placed["truth"]] == ["1", "2"]
    again = page.post(f"recordings/{made['recording']}/again", json={"n_sources": 2}).json()
    view = page.done(again)["answer"]
    assert [one["direction"] for one in view["truth"]] == PLACES
    assert [row["true"] for row in view["compared"]] == [
        "41° left, 1° up, front", "64° right, 24° up, front",
    ]  # fmt: skip
    for row in view["compared"]:
        assert float(row["error"].rstrip("°")) < 12
        assert float(row["after"].rstrip(" dB")) > 3 + float(
            row["before"].rstrip(" dB").replace("−", "-")
        )
    json.dumps(view, allow_nan=False)


def test_every_file_of_the_page_is_there(page: Page) -> None:
    """What the page and its modules name is served, and nothing is fetched from elsewhere."""
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
    assert {"main.js", "sphere.js", "player.js", "time.js", "studio.css", "look.css"} <= seen


def test_a_first_look(party: bytes, tmp_path: Path) -> None:
    """It tells where the sources are, of a mixture that can be heard, and no sounds yet."""
    from earatlas.separation.options import Separating
    from earatlas.studio.recordings import _first_look
    from earatlas.studio.tasks import _loaded

    path = tmp_path / "party.wav"
    path.write_bytes(party)
    view = _first_look(_loaded(str(BUILT_IN)), path, Separating(2))
    found = np.array([source["direction"] for source in view["sources"]])
    errors = ea.great_circle_error(np.array(PLACES)[:, None], found[None])
    assert errors.min(axis=1).max() < 12
    assert view["first"]
    assert view["files"] == {"mixture": "mixture.wav", "sounds": []}
    json.dumps(view, allow_nan=False)


def test_too_many_pages(page: Page, tmp_path: Path) -> None:
    """The one that was not used for longest is forgotten with its work, but not with its files."""
    page.done(page.post("recordings", content=b"no sound").json())
    session = page.studio.sessions.get(page.key)
    assert session is not None
    with page.studio.crew.place():
        job = page.studio.crew.submit(session.watch(Job({"do": "wait"})))
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


def test_a_page_that_is_full(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told so, however often it tries; other pages have their places in the line."""
    monkeypatch.setattr("earatlas.studio.session._MOST_ENTRIES", 2)
    talkers = [{"voice": 0, "azimuth": 0, "elevation": 0}]
    for _ in range(2):
        page.done(page.post("recordings", content=b"no sound").json())
    for _ in range(13):
        for answer in (
            page.post("recordings", content=b"no sound"),
            page.post("heads", params={"name": "x.sofa"}, content=b"x"),
            page.post("scenes", json={"talkers": talkers}),
        ):
            assert answer.status_code == 400
            assert "Remove some, or open another page" in answer.json()["error"]
    other = Page(page.client, page.studio)
    assert other.post("recordings", content=b"no sound").status_code == 200


def test_jobs_of_long_ago(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was replaced is gone, and of what has ended only the last is kept; answers are large."""
    monkeypatch.setattr("earatlas.studio.session._MOST_ENTRIES", 5)
    taken = page.post("recordings", content=b"no sound").json()
    page.done(taken)
    again = page.post(f"recordings/{taken['recording']}/again", json={}).json()
    page.done(again)
    assert page.get(f"jobs/{taken['job']}").status_code == 404
    for _ in range(8):
        assert page.done(page.post("heads/simulated/describe").json())["answer"]
    session = page.studio.sessions.get(page.key)
    assert session is not None
    assert len(session.jobs) == 6  # five before the last
    assert page.get(f"jobs/{again['job']}").status_code == 404


def test_files_of_a_folder_at_once(page: Page) -> None:
    """Each has a file of its own, whether a name comes twice or two files come at a time."""
    number = page.post("folders", params={"name": "x"}).json()["head"]

    def sent(name: str) -> Any:
        def slowly() -> Iterator[bytes]:
            for letter in name:
                time.sleep(0.005)
                yield letter.encode()

        return page.post(f"folders/{number}", params={"name": name}, content=slowly())

    with ThreadPoolExecutor(4) as threads:
        assert {a.status_code for a in threads.map(sent, ("left", "right", "up", "down"))} == {200}
    assert sent("left").json() == {"taken": 4}
    assert sent("front").json() == {"taken": 5}
    session = page.studio.sessions.get(page.key)
    assert session is not None
    uploads = session.heads[number].uploads
    assert uploads is not None
    assert set(uploads.names) == {"left", "right", "up", "down", "front"}
    for name, own in uploads.names.items():
        assert (session.folder / number / own).read_text() == name


def test_a_folder_is_mended(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a table that was wrong comes one that is right; the first is read no more."""
    monkeypatch.setattr("earatlas.studio.heads.open_head", mock.Mock(side_effect=InputError("ok")))
    number = page.post("folders", params={"name": "x"}).json()["head"]
    for table, says in (("no,columns", "table must have"), ("file,azimuth,elevation", "ok")):
        page.post(f"folders/{number}", params={"name": "t.csv"}, content=table)
        for _ in range(2):
            job = page.done(page.post(f"folders/{number}/learn", json={}).json())
            assert says in job["error"]
    assert not {head["id"]: head for head in page.get("heads").json()["heads"]}[number]["ready"]


def test_a_folder_is_learned_once_at_a_time(page: Page) -> None:
    """Two that write the same atlas would make one that is neither."""
    number = page.post("folders", params={"name": "x"}).json()["head"]
    page.post(f"folders/{number}", params={"name": "t.csv"}, content="file,azimuth,elevation")
    session = page.studio.sessions.get(page.key)
    assert session is not None
    session.heads[number].job = Job({})
    answer = page.post(f"folders/{number}/learn", json={})
    assert answer.status_code == 400
    assert "before it is learned again" in answer.json()["error"]
