"""Tests of the limits of connections: silent, slow and too many ones."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from earatlas.studio.connections import limited_protocol
from earatlas.studio.safety import Limits

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b"hello"


@contextmanager
def serve(request_head_seconds: float) -> Iterator[int]:
    """Start a server with three connections, and return its port."""
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse(BODY))])
    limits = Limits(connections=3, request_head_seconds=request_head_seconds)
    config = uvicorn.Config(app, log_level="error", http=limited_protocol(limits))
    server = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        yield bound.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Return the port of a server that waits for a request longer than a busy machine needs."""
    with serve(request_head_seconds=60.0) as number:
        yield number


@pytest.fixture(scope="module")
def impatient_port() -> Iterator[int]:
    """Return the port of a server that waits a short time for a request."""
    with serve(request_head_seconds=0.2) as number:
        yield number


def connect(port: int) -> socket.socket:
    """Open a connection that waits at most 20 s."""
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def received(connection: socket.socket) -> bytes:
    """Return the next answer, which may arrive in parts; nothing if the server has closed."""
    answer = b""
    try:
        while not answer.endswith(BODY) and (part := connection.recv(4096)):
            answer += part
    except ConnectionResetError:
        return b""
    return answer


def answer_to_request(connection: socket.socket) -> bytes:
    """Send a request and return its answer; nothing if the server has closed the connection."""
    with suppress(ConnectionError):
        connection.sendall(REQUEST)
        return received(connection)
    return b""


@pytest.mark.parametrize("sent", [b"", REQUEST[:20]])
def test_silent_connection_is_closed(impatient_port: int, sent: bytes) -> None:
    """A connection without a complete request is closed."""
    with connect(impatient_port) as connection:
        connection.sendall(sent)
        assert received(connection) == b""


def test_split_request_is_answered(port: int) -> None:
    """A request may arrive in parts, also in the middle of the end of its head."""
    with connect(port) as connection:
        for part in (REQUEST[:-2], REQUEST[-2:]):
            connection.sendall(part)
            time.sleep(0.05)
        assert b"200 OK" in received(connection)


def test_answered_connection_stays_open(impatient_port: int) -> None:
    """After the first request, a connection may be silent for longer than the limit."""
    for _ in range(100):  # on a busy machine the first request may come too late
        with connect(impatient_port) as connection:
            if b"200 OK" in answer_to_request(connection):
                time.sleep(0.3)  # longer than the limit
                assert b"200 OK" in answer_to_request(connection)
                return
    raise AssertionError("no connection was answered")


def test_silent_connections_give_way(port: int) -> None:
    """Many connections without a request do not keep others from being answered."""
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(port)) for _ in range(12)]
        silent[-1].sendall(REQUEST[:20])  # half a request is not one
        with connect(port) as other:
            assert b"200 OK" in answer_to_request(other)


def test_connections_are_capped(port: int) -> None:
    """A fourth connection is closed at once, and accepted when another one has ended."""
    with ExitStack() as stack:
        kept = [stack.enter_context(connect(port)) for _ in range(3)]
        for one in kept:
            assert b"200 OK" in answer_to_request(one)
        with connect(port) as fourth:
            assert received(fourth) == b""
        kept[0].close()
        for _ in range(100):
            with connect(port) as other:
                if b"200 OK" in answer_to_request(other):
                    return
            time.sleep(0.05)
        raise AssertionError("the connection that ended is still counted")
