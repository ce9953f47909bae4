"""Tests of the studio's live page and of the data of "How it works"."""

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from studio_pages import PORT, Page, ThreadWorker, studio_page

import earatlas as ea
from earatlas.errors import InputError
from earatlas.packaged_atlases import PACKAGED_ATLASES
from earatlas.studio.live import decode_samples, encode_samples
from earatlas.studio.safety import Limits

HEADERS = {"host": f"127.0.0.1:{PORT}", "origin": f"http://127.0.0.1:{PORT}"}
LIVE = "live?head=simulated&rate=16000"
PLACES = [[41.0, 1.0], [-64.0, 24.0]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Open a page of a studio that allows one listener."""
    limits = Limits(workers=1, listeners=1)
    with (
        pytest.MonkeyPatch.context() as patch,
        studio_page(tmp_path_factory.mktemp("live"), limits) as opened,
    ):
        patch.setattr("earatlas.studio.sockets.Worker", StatefulWorker)
        yield opened


class StatefulWorker(ThreadWorker):
    """A worker that keeps its stream from one request to the next."""

    def __init__(self) -> None:
        from earatlas.studio.tasks import Tasks

        super().__init__()
        self.tasks = Tasks(lambda message: None)

    def run(self, request: dict[str, Any], on_message: Any, data: bytes = b"") -> tuple[Any, bytes]:
        """Do what the process does."""
        rest = {key: value for key, value in request.items() if key != "task"}
        try:
            done, payload = self.tasks.run(request["task"], rest, data)
        except InputError as error:
            return {"error": str(error)}, b""
        return {"done": done}, payload


def test_samples_are_decoded_and_encoded() -> None:
    """Decoding inverts encoding; incomplete samples are refused."""
    samples = np.array([[0.5, -0.25, 0.125], [1.0, 0.0, -1.0]])
    assert np.array_equal(decode_samples(encode_samples(samples)), samples)
    with pytest.raises(InputError, match="pairs of 32-bit floats"):
        decode_samples(b"1234567")


def test_two_talkers_are_tracked(page: Page) -> None:
    """Both talkers are found at their directions, and one can be monitored."""
    scene = ea.render_scene(
        ea.simulated_head(PLACES),
        [ea.synthetic_speech(2.0, seed=1), ea.synthetic_speech(2.0, seed=2)],
        PLACES,
    )
    sound, monitored = scene.mixture.samples, b""
    with page.client.websocket_connect(page.at(LIVE), headers=HEADERS) as ws:
        assert json.loads(ws.receive_text()) == {"ready": True}
        ws.send_text("no JSON")
        ws.send_text(json.dumps({"monitor": 1}))
        for block in np.array_split(sound, 8, axis=1):
            ws.send_bytes(encode_samples(block))
            while "text" not in (message := ws.receive()):  # sound of the previous block
                monitored += message["bytes"]
            state = json.loads(message["text"])
    assert state["time"] == pytest.approx(sound.shape[1] / 16_000, abs=0.01)
    assert state["dropped_seconds"] == 0
    found = np.array([source["direction"] for source in state["sources"]])
    errors = ea.great_circle_error(np.array(PLACES)[:, None], found[None])
    assert errors.min(axis=1).max() < 10
    assert len({source["colour"] for source in state["sources"]}) == len(found)
    for source in state["sources"]:  # bands of marginals are narrower than the radius
        assert source["known"]
        assert 0 < source["bands"][1] < source["radius_90"]
        assert source["bands"][0] * np.cos(np.radians(source["direction"][1])) < source["radius_90"]
    first = next(source for source in state["sources"] if source["id"] == 1)
    own = int(errors[:, [s["id"] for s in state["sources"]].index(1)].argmin())
    assert ("left" in first["place"]) == (PLACES[own][0] > 0)
    # The monitored sound has the level difference of this talker, and not of the other.
    powers = (decode_samples(monitored)[:, 8000:] ** 2).sum(axis=1)
    images = (scene.images[:, :, 8000:] ** 2).sum(axis=2)
    ratios = np.log(np.concatenate([powers[None], images])) @ [1, -1]
    assert abs(ratios[0] - ratios[1 + own]) < abs(ratios[0] - ratios[2 - own])


def test_number_of_listeners_is_limited(page: Page) -> None:
    """A second page, an unknown head and an invalid rate are refused with a reason."""
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
                page.client.websocket_connect(page.at(path), headers=HEADERS) as other,
            ):
                other.receive_text()  # a browser learns the reason of an accepted connection only
            assert refused.value.code == code
            assert refused.value.reason


@pytest.mark.parametrize(
    ("rate", "data", "message"), [(100, b"", "rate must be"), (16000, b"1234567", "pairs of")]
)
def test_invalid_rate_or_samples(page: Page, rate: int, data: bytes, message: str) -> None:
    """The page receives an error message, and the socket is closed."""
    with page.client.websocket_connect(
        page.at(f"live?head=simulated&rate={rate}"), headers=HEADERS
    ) as ws:
        if data:
            ws.receive_text()
            ws.send_bytes(data)
        assert message in json.loads(ws.receive_text())["error"]


def test_worker_ends_while_listening(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page receives an error message."""
    from earatlas.studio.worker import WorkerEndedError

    def end_process(*_: object) -> None:
        raise WorkerEndedError

    with page.client.websocket_connect(page.at(LIVE), headers=HEADERS) as ws:
        ws.receive_text()
        monkeypatch.setattr(StatefulWorker, "run", end_process)
        ws.send_bytes(bytes(800))
        assert "was ended by the system" in json.loads(ws.receive_text())["error"]


class FakeSocket:
    """A socket that receives given messages one after the other, or raises them."""

    def __init__(self, *messages: dict[str, Any] | Exception) -> None:
        self.messages, self.sent = list(messages), []  # type: ignore[var-annotated]

    async def accept(self) -> None:
        """Accept the connection."""

    async def receive(self) -> dict[str, Any]:
        """Return the next message."""
        await asyncio.sleep(0.01)
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    async def send_text(self, text: str) -> None:
        """Record a message to the page."""
        self.sent.append(json.loads(text))

    async def close(self) -> None:
        """Close the connection."""


def listen(socket: FakeSocket, patch: pytest.MonkeyPatch) -> ThreadWorker:
    """Run a socket until it ends, with a time limit, and return its worker."""
    from earatlas.studio.sockets import LiveSocket

    class Echo(ThreadWorker):
        def run(
            self, request: dict[str, Any], on_message: Any, data: bytes = b""
        ) -> tuple[Any, bytes]:
            return {"done": {"bytes": len(data), "monitor": request.get("monitor")}}, b""

    worker = Echo()
    patch.setattr("earatlas.studio.sockets.Worker", lambda: worker)

    async def run() -> None:
        await asyncio.wait_for(LiveSocket(socket, "", 16_000, Limits()).run(), 5)  # type: ignore[arg-type]

    with suppress(ZeroDivisionError):
        asyncio.run(run())
    return worker


def test_invalid_text_messages_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid or deeply nested JSON is ignored, and the following sound is processed."""
    disconnect = {"type": "websocket.disconnect"}
    texts = [{"type": "websocket.receive", "text": text} for text in ("[" * 100_000, "{", "[1]")]
    selection = {"type": "websocket.receive", "text": '{"monitor": 3}'}
    sound = {"type": "websocket.receive", "bytes": bytes(80)}
    socket = FakeSocket(*texts, selection, sound, *[{"type": "websocket.receive"}] * 20, disconnect)
    listen(socket, monkeypatch)
    assert {"bytes": 80, "monitor": 3, "dropped_seconds": 0.0} in socket.sent


def test_error_while_receiving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket ends, and no process is left."""
    socket = FakeSocket(ZeroDivisionError())
    assert listen(socket, monkeypatch).killed.is_set()
    assert socket.sent == [{"ready": True}]


def test_oldest_pending_sound_is_dropped() -> None:
    """Beyond two seconds the oldest block is dropped and counted; the rest comes at once."""
    from earatlas.studio.sockets import _PendingAudio

    pending = _PendingAudio(rate=100, max_seconds=2.0)
    for number in range(5):
        pending.add(bytes([number]) * 400)  # half a second each
    assert pending.dropped == 400
    assert pending.take() == b"".join(bytes([n]) * 400 for n in range(1, 5))
    assert pending.take() == b""


def test_explainer(page: Page) -> None:
    """Cues, manifold and charts are consistent; VESSL converges and its free energy rises."""
    first = page.post("explainer").json()["job"]
    data = page.wait({"job": first})["result"]
    assert page.post("explainer").json()["job"] == first  # computed once
    count = len(data["directions"])
    for curves in (data["observed"], data["expected"]):
        for kind in ("ild", "ipd"):
            assert np.shape(curves[kind]) == (count, len(data["frequencies_hz"][kind]))
    # For sounds from the left the left ear is louder, observed and expected.
    left = int(np.argmin([abs(a - 90) + abs(e) for a, e in data["directions"]]))
    assert np.mean(data["observed"]["ild"][left]) < -3
    assert np.mean(data["expected"]["ild"][left]) < -3
    gaps = np.array(data["observed"]["ild"]) - data["expected"]["ild"]
    assert np.median(np.abs(gaps)) < 2
    weights = np.array(data["charts"]["weights"])
    assert weights.sum(axis=1).max() <= 1.02
    assert np.median(weights.sum(axis=1)) > 0.9
    assert len(data["manifold"]["coordinates"]) == len(data["manifold"]["kept"]) > 0.9 * count
    steps = data["vessl"]["steps"]
    assert np.diff([step["free_energy"] for step in steps]).min() >= -1  # values are rounded
    errors = [ea.great_circle_error(data["vessl"]["truth"], step["directions"]) for step in steps]
    assert np.max(errors[-1]) < 6 < np.max(errors[0])
    _check_explainer_sounds(page, data)


def _check_explainer_sounds(page: Page, data: dict[str, Any]) -> None:
    """Responses are those of the directions; the sounds of each step add up to the mixture."""
    hearing = data["hearing"]
    responses = np.frombuffer(page.get("explainer/responses.bin").content, dtype="<f4")
    responses = responses.reshape(len(data["directions"]), 2, hearing["taps"])
    head = ea.simulated_head(ea.Sphere().grid(7.0))
    np.testing.assert_allclose(responses, head.responses().at_rate(hearing["rate"]), atol=1e-6)
    left = int(np.argmin([abs(a - 90) + abs(e) for a, e in data["directions"]]))
    power = (responses[left] ** 2).sum(axis=1)
    assert power[0] > 2 * power[1]
    vessl = data["vessl"]

    def sound(name: str) -> np.ndarray:
        return np.asarray(soundfile.read(io.BytesIO(page.get(f"explainer/{name}").content))[0])

    mixture = sound(vessl["mixture"])
    first, last = (np.stack([sound(name) for name in vessl["steps"][n]["sounds"]]) for n in (0, -1))
    for sounds in (first, last):
        assert np.abs(sounds.sum(axis=0) - mixture).max() < 2e-3 * np.abs(mixture).max()
    # After the last step both talkers are alone, each nearer to its ear; before, they are mixed.
    common = [abs(np.corrcoef(one[0].ravel(), one[1].ravel())[0, 1]) for one in (first, last)]
    assert common[1] < 0.7 * common[0], common
    balance = 10 * np.log10((last**2).sum(axis=1)) @ [1, -1]
    assert balance[0] > 1 > -1 > balance[1]
    assert page.get("explainer/step99_1.wav").status_code == 404
    assert page.get("explainer/..%2Fheads").status_code == 404


def test_package_contains_the_page_and_the_atlas() -> None:
    """The page is small, and the built-in atlases are those of the package."""
    folder = Path(ea.__file__).parent / "studio"
    assert (folder / "static" / "index.html").is_file()
    assert sum(file.stat().st_size for file in (folder / "static").iterdir()) < 220_000
    assert all(path.is_file() for path in PACKAGED_ATLASES.values())
    atlas = ea.example_atlas()
    assert atlas.reverberant_localizer is not None
