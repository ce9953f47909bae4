"""The studio is this user's own: tokens, hosts, origins, paths, sizes, and sessions apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.websockets import WebSocketDisconnect
from studio_pages import PORT, TOKEN, Page, studio_page

from earatlas.studio.safety import shown_name
from earatlas.studio.server import Limits

HERE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A page of a studio that takes a thousand bytes."""
    with studio_page(tmp_path, Limits(upload_bytes=1000, workers=1, waiting=3)) as opened:
        yield opened


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/sessions", "/wrong/", f"/{TOKEN}"])
def test_nothing_without_the_token(page: Page, path: str) -> None:
    """Neither the page, nor its files, nor what it asks; half an address is none."""
    for method in ("GET", "POST"):
        assert page.client.request(method, path).status_code == 403


def test_the_page_with_the_token(page: Page) -> None:
    """With it all are there, and no script but the page's own may run."""
    for path in ("", "static/main.js", "static/look.css"):
        answer = page.client.get(f"/{TOKEN}/{path}")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80"]
)
def test_another_host(page: Page, host: str) -> None:
    """A name that was bound again to this computer (DNS rebinding) gets nothing, token or not."""
    assert page.client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 421


def test_localhost(page: Page) -> None:
    """What a user may type in its place is allowed."""
    assert page.client.get(f"/{TOKEN}/", headers={"host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_origin(page: Page, headers: dict[str, str]) -> None:
    """A page from elsewhere, or from another port, may not ask, even if it knew the token."""
    assert page.post("scenes", headers=headers, json={}).status_code == 403
    assert page.client.post(f"/{TOKEN}/api/sessions", headers=headers).status_code == 403


def test_the_own_origin(page: Page) -> None:
    """The same request from the page itself gets as far as what is wrong with it."""
    headers = {"origin": HERE, "sec-fetch-site": "same-origin"}
    answer = page.post("scenes", headers=headers, json={})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("talkers must be 1 to 4")


@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.example"}])
def test_another_websocket(page: Page, headers: dict[str, str]) -> None:
    """A socket must say where it comes from, and that must be the page."""
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        page.client.websocket_connect(
            page.at("live"), headers={"host": f"127.0.0.1:{PORT}", **headers}
        ),
    ):
        pass
    assert refused.value.code == 1008


@pytest.mark.parametrize(
    "name", ["../session.py", "..%2f..%2fetc%2fpasswd", "%2e%2e/server.py", "nul%00", "index.css"]
)
def test_no_path_reaches_the_disk(page: Page, name: str) -> None:
    """Files are served by names that are known, of the page and of a recording alike."""
    taken = page.post("recordings", content=b"no sound").json()
    page.done(taken)
    for folder in (f"/{TOKEN}/static", page.at(f"recordings/{taken['recording']}/files")):
        assert page.client.get(f"{folder}/{name}").status_code in (403, 404)


def test_names_are_shown_and_not_used(page: Page, tmp_path: Path) -> None:
    """What a browser calls a file has no part in where it is put."""
    for name in ("../../evil.wav", "/etc/passwd", "a\x1b[2Jb\n.wav", "x" * 500, "C:\\evil.wav", ""):
        taken = page.post("recordings", params={"name": name}, content=b"no sound").json()
        assert len(taken["name"]) <= 120
        assert taken["name"].isprintable()
        assert "/" not in taken["name"]
        page.done(taken)
    found = {file.name for file in tmp_path.rglob("*") if file.is_file()}
    assert found == {"upload"}
    assert shown_name("a/b\\c.wav") == "c.wav"


def test_ten_gigabytes(page: Page, tmp_path: Path) -> None:
    """A length that is too large is refused at once; one that is not told, when it is passed."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 600

    answer = page.post("recordings", content=b"x", headers={"content-length": str(10**10)})
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert "earatlas separate" in answer.json()["error"]
    assert page.post("recordings", content=_some(endless(), 4)).status_code == 413
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
    taken = page.post("recordings", content=b"x" * 1000)
    assert taken.status_code == 200
    page.done(taken.json())


def _some(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield next(chunks)


def test_sessions_are_apart(page: Page) -> None:
    """What one page has, another one does not, however well it knows the numbers."""
    taken = page.post("recordings", content=b"no sound").json()
    other = Page(page.client, page.studio)
    assert other.key != page.key
    assert page.get(f"jobs/{taken['job']}").status_code == 200
    assert other.get(f"jobs/{taken['job']}").status_code == 404
    assert other.post(f"recordings/{taken['recording']}/again", json={}).status_code == 404
    number = taken["recording"]
    assert other.client.delete(other.at(f"recordings/{number}")).status_code == 404
    assert page.client.get(f"/{TOKEN}/api/no-such-session/heads").status_code == 410


def test_json_from_anywhere(page: Page) -> None:
    """What is no JSON, or too deep, or too long, or no object, is a sentence."""
    for data in (b"{", b"[1]", b"[" * 50_000, b'{"talkers": {}}', b'{"talkers": [1]}'):
        answer = page.post("scenes", content=data)
        assert answer.status_code == 400, data[:9]
        assert "must" in answer.json()["error"]
    assert page.post("scenes", content=b" " * 200_000).status_code == 413


@pytest.mark.parametrize(
    ("query", "begins"),
    [
        ({"n_sources": "7"}, "n_sources must be a number from 1 to 6"),
        ({"n_sources": "nan"}, "n_sources must be a number from 1 to 6"),
        ({"rendering": "magic"}, "rendering must be one of"),
    ],
)
def test_wishes_are_checked(page: Page, query: dict[str, str], begins: str) -> None:
    """Before anything is stored."""
    answer = page.post("recordings", params=query, content=b"x")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(begins)
    assert not page.studio.sessions.get(page.key).recordings  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["folders/simulated", "folders/simulated/learn"])
def test_no_folder(page: Page, path: str) -> None:
    """A head that is no folder takes no files, and is not learned as one."""
    assert page.post(path, params={"name": "x.wav"}, content=b"x").status_code == 404
    taken = page.post("heads", params={"name": "x.sofa"}, content=b"x").json()
    page.done(taken)
    own = path.replace("simulated", taken["head"]["id"])
    assert page.post(own, params={"name": "x.wav"}, content=b"x").status_code == 404


def test_a_number_of_400_digits(page: Page) -> None:
    """Is JSON, and more than a float holds."""
    talkers = [{"voice": 0, "azimuth": 10**400, "elevation": 0}]
    answer = page.post("scenes", json={"talkers": talkers})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("azimuth must be a number from -180 to 180")
