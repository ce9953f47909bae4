"""The server: what the page may ask, and who answers.

In: requests of the page, behind a `Guard`. Out: its files, and JSON. Nothing is computed here. An
answer that takes time is a job: the page asks how far it is, and may cancel it.

    POST   api/sessions                        a key for all that follows, {s} below
    GET    api/{s}/heads                       POST: learn a .sofa, or take an .atlas
    POST   api/{s}/folders                     a table of recordings; then its files, then `learn`
    GET    api/{s}/recordings                  POST: take one apart
    POST   api/{s}/recordings/{r}/again        the same with other settings
    GET    api/{s}/recordings/{r}/files/{f}    DELETE …/{r}: forget it
    POST   api/{s}/sounds                      a dry sound for a scene;  api/{s}/scenes: make one
    GET    api/{s}/jobs/{j}                    DELETE: cancel it
    POST   api/{s}/story                       numbers for the paper's story
    WS     api/{s}/live                        sound in, who is where out
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from earatlas.errors import InputError
from earatlas.plotting.palette import COLOURS, look
from earatlas.studio.jobs import BusyError, Crew, Job
from earatlas.studio.requests import recording_wishes, scene_wishes
from earatlas.studio.safety import Guard, TooLargeError, check_size, shown_name, store_body
from earatlas.studio.session import HeadEntry, RecordingEntry, Session, Sessions, Uploads
from earatlas.studio.sockets import LiveSocket

__all__ = ["Limits", "Studio"]

_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_SMALL = 100_000  # bytes of a request that is JSON
_T = TypeVar("_T")
_Answer = Callable[["Studio", Request, Session], Awaitable[Response]]


@dataclass(frozen=True)
class Limits:
    """What may be sent, and how much may wait."""

    upload_bytes: int = 500_000_000
    workers: int = 2
    waiting: int = 12
    folder_files: int = 5000  # of a table of calibration recordings
    listeners: int = 2  # pages that listen at once, each with a process of its own


class _NotThereError(Exception):
    """What is asked for is not there."""


def _of_session(answer: _Answer) -> Callable[[Studio, Request], Awaitable[Response]]:
    """The session that a path names goes to the method; what a user got wrong is a sentence."""

    @wraps(answer)
    async def told(self: Studio, request: Request) -> Response:
        session = self.sessions.get(request.path_params["session"])
        if session is None:
            return _told(410, "This page is of an earlier studio. Load it again.")
        try:
            return await answer(self, request, session)
        except _NotThereError:
            return _told(404, "There is no such thing in this session.")
        except TooLargeError as error:
            return _told(413, str(error))
        except BusyError as error:
            return _told(429, str(error))
        except InputError as error:
            return _told(400, str(error))
        except ClientDisconnect:  # nobody is there to read it
            return _told(400, "The upload broke off.")

    return told


def _told(status: int, sentence: str) -> Response:
    # Whoever sends too much is not waited for until the end.
    headers = {"connection": "close"} if status in (413, 429) else {}
    return JSONResponse({"error": sentence}, status, headers)


class Studio:
    """The studio of one user, as an ASGI application: `app`."""

    def __init__(
        self,
        folder: Path,
        *,
        token: str,
        port: int,
        head: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.crew = Crew(self.limits.workers, self.limits.waiting)
        self.sessions = Sessions(folder.resolve(), head, self.crew.cancel)
        self._pages = _pages()
        self._listeners = 0
        self._told: Job | None = None  # the story, which is the same for all
        self.app = Guard(Starlette(routes=self._routes(), lifespan=self._life), token, port)

    @asynccontextmanager
    async def _life(self, app: Starlette) -> Any:
        yield
        self.crew.close()

    def _routes(self) -> list[Any]:
        at = "/api/{session}"
        return [
            Route("/", self._page),
            Route("/static/{name}", self._page),
            Route("/api/sessions", self._open, methods=["POST"]),
            Route(f"{at}/heads", self._heads),
            Route(f"{at}/heads", self._new_head, methods=["POST"]),
            Route(f"{at}/heads/{{head}}/describe", self._describe, methods=["POST"]),
            Route(f"{at}/folders", self._new_folder, methods=["POST"]),
            Route(f"{at}/folders/{{head}}", self._folder_file, methods=["POST"]),
            Route(f"{at}/folders/{{head}}/learn", self._folder_learn, methods=["POST"]),
            Route(f"{at}/recordings", self._recordings),
            Route(f"{at}/recordings", self._new_recording, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}", self._remove, methods=["DELETE"]),
            Route(f"{at}/recordings/{{recording}}/again", self._again, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/files/{{name}}", self._file),
            Route(f"{at}/sounds", self._new_sound, methods=["POST"]),
            Route(f"{at}/scenes", self._new_scene, methods=["POST"]),
            Route(f"{at}/jobs/{{job}}", self._job),
            Route(f"{at}/jobs/{{job}}", self._cancel, methods=["DELETE"]),
            Route(f"{at}/story", self._story, methods=["POST"]),
            WebSocketRoute(f"{at}/live", self._live),
        ]

    # --- the page ------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._pages:
            return Response("There is no such page.", 404)
        return Response(self._pages[name], media_type=_KINDS[Path(name).suffix])

    async def _open(self, request: Request) -> Response:
        return JSONResponse({"session": self.sessions.open().id})

    # --- heads ---------------------------------------------------------------------------------

    @_of_session
    async def _heads(self, request: Request, session: Session) -> Response:
        return JSONResponse({"heads": [head.to_dict() for head in session.heads.values()]})

    @_of_session
    async def _new_head(self, request: Request, session: Session) -> Response:
        """A .sofa file that is to be learned, or an atlas that was."""
        name = shown_name(request.query_params.get("name", ""))
        ending = Path(name).suffix.lower()
        if ending not in (".sofa", ".atlas"):
            raise InputError(
                f"head must be a .sofa or an .atlas file, or a folder with a .csv table, got "
                f"'{name}'. Check its ending."
            )
        with self.crew.place():
            number, folder = session.new_folder("head")
            file = folder / f"head{ending}"
            await self._stored(request, file)
            atlas = folder / "head.atlas"
            source = file if ending == ".sofa" else None
            order = {"do": "describe", "atlas": str(atlas)}
            if source is not None:
                order = {"do": "learn", "source": str(file), "name": name, "atlas": str(atlas)}
            return self._learning(session, HeadEntry(number, name, atlas, source), order)

    def _learning(self, session: Session, head: HeadEntry, order: dict[str, Any]) -> Response:
        head.job = self.crew.submit(session.watch(Job(order), head.job))
        session.heads[head.id] = head
        return JSONResponse({"head": head.to_dict(), "job": head.job.id})

    @_of_session
    async def _describe(self, request: Request, session: Session) -> Response:
        head = _known(session.heads, request.path_params["head"])
        order = {"do": "describe", "atlas": str(head.atlas)}
        with self.crew.place():
            job = self.crew.submit(session.watch(Job(order)))
        return JSONResponse({"job": job.id})

    @_of_session
    async def _new_folder(self, request: Request, session: Session) -> Response:
        """A folder of calibration recordings: its files come one by one."""
        number, folder = session.new_folder("head")
        name = shown_name(request.query_params.get("name", "")) or number
        session.heads[number] = HeadEntry(
            number, name, folder / "head.atlas", folder / "positions.csv", uploads=Uploads()
        )
        return JSONResponse({"head": number})

    @_of_session
    async def _folder_file(self, request: Request, session: Session) -> Response:
        head, uploads = _folder(session, request)
        if uploads.begun >= self.limits.folder_files:
            raise TooLargeError(
                f"folder must have at most {self.limits.folder_files} files in the studio, got "
                "more. Use `earatlas learn` for it."
            )
        wished = request.query_params.get("name", "")
        is_table = wished.lower().endswith(".csv")
        own = uploads.own_name(".csv" if is_table else ".sound")
        await self._stored(request, head.atlas.with_name(own))
        if is_table:
            uploads.table = own
        else:
            uploads.names[wished] = own
        return JSONResponse({"taken": len(uploads.names)})

    @_of_session
    async def _folder_learn(self, request: Request, session: Session) -> Response:
        head, uploads = _folder(session, request)
        if uploads.table is None:
            raise InputError(
                "folder must have a .csv table (file, azimuth, elevation), got none. Add it."
            )
        if head.job is not None and not head.job.ended:
            raise InputError("folder must be done before it is learned again. Cancel it first.")
        order = {
            "do": "learn", "source": str(head.atlas.with_name(uploads.table)), "name": head.name,
            "atlas": str(head.atlas), "names": dict(uploads.names),
        }  # fmt: skip
        with self.crew.place():
            return self._learning(session, head, order)

    # --- recordings ----------------------------------------------------------------------------

    @_of_session
    async def _recordings(self, request: Request, session: Session) -> Response:
        """Those that were taken apart or are being, the newest first."""
        told = [entry.to_dict() for entry in session.recordings.values() if entry.is_separated]
        return JSONResponse({"recordings": told[::-1]})

    @_of_session
    async def _new_recording(self, request: Request, session: Session) -> Response:
        order = self._order(session, recording_wishes(request.query_params))
        with self.crew.place():
            entry = session.new_recording(shown_name(request.query_params.get("name", "")))
            try:
                await self._stored(request, entry.file)
            except BaseException:
                session.remove(entry)
                raise
            return self._taken_apart(session, entry, order)

    def _order(self, session: Session, wishes: dict[str, Any]) -> dict[str, Any]:
        """What is wished of a recording, with the atlas of the head that was chosen."""
        head = _known(session.heads, wishes.pop("head"))
        if not head.ready:
            raise InputError("head must be learned first, got one that is not. Wait for it.")
        return {"do": "separate", "atlas": str(head.atlas), **wishes}

    def _taken_apart(
        self, session: Session, entry: RecordingEntry, order: dict[str, Any]
    ) -> Response:
        paths = {"file": str(entry.file), "folder": str(entry.folder), "name": entry.name}
        entry.job = self.crew.submit(session.watch(Job({**order, **paths}), entry.job))
        return JSONResponse({"recording": entry.id, "name": entry.name, "job": entry.job.id})

    @_of_session
    async def _again(self, request: Request, session: Session) -> Response:
        entry = _known(session.recordings, request.path_params["recording"])
        order = self._order(session, recording_wishes(await _json(request)))
        if entry.job is not None and not entry.job.ended:
            raise InputError("recording must be done before it is done again. Cancel it first.")
        with self.crew.place():
            return self._taken_apart(session, entry, order)

    @_of_session
    async def _remove(self, request: Request, session: Session) -> Response:
        entry = _known(session.recordings, request.path_params["recording"])
        if entry.job is not None:
            self.crew.cancel(entry.job)
        session.remove(entry)
        return JSONResponse({})

    @_of_session
    async def _file(self, request: Request, session: Session) -> Response:
        entry = _known(session.recordings, request.path_params["recording"])
        name = request.path_params["name"]
        if name not in entry.served():
            raise _NotThereError
        stem = Path(entry.name).stem
        own = name.replace("mixture", stem, 1) if name.startswith("mixture") else f"{stem}_{name}"
        return FileResponse(entry.folder / name, filename=own)

    # --- scenes --------------------------------------------------------------------------------

    @_of_session
    async def _new_sound(self, request: Request, session: Session) -> Response:
        number, folder = session.new_folder("sound")
        name = shown_name(request.query_params.get("name", ""))
        await self._stored(request, folder / "upload")
        session.sounds[number] = (Path(name).stem, folder / "upload")
        return JSONResponse({"sound": number, "name": Path(name).stem})

    @_of_session
    async def _new_scene(self, request: Request, session: Session) -> Response:
        wishes = scene_wishes(await _json(request))
        for talker in wishes["talkers"]:
            if "sound" in talker:
                name, file = _known(session.sounds, talker.pop("sound"))
                talker |= {"name": name, "file": str(file)}
        head = _known(session.heads, wishes.pop("head"))
        if not head.ready or (head.source is None and not head.built_in):
            raise InputError(
                "head must be known by its responses to make a scene, got an atlas alone. Drop the "
                ".sofa file that it was learned from, or choose the simulated head."
            )
        with self.crew.place():
            entry = session.new_recording(shown_name(wishes.pop("name")), "mixture.wav")
            source = None if head.source is None else str(head.source)
            order = {"do": "render", "folder": str(entry.folder), "head": source, **wishes}
            entry.job = self.crew.submit(session.watch(Job(order)))
        return JSONResponse({"recording": entry.id, "name": entry.name, "job": entry.job.id})

    # --- jobs ----------------------------------------------------------------------------------

    @_of_session
    async def _job(self, request: Request, session: Session) -> Response:
        job = _known(session.jobs, request.path_params["job"])
        told = job.to_dict()
        if request.query_params.get("seen") == str(job.answers):
            del told["answer"]
        return JSONResponse(told)

    @_of_session
    async def _cancel(self, request: Request, session: Session) -> Response:
        self.crew.cancel(_known(session.jobs, request.path_params["job"]))
        return JSONResponse({})

    @_of_session
    async def _story(self, request: Request, session: Session) -> Response:
        if self._told is None or self._told.state in ("failed", "cancelled"):
            with self.crew.place():
                self._told = self.crew.submit(Job({"do": "story"}))
        return JSONResponse({"job": session.watch(self._told).id})

    async def _live(self, socket: WebSocket) -> None:
        session = self.sessions.get(socket.path_params["session"])
        head = None if session is None else session.heads.get(socket.query_params.get("head", ""))
        rate = socket.query_params.get("rate", "")
        if head is None or not head.ready or not rate.isdecimal() or len(rate) > 6:
            await socket.close(1008, "There is no such head in this session.")
            return
        if self._listeners >= self.limits.listeners:
            await socket.close(1013, "Other pages listen already. Close one of them.")
            return
        self._listeners += 1
        try:
            await LiveSocket(socket, str(head.atlas), int(rate)).run()
        finally:
            self._listeners -= 1

    async def _stored(self, request: Request, path: Path) -> None:
        most = self.limits.upload_bytes
        told = request.headers.get("content-length", "0")
        check_size(int(told) if told.isdecimal() else most + 1, most)
        size = await store_body(request.stream(), path, most)
        if not size:
            path.unlink()
            raise InputError("file must hold something, got an empty one. Choose another.")


def _known(things: dict[str, _T], number: Any) -> _T:
    thing = things.get(str(number))
    if thing is None:
        raise _NotThereError
    return thing


def _folder(session: Session, request: Request) -> tuple[HeadEntry, Uploads]:
    """The folder of calibration recordings that a path names."""
    head = _known(session.heads, request.path_params["head"])
    if head.uploads is None:
        raise _NotThereError
    return head, head.uploads


async def _json(request: Request) -> dict[str, Any]:
    """A small JSON object that was sent."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        check_size(len(data), _SMALL)
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("request must be a JSON object, got something else. Load the page again.")
    return value


def _pages() -> dict[str, bytes]:
    """The files of the page by name: these and no others are served."""
    folder = files("earatlas.studio").joinpath("static")
    pages = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    colours = "".join(f"--source{m + 1}:{colour};" for m, colour in enumerate(COLOURS))
    pages["look.css"] = f"{look()}:root{{{colours}}}".encode()
    return {name: data for name, data in pages.items() if Path(name).suffix in _KINDS}
