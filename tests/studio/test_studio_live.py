"""The studio's live page and its story: sound by a socket, and numbers of the paper."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studio_pages import PORT, Page, ThreadWorker, studio_page

import earatlas as ea
from earatlas.errors import InputError
from earatlas.studio.live import from_bytes, to_bytes
from earatlas.studio.server import Limits

HEADERS = {"host": f"127.0.0.1:{PORT}", "origin": f"http://127.0.0.1:{PORT}"}
LIVE = "live?head=simulated&rate=16000"
PLACES = [[41.0, 1.0], [-64.0, 24.0]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a studio at which one may listen."""
    limits = Limits(workers=1, listeners=1)
    with (
        pytest.MonkeyPatch.context() as patch,
        studio_page(tmp_path_factory.mktemp("live"), limits) as opened,
    ):
        patch.setattr("earatlas.studio.sockets.Worker", KeptWorker)
        yield opened


class KeptWorker(ThreadWorker):
    """A worker that keeps its stream from one order to the next."""

    def __init__(self) -> None:
        from earatlas.studio.tasks import Tasks

        super().__init__()
        self.tasks = Tasks(lambda message: None)

    def ask(self, order: dict[str, Any], told: Any, data: bytes = b"") -> tuple[Any, bytes]:
        """As the process does it."""
        rest = {key: value for key, value in order.items() if key != "do"}
        try:
            done, came = self.tasks.do(order["do"], rest, data)
        except InputError as error:
            return {"error": str(error)}, b""
        return {"done": done}, came


def test_samples_there_and_back() -> None:
    """Left and right stay what they are; half a sample is refused."""
    samples = np.array([[0.5, -0.25, 0.125], [1.0, 0.0, -1.0]])
    assert np.array_equal(from_bytes(to_bytes(samples)), samples)
    with pytest.raises(InputError, match="pairs of 32-bit floats"):
        from_bytes(b"1234567")


def test_two_talkers_are_followed(page: Page) -> None:
    """Blocks go in; both come out where they stand, with names that stay; one can be heard."""
    scene = ea.render_scene(
        ea.simulated_head(PLACES),
        [ea.synthetic_speech(2.0, seed=1), ea.synthetic_speech(2.0, seed=2)],
        PLACES,
    )
    sound, heard = scene.mixture.samples, b""
    with page.client.websocket_connect(page.at(LIVE), headers=HEADERS) as ws:
        assert json.loads(ws.receive_text()) == {"ready": True}
        ws.send_text("no JSON")
        ws.send_text(json.dumps({"monitor": 1}))
        for block in np.array_split(sound, 8, axis=1):
            ws.send_bytes(to_bytes(block))
            while "text" not in (message := ws.receive()):  # the sound of the last one
                heard += message["bytes"]
            told = json.loads(message["text"])
    assert told["time"] == pytest.approx(sound.shape[1] / 16_000, abs=0.01)
    assert told["left_out_seconds"] == 0
    found = np.array([source["direction"] for source in told["sources"]])
    errors = ea.great_circle_error(np.array(PLACES)[:, None], found[None])
    assert errors.min(axis=1).max() < 10
    assert len({source["colour"] for source in told["sources"]}) == len(found)
    first = next(source for source in told["sources"] if source["id"] == 1)
    own = int(errors[:, [s["id"] for s in told["sources"]].index(1)].argmin())
    assert ("left" in first["words"]) == (PLACES[own][0] > 0)
    # What is monitored is the talker there, and not the other: by its level in the two ears.
    powers = (from_bytes(heard)[:, 8000:] ** 2).sum(axis=1)
    images = (scene.images[:, :, 8000:] ** 2).sum(axis=2)
    ratios = np.log(np.concatenate([powers[None], images])) @ [1, -1]
    assert abs(ratios[0] - ratios[1 + own]) < abs(ratios[0] - ratios[2 - own])


def test_one_page_at_a_time(page: Page) -> None:
    """A second one is told why it must wait; a head that is not there is none."""
    from starlette.websockets import WebSocketDisconnect

    with page.client.websocket_connect(page.at(LIVE), headers=HEADERS) as ws:
        ws.receive_text()
        for path, code in (
            (LIVE, 1013),
            ("live?head=no&rate=16000", 1008),
            ("live?head=simulated&rate=x", 1008),
            ("live?head=simulated&rate=²", 1008),
        ):
            with (
                pytest.raises(WebSocketDisconnect) as refused,
                page.client.websocket_connect(page.at(path), headers=HEADERS),
            ):
                pass
            assert refused.value.code == code


@pytest.mark.parametrize(
    ("rate", "data", "says"), [(100, b"", "rate must be"), (16000, b"1234567", "pairs of")]
)
def test_what_cannot_be_heard(page: Page, rate: int, data: bytes, says: str) -> None:
    """Is a sentence, and the socket is closed."""
    with page.client.websocket_connect(
        page.at(f"live?head=simulated&rate={rate}"), headers=HEADERS
    ) as ws:
        if data:
            ws.receive_text()
            ws.send_bytes(data)
        assert says in json.loads(ws.receive_text())["error"]


def test_a_worker_that_ends(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is told that nobody listens any more."""
    from earatlas.studio.worker import WorkerEndedError

    def gone(*_: object) -> None:
        raise WorkerEndedError

    with page.client.websocket_connect(page.at(LIVE), headers=HEADERS) as ws:
        ws.receive_text()
        monkeypatch.setattr(KeptWorker, "ask", gone)
        ws.send_bytes(bytes(800))
        assert "was ended by the system" in json.loads(ws.receive_text())["error"]


class Said:
    """A socket at which things are said one after the other; what comes last may be raised."""

    def __init__(self, *messages: dict[str, Any] | Exception) -> None:
        self.messages, self.told = list(messages), []  # type: ignore[var-annotated]

    async def accept(self) -> None:
        """It is there."""

    async def receive(self) -> dict[str, Any]:
        """The next one."""
        await asyncio.sleep(0.01)
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    async def send_text(self, text: str) -> None:
        """What the page is told."""
        self.told.append(json.loads(text))

    async def close(self) -> None:
        """It is not there any more."""


def listened(socket: Said, patch: pytest.MonkeyPatch) -> ThreadWorker:
    """Listen at a socket until that ends, not for ever; the worker that did it."""
    from earatlas.studio.sockets import LiveSocket

    class Echo(ThreadWorker):
        def ask(self, order: dict[str, Any], told: Any, data: bytes = b"") -> tuple[Any, bytes]:
            return {"done": {"bytes": len(data), "monitor": order.get("monitor")}}, b""

    worker = Echo()
    patch.setattr("earatlas.studio.sockets.Worker", lambda: worker)

    async def soon() -> None:
        await asyncio.wait_for(LiveSocket(socket, "", 16_000).run(), 5)  # type: ignore[arg-type]

    with suppress(ZeroDivisionError):
        asyncio.run(soon())
    return worker


def test_a_text_that_is_nested_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is passed over like one that is no JSON, and the sound after it is heard."""
    gone = {"type": "websocket.disconnect"}
    texts = [{"type": "websocket.receive", "text": text} for text in ("[" * 100_000, "{", "[1]")]
    wish = {"type": "websocket.receive", "text": '{"monitor": 3}'}
    sound = {"type": "websocket.receive", "bytes": bytes(80)}
    socket = Said(*texts, wish, sound, *[{"type": "websocket.receive"}] * 20, gone)
    listened(socket, monkeypatch)
    assert {"bytes": 80, "monitor": 3, "left_out_seconds": 0.0} in socket.told


def test_a_bug_while_hearing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever for what comes no more, and no process is left."""
    socket = Said(ZeroDivisionError())
    assert listened(socket, monkeypatch).ended.is_set()
    assert socket.told == [{"ready": True}]


def test_sound_that_waits_too_long() -> None:
    """Beyond two seconds the oldest is left out, and counted; what is left comes at once."""
    from earatlas.studio.sockets import _Waiting

    waiting = _Waiting(rate=100)
    for number in range(5):
        waiting.add(bytes([number]) * 400)  # half a second each
    assert waiting.left_out == 400
    assert waiting.take() == b"".join(bytes([n]) * 400 for n in range(1, 5))
    assert waiting.take() == b""


def test_the_story(page: Page) -> None:
    """Cues, surface, charts and steps belong together; VESSL arrives, and never falls."""
    first = page.post("story").json()["job"]
    told = page.done({"job": first})["answer"]
    assert page.post("story").json()["job"] == first  # it is told once
    count = len(told["directions"])
    for curves in (told["heard"], told["expected"]):
        for kind in ("ild", "ipd"):
            assert np.shape(curves[kind]) == (count, len(told["hertz"][kind]))
    # From the left the left ear is louder, as heard and as expected.
    left = int(np.argmin([abs(a - 90) + abs(e) for a, e in told["directions"]]))
    assert np.mean(told["heard"]["ild"][left]) < -3
    assert np.mean(told["expected"]["ild"][left]) < -3
    gaps = np.array(told["heard"]["ild"]) - told["expected"]["ild"]
    assert np.median(np.abs(gaps)) < 2
    shares = np.array(told["charts"]["shares"])
    assert shares.sum(axis=1).max() <= 1.02
    assert np.median(shares.sum(axis=1)) > 0.9
    assert len(told["surface"]["places"]) == len(told["surface"]["kept"]) > 0.9 * count
    steps = told["vessl"]["steps"]
    assert np.diff([step["free_energy"] for step in steps]).min() >= -1  # they are rounded
    errors = [ea.great_circle_error(told["vessl"]["truth"], step["directions"]) for step in steps]
    assert np.max(errors[-1]) < 6 < np.max(errors[0])


def test_files_of_the_studio_are_in_the_package() -> None:
    """The page, the built-in head, and no more than they need."""
    folder = Path(ea.__file__).parent / "studio"
    assert (folder / "static" / "index.html").is_file()
    assert sum(file.stat().st_size for file in (folder / "static").iterdir()) < 200_000
    atlas = ea.example_atlas()
    assert atlas.rooms is not None
