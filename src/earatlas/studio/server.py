"""HTTP server of the studio: routes, uploads and jobs.

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

import shutil
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from earatlas.errors import InputError
from earatlas.plotting.palette import COLOURS, shared_css
from earatlas.studio.archive_handlers import ArchiveHandlers
from earatlas.studio.handlers import NotFoundError, entry_of, with_session
from earatlas.studio.jobs import Job, WorkerPool
from earatlas.studio.requests import (
    parse_names,
    parse_recording_options,
    parse_scene_options,
    parse_selection,
    parse_wrong_way,
)
from earatlas.studio.safety import (
    Guard,
    Limits,
    TooLargeError,
    check_size,
    display_name,
    store_body,
)
from earatlas.studio.session import HeadEntry, RecordingEntry, Session, Sessions, Uploads
from earatlas.studio.sockets import LiveSocket

__all__ = ["Studio"]

_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Studio(ArchiveHandlers):
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
            Route(f"{at}/heads", self._list_heads),
            Route(f"{at}/heads", self._add_head, methods=["POST"]),
            Route(f"{at}/heads/{{head}}", self._change_head, methods=["POST", "DELETE"]),
            Route(f"{at}/heads/{{head}}/atlas", self._head_file),
            Route(f"{at}/heads/{{head}}/describe", self._describe_head, methods=["POST"]),
            Route(f"{at}/folders", self._add_folder, methods=["POST"]),
            Route(f"{at}/folders/{{head}}", self._add_folder_file, methods=["POST"]),
            Route(f"{at}/folders/{{head}}/learn", self._learn_folder, methods=["POST"]),
            Route(f"{at}/recordings", self._list_recordings),
            Route(f"{at}/recordings", self._add_recording, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}", self._remove_recording, methods=["DELETE"]),
            Route(f"{at}/recordings/{{recording}}/separate", self._separate, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/selection", self._select, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/names", self._rename, methods=["POST"]),
            Route(f"{at}/recordings/{{recording}}/files/{{name}}", self._file),
            Route(f"{at}/pictures", self.draw_pictures, methods=["POST"]),
            Route(f"{at}/archive", self.archive),
            Route(f"{at}/sounds", self._add_sound, methods=["POST"]),
            Route(f"{at}/scenes", self._add_scene, methods=["POST"]),
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

    # --- heads ---------------------------------------------------------------------------------

    @with_session
    async def _list_heads(self, request: Request, session: Session) -> Response:
        session.remove_abandoned_heads()
        return JSONResponse({"heads": [head.to_dict() for head in session.heads.values()]})

    @with_session
    async def _add_head(self, request: Request, session: Session) -> Response:
        """Learn a .sofa file, or add an .atlas file."""
        name = display_name(request.query_params.get("name", ""))
        wrong_way = parse_wrong_way(request.query_params.get("wrong_way"))
        suffix = Path(name).suffix.lower()
        if suffix not in (".sofa", ".atlas"):
            raise InputError(
                f"head must be a .sofa or an .atlas file, or a folder with a .csv table, got "
                f"'{name}'. Check its extension."
            )
        with self.pool.reserve():
            head_id, folder = session.new_head()
            file = folder / f"head{suffix}"
            try:
                await self._store_upload(request, file)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            atlas = folder / "head.atlas"
            source = file if suffix == ".sofa" else None
            task: dict[str, Any] = {"task": "describe", "atlas": str(atlas)}
            if source is not None:
                task = {
                    "task": "learn", "source": str(file), "name": name, "atlas": str(atlas),
                    "wrong_way": wrong_way,
                }  # fmt: skip
            head = HeadEntry(head_id, name, atlas, source, own=True)
            return self._submit_head(session, head, task)

    def _submit_head(self, session: Session, head: HeadEntry, task: dict[str, Any]) -> Response:
        job = Job(task, on_done=head.complete)
        head.job = self.pool.submit(session.register_job(job, head.job))
        session.heads[head.id] = head
        return JSONResponse({"head": head.to_dict(), "job": head.job.id})

    @with_session
    async def _describe_head(self, request: Request, session: Session) -> Response:
        head = entry_of(session.heads, request.path_params["head"])
        task = {"task": "describe", "atlas": str(head.atlas)}
        with self.pool.reserve():
            job = self.pool.submit(session.register_job(Job(task)))
        return JSONResponse({"job": job.id})

    @with_session
    async def _change_head(self, request: Request, session: Session) -> Response:
        """Rename or remove a head that the user has added."""
        head = _own_head(session, request)
        if request.method == "DELETE":
            if head.job is not None:
                self.pool.cancel(head.job)
            session.remove_head(head)
            return JSONResponse({})
        head.rename(display_name(str((await self.json(request)).get("name", ""))))
        return JSONResponse({"head": head.to_dict()})

    @with_session
    async def _head_file(self, request: Request, session: Session) -> Response:
        """Return the atlas of a head, to be used by other commands."""
        head = _own_head(session, request)
        if not head.ready:
            raise NotFoundError
        return FileResponse(head.atlas, filename=f"{Path(head.name).stem}.atlas")

    @with_session
    async def _add_folder(self, request: Request, session: Session) -> Response:
        """Add a folder of calibration recordings, whose files are uploaded one by one."""
        name = display_name(request.query_params.get("name", ""))
        head_id, folder = session.new_head()
        session.heads[head_id] = HeadEntry(
            head_id, name, folder / "head.atlas", folder / "positions.csv", uploads=Uploads(),
            own=True,
        )  # fmt: skip
        return JSONResponse({"head": head_id})

    @with_session
    async def _add_folder_file(self, request: Request, session: Session) -> Response:
        head, uploads = _folder(session, request)
        if uploads.n_started >= self.limits.folder_files:
            raise TooLargeError(
                f"folder must have at most {self.limits.folder_files} files in the studio, got "
                "more. Use the command `earatlas learn`."
            )
        browser_name = request.query_params.get("name", "")
        is_table = browser_name.lower().endswith(".csv")
        name = uploads.new_name(".csv" if is_table else ".sound")
        await self._store_upload(request, head.atlas.with_name(name))
        if is_table:
            uploads.table = name
        else:
            uploads.names[browser_name] = name
        return JSONResponse({"n_sounds": len(uploads.names)})

    @with_session
    async def _learn_folder(self, request: Request, session: Session) -> Response:
        head, uploads = _folder(session, request)
        wrong_way = parse_wrong_way((await self.json(request)).get("wrong_way"))
        if uploads.table is None:
            raise InputError(
                "folder must have a .csv table (file, azimuth, elevation), got none. Add it."
            )
        if head.job is not None and not head.job.ended:
            raise InputError(
                "folder must be learned completely before it is learned again, got a running job. "
                "Cancel it first."
            )
        task = {
            "task": "learn", "source": str(head.atlas.with_name(uploads.table)), "name": head.name,
            "atlas": str(head.atlas), "names": dict(uploads.names), "wrong_way": wrong_way,
        }  # fmt: skip
        with self.pool.reserve():
            return self._submit_head(session, head, task)

    # --- recordings ----------------------------------------------------------------------------

    @with_session
    async def _list_recordings(self, request: Request, session: Session) -> Response:
        """Return the recordings that were or are being separated, the newest first."""
        entries = [entry for entry in session.recordings.values() if entry.is_separated]
        return JSONResponse({"recordings": [entry.to_dict() for entry in entries[::-1]]})

    @with_session
    async def _add_recording(self, request: Request, session: Session) -> Response:
        task = self._separation_task(session, parse_recording_options(request.query_params))
        with self.pool.reserve():
            entry = session.new_recording(display_name(request.query_params.get("name", "")))
            try:
                await self._store_upload(request, entry.file)
            except BaseException:
                session.remove(entry)
                raise
            return self._submit_separation(session, entry, task)

    def _separation_task(self, session: Session, options: dict[str, Any]) -> dict[str, Any]:
        """Return the request of a separation with the atlas of the selected head."""
        head = entry_of(session.heads, options.pop("head") or session.default_head)
        if not head.ready:
            raise InputError("This head is still being learned. Wait until it is ready.")
        return {"task": "separate", "atlas": str(head.atlas), **options}

    def _submit_separation(
        self, session: Session, entry: RecordingEntry, task: dict[str, Any]
    ) -> Response:
        span = None if entry.span is None else list(entry.span)
        job = Job({**task, "file": str(entry.file), "name": entry.name, "span": span})
        self.pool.submit(session.register_job(job, *entry.begin_separation(job)))
        return JSONResponse({"recording": entry.id, "name": entry.name, "job": job.id})

    @with_session
    async def _separate(self, request: Request, session: Session) -> Response:
        """Separate a recording again, or a rendered scene."""
        entry = entry_of(session.recordings, request.path_params["recording"])
        task = self._separation_task(session, parse_recording_options(await self.json(request)))
        if entry.job is not None and not entry.job.ended:
            raise InputError(
                "recording must be separated completely before it is separated again, got a "
                "running job. Cancel it first."
            )
        with self.pool.reserve():
            return self._submit_separation(session, entry, task)

    @with_session
    async def _select(self, request: Request, session: Session) -> Response:
        """Separate a part of a recording as a recording of its own."""
        whole = entry_of(session.recordings, request.path_params["recording"])
        values = await self.json(request)
        start, end = parse_selection(values)
        task = self._separation_task(session, parse_recording_options(values))
        with self.pool.reserve():
            entry = session.new_selection(whole, start, end)
            return self._submit_separation(session, entry, task)

    @with_session
    async def _rename(self, request: Request, session: Session) -> Response:
        entry = entry_of(session.recordings, request.path_params["recording"])
        names = parse_names((await self.json(request)).get("names"))
        return JSONResponse({"names": [one["label"] for one in entry.rename_sources(names)]})

    @with_session
    async def _remove_recording(self, request: Request, session: Session) -> Response:
        entry = entry_of(session.recordings, request.path_params["recording"])
        if entry.job is not None:
            self.pool.cancel(entry.job)
        session.remove(entry)
        return JSONResponse({})

    @with_session
    async def _file(self, request: Request, session: Session) -> Response:
        entry = entry_of(session.recordings, request.path_params["recording"])
        name = request.path_params["name"]
        path = entry.served_file(name)
        if path is None:
            raise NotFoundError
        return FileResponse(path, filename=entry.saved_names()[name])

    # --- scenes --------------------------------------------------------------------------------

    @with_session
    async def _add_sound(self, request: Request, session: Session) -> Response:
        sound_id, folder = session.new_folder("sound")
        name = Path(display_name(request.query_params.get("name", ""))).stem
        await self._store_upload(request, folder / "upload")
        session.sounds[sound_id] = (name, folder / "upload")
        return JSONResponse({"sound": sound_id, "name": name})

    @with_session
    async def _add_scene(self, request: Request, session: Session) -> Response:
        options = parse_scene_options(await self.json(request))
        for talker in options["talkers"]:
            if "sound" in talker:
                name, file = entry_of(session.sounds, talker.pop("sound"))
                talker |= {"name": name, "file": str(file)}
        head = entry_of(session.heads, options.pop("head"))
        if not head.ready or (head.source is None and not head.built_in):
            raise InputError(
                "head must have measured responses to render a scene, got an atlas alone. Drop the "
                ".sofa file that it was learned from, or select the simulated head."
            )
        with self.pool.reserve():
            entry = session.new_recording(display_name(options.pop("name")), "mixture.wav")
            source = None if head.source is None else str(head.source)
            task = {"task": "render", "folder": str(entry.folder), "head": source, **options}
            entry.job = self.pool.submit(session.register_job(Job(task)))
        return JSONResponse({"recording": entry.id, "name": entry.name, "job": entry.job.id})

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

    async def _store_upload(self, request: Request, path: Path) -> None:
        limit = self.limits.upload_bytes
        declared = request.headers.get("content-length", "0")
        check_size(int(declared) if declared.isdecimal() else limit + 1, limit)
        size = await store_body(request.stream(), path, limit)
        if not size:
            path.unlink()
            raise InputError("file must not be empty, got 0 bytes. Choose another.")


def _own_head(session: Session, request: Request) -> HeadEntry:
    """Return the head in a path; those that come with the studio cannot be changed."""
    head = entry_of(session.heads, request.path_params["head"])
    if not head.own:
        raise InputError("head must be one that you have added, got one of the studio. Choose it.")
    return head


def _folder(session: Session, request: Request) -> tuple[HeadEntry, Uploads]:
    """Return the folder of calibration recordings in a path."""
    head = entry_of(session.heads, request.path_params["head"])
    if head.uploads is None:
        raise NotFoundError
    return head, head.uploads


def _static_files() -> dict[str, bytes]:
    """Return the files of the page by name; no other files are served."""
    folder = files("earatlas.studio").joinpath("static")
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    colours = "".join(f"--source{m + 1}:{colour};" for m, colour in enumerate(COLOURS))
    contents["shared.css"] = f"{shared_css()}:root{{{colours}}}".encode()
    return {name: data for name, data in contents.items() if Path(name).suffix in _MEDIA_TYPES}
