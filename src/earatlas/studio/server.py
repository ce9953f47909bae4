"""HTTP server of the studio: routes, the page, jobs and live sound.

Requests of the page arrive through a `Guard`; responses are static files and JSON. The server
computes nothing. Long tasks are jobs: the page asks for their progress and may cancel them.

    POST   api/sessions                           returns the session's key, {s} below
    GET    api/{s}/heads                          POST: learn a .sofa file, or add an .atlas file
    POST   api/{s}/heads/{h}                      rename a head; DELETE: remove it
    GET    api/{s}/heads/{h}/atlas                its atlas, for other commands
    POST   api/{s}/folders                        a folder of recordings; then its files, `learn`
    GET    api/{s}/recordings                     POST: upload and separate a recording
    POST   api/{s}/recordings/{r}/separate        separate it again with other settings
    POST   api/{s}/recordings/{r}/selection       separate a part of it as another recording
    POST   api/{s}/recordings/{r}/names           name its sources
    GET    api/{s}/recordings/{r}/files/{f}       DELETE …/{r}: remove the recording
    POST   api/{s}/pictures                       draw the pictures of several recordings
    GET    api/{s}/archive                        ZIP file of several recordings
    POST   api/{s}/sounds                         a dry sound for a scene
    POST   api/{s}/scenes                         render a scene
    GET    api/{s}/jobs/{j}                       DELETE: cancel the job
    POST   api/{s}/explainer                      data of the page "How it works"
    GET    api/{s}/explainer/{f}                  its sounds
    WS     api/{s}/live                           sound in, directions and sounds out
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from earatlas.plotting.palette import COLOURS, shared_css
from earatlas.studio.archive_handlers import ArchiveHandlers
from earatlas.studio.handlers import NotFoundError, entry_of, with_session
from earatlas.studio.head_handlers import HeadHandlers
from earatlas.studio.jobs import Job, WorkerPool
from earatlas.studio.recording_handlers import RecordingHandlers
from earatlas.studio.safety import Guard, Limits
from earatlas.studio.session import Session, Sessions
from earatlas.studio.sockets import LiveSocket

__all__ = ["Studio"]

_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Studio(HeadHandlers, RecordingHandlers, ArchiveHandlers):
    """The studio of one user; `app` is its ASGI application."""

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
        self.pool = WorkerPool(self.limits.workers, self.limits.waiting)
        self.sessions = Sessions(folder.resolve(), head, self.pool.cancel, self.limits)
        self._static_files = _static_files()
        self._n_listeners = 0
        self._explainer_job: Job | None = None  # shared by all sessions
        self._explainer_folder = folder.resolve() / "explainer"
        self.app = Guard(Starlette(routes=self._routes(), lifespan=self._lifespan), token, port)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> Any:
        yield
        self.pool.close()

    def _routes(self) -> list[Any]:
        at = "/api/{session}"
        return [
            Route("/", self._static),
            Route("/static/{name}", self._static),
            Route("/api/sessions", self._open_session, methods=["POST"]),
            Route(f"{at}/heads", self.list_heads),
            Route(f"{at}/heads", self.add_head, methods=["POST"]),
            Route(f"{at}/heads/{{head}}", self.change_head, methods=["POST", "DELETE"]),
            Route(f"{at}/heads/{{head}}/atlas", self.head_file),
            Route(f"{at}/heads/{{head}}/describe", self.describe_head, methods=["POST"]),
            Route(f"{at}/folders", self.add_folder, methods=["POST"]),
            Route(f"{at}/folders/{{head}}", self.add_folder_file, methods=["POST"]),
            Route(f"{at}/folders/{{head}}/learn", self.learn_folder, methods=["POST"]),
            Route(f"{at}/recordings", self.list_recordings),
            Route(f"{at}/recordings", self.add_recording, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}", self.remove_recording, methods=["DELETE"]),
            Route(f"{at}/recordings/{{recording}}/separate", self.separate, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/selection", self.select, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/names", self.rename, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/files/{{name}}", self.file),
            Route(f"{at}/pictures", self.draw_pictures, methods=["POST"]),
            Route(f"{at}/archive", self.archive),
            Route(f"{at}/sounds", self.add_sound, methods=["POST"]),
            Route(f"{at}/scenes", self.add_scene, methods=["POST"]),
            Route(f"{at}/jobs/{{job}}", self._job),
            Route(f"{at}/jobs/{{job}}", self._cancel, methods=["DELETE"]),
            Route(f"{at}/explainer", self._explainer, methods=["POST"]),
            Route(f"{at}/explainer/{{name}}", self._explainer_file),
            WebSocketRoute(f"{at}/live", self._live),
        ]

    # --- the page ------------------------------------------------------------------------------

    async def _static(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._static_files:
            return Response("This page does not exist.", 404)
        return Response(self._static_files[name], media_type=_MEDIA_TYPES[Path(name).suffix])

    async def _open_session(self, request: Request) -> Response:
        return JSONResponse({"session": self.sessions.open().id})

    # --- jobs ----------------------------------------------------------------------------------

    @with_session
    async def _job(self, request: Request, session: Session) -> Response:
        """Return a job; its result only if the page does not have this version yet."""
        job = entry_of(session.jobs, request.path_params["job"])
        values = job.to_dict()
        if request.query_params.get("version") == str(job.result_version):
            del values["result"]
        return JSONResponse(values)

    @with_session
    async def _cancel(self, request: Request, session: Session) -> Response:
        self.pool.cancel(entry_of(session.jobs, request.path_params["job"]))
        return JSONResponse({})

    @with_session
    async def _explainer(self, request: Request, session: Session) -> Response:
        job = self._explainer_job
        if job is None or job.state in ("failed", "cancelled"):
            with self.pool.reserve():
                job = self._explainer_job = self.pool.submit(
                    Job({"task": "explainer", "folder": str(self._explainer_folder)})
                )
        return JSONResponse({"job": session.register_job(job).id})

    @with_session
    async def _explainer_file(self, request: Request, session: Session) -> Response:
        """Return a sound of the page "How it works", or the responses of its head."""
        job, name = self._explainer_job, request.path_params["name"]
        if job is None or name not in (job.result or {}).get("files", ()):
            raise NotFoundError
        return FileResponse(self._explainer_folder / name)

    # --- live ----------------------------------------------------------------------------------

    async def _live(self, socket: WebSocket) -> None:
        session = self.sessions.get(socket.path_params["session"])
        head = None if session is None else session.heads.get(socket.query_params.get("head", ""))
        rate = socket.query_params.get("rate", "")
        if head is None or not head.ready or not rate.isdecimal() or len(rate) > 6:
            await socket.accept()  # the reason does not reach the page otherwise
            await socket.close(1008, "This head does not exist in this session.")
            return
        if self._n_listeners >= self.limits.listeners:
            await socket.accept()  # the reason does not reach the page otherwise
            await socket.close(1013, "Other pages are already listening. Close one of them.")
            return
        self._n_listeners += 1
        try:
            await LiveSocket(socket, str(head.atlas), int(rate), self.limits).run()
        finally:
            self._n_listeners -= 1


def _static_files() -> dict[str, bytes]:
    """Return the files of the page by name; no other files are served."""
    folder = files("earatlas.studio").joinpath("static")
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    colours = "".join(f"--source{m + 1}:{colour};" for m, colour in enumerate(COLOURS))
    contents["shared.css"] = f"{shared_css()}:root{{{colours}}}".encode()
    return {name: data for name, data in contents.items() if Path(name).suffix in _MEDIA_TYPES}
