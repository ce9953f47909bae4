"""Tests of the studio's access control: tokens, hosts, origins, paths, sizes, sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.websockets import WebSocketDisconnect
from studio_pages import PORT, TOKEN, Page, studio_page

from earatlas.studio.safety import Limits, display_name

HERE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Open a page of a studio that accepts uploads of 1000 bytes."""
    with studio_page(tmp_path, Limits(upload_bytes=1000, workers=1, waiting=3)) as opened:
        yield opened


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/sessions", "/wrong/", f"/{TOKEN}"])
def test_requests_without_the_token_are_refused(page: Page, path: str) -> None:
    """Neither the page, nor its files, nor its requests are served; nor part of the address."""
    for method in ("GET", "POST"):
        assert page.client.request(method, path).status_code == 403


def test_security_headers(page: Page) -> None:
    """The page is served with a policy that allows only its own scripts, without cookies."""
    for path in ("", "static/main.js", "static/shared.css"):
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
def test_other_hosts_are_refused(page: Page, host: str) -> None:
    """A name bound to this computer (DNS rebinding) is refused, even with the token."""
    assert page.client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 421


def test_localhost_is_allowed(page: Page) -> None:
    """A user may type localhost instead of 127.0.0.1."""
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
def test_other_origins_are_refused(page: Page, headers: dict[str, str]) -> None:
    """Pages of other hosts or ports are refused, even with the token."""
    assert page.post("scenes", headers=headers, json={}).status_code == 403
    assert page.client.post(f"/{TOKEN}/api/sessions", headers=headers).status_code == 403


def test_own_origin_is_allowed(page: Page) -> None:
    """The same request from the page itself is validated."""
    headers = {"origin": HERE, "sec-fetch-site": "same-origin"}
    answer = page.post("scenes", headers=headers, json={})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("talkers must be 1 to 4")


@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.example"}])
def test_websockets_of_other_origins_are_refused(page: Page, headers: dict[str, str]) -> None:
    """A socket must have the origin of the page."""
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
def test_paths_do_not_reach_the_file_system(page: Page, name: str) -> None:
    """Only known names are served, of the page and of recordings."""
    submitted = page.post("recordings", content=b"not a sound").json()
    page.wait(submitted)
    for folder in (f"/{TOKEN}/static", page.at(f"recordings/{submitted['recording']}/files")):
        assert page.client.get(f"{folder}/{name}").status_code in (403, 404)


def test_browser_names_are_not_used_on_disk(page: Page, tmp_path: Path) -> None:
    """The name that a browser sends is shown, but does not determine where a file is stored."""
    for name in ("../../evil.wav", "/etc/passwd", "a\x1b[2Jb\n.wav", "x" * 500, "C:\\evil.wav", ""):
        submitted = page.post("recordings", params={"name": name}, content=b"not a sound").json()
        assert len(submitted["name"]) <= 120
        assert submitted["name"].isprintable()
        assert "/" not in submitted["name"]
        page.wait(submitted)
    found = {file.name for file in tmp_path.rglob("*") if file.is_file()}
    assert found == {"upload"}
    assert display_name("a/b\\c.wav") == "c.wav"


def test_upload_limit(page: Page, tmp_path: Path) -> None:
    """A declared size above the limit is refused at once; an undeclared one when it is exceeded."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 600

    answer = page.post("recordings", content=b"x", headers={"content-length": str(10**10)})
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert "earatlas separate" in answer.json()["error"]
    assert page.post("recordings", content=_some(endless(), 4)).status_code == 413
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
    submitted = page.post("recordings", content=b"x" * 1000)
    assert submitted.status_code == 200
    page.wait(submitted.json())


def _some(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield next(chunks)


def test_sessions_are_separate(page: Page) -> None:
    """A page cannot access the items of another page, even with their ids."""
    submitted = page.post("recordings", content=b"not a sound").json()
    other = Page(page.client, page.studio)
    assert other.key != page.key
    assert page.get(f"jobs/{submitted['job']}").status_code == 200
    assert other.get(f"jobs/{submitted['job']}").status_code == 404
    assert other.post(f"recordings/{submitted['recording']}/separate", json={}).status_code == 404
    number = submitted["recording"]
    assert other.client.delete(other.at(f"recordings/{number}")).status_code == 404
    assert page.client.get(f"/{TOKEN}/api/no-such-session/heads").status_code == 410


def test_invalid_json(page: Page) -> None:
    """Invalid, deeply nested, too long or unexpected JSON is an error message."""
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
def test_options_are_validated(page: Page, query: dict[str, str], begins: str) -> None:
    """Options are validated before anything is stored."""
    answer = page.post("recordings", params=query, content=b"x")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(begins)
    assert not page.studio.sessions.get(page.key).recordings  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["folders/simulated", "folders/simulated/learn"])
def test_head_that_is_not_a_folder(page: Page, path: str) -> None:
    """Such a head accepts no files, and cannot be learned as a folder."""
    assert page.post(path, params={"name": "x.wav"}, content=b"x").status_code == 404
    submitted = page.post("heads", params={"name": "x.sofa"}, content=b"x").json()
    page.wait(submitted)
    own = path.replace("simulated", submitted["head"]["id"])
    assert page.post(own, params={"name": "x.wav"}, content=b"x").status_code == 404


def test_number_with_400_digits(page: Page) -> None:
    """An integer that exceeds the range of floats is refused."""
    talkers = [{"voice": 0, "azimuth": 10**400, "elevation": 0}]
    answer = page.post("scenes", json={"talkers": talkers})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("azimuth must be a number from -180 to 180")
