"""Handlers of recordings and scenes: upload or render, separate, name, send and remove them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from earatlas.errors import InputError
from earatlas.studio.handlers import Handlers, NotFoundError, entry_of, with_session
from earatlas.studio.jobs import Job
from earatlas.studio.requests import (
    parse_names,
    parse_recording_options,
    parse_scene_options,
    parse_selection,
)
from earatlas.studio.safety import display_name
from earatlas.studio.session import RecordingEntry, Session

__all__ = ["RecordingHandlers"]


class RecordingHandlers(Handlers):
    """The part of the studio that serves recordings."""

    @with_session
    async def list_recordings(self, request: Request, session: Session) -> Response:
        """Return the recordings that were or are being separated, the newest first."""
        entries = [entry for entry in session.recordings.values() if entry.is_separated]
        return JSONResponse({"recordings": [entry.to_dict() for entry in entries[::-1]]})

    @with_session
    async def add_recording(self, request: Request, session: Session) -> Response:
        """Upload and separate a recording."""
        task = self._separation_task(session, parse_recording_options(request.query_params))
        with self.pool.reserve():
            entry = session.new_recording(display_name(request.query_params.get("name", "")))
            try:
                await self.store_upload(request, entry.file)
            except BaseException:
                session.remove(entry)
                raise
            return self._submit_separation(session, entry, task)

    def _separation_task(self, session: Session, options: dict[str, Any]) -> dict[str, Any]:
        """Return the request of a separation with the atlas of the selected head."""
        head = entry_of(session.heads, options.pop("head") or session.default_head)
        if not head.ready:
            raise InputError("This head is still being learned. Wait until it is ready.")
        return {"task": "separate", "atlas": str(head.atlas), "head": head.name, **options}

    def _submit_separation(
        self, session: Session, entry: RecordingEntry, task: dict[str, Any]
    ) -> Response:
        span = None if entry.span is None else list(entry.span)
        job = Job({**task, "file": str(entry.file), "name": entry.name, "span": span})
        self.pool.submit(session.register_job(job, *entry.begin_separation(job)))
        return JSONResponse({"recording": entry.id, "name": entry.name, "job": job.id})

    @with_session
    async def separate(self, request: Request, session: Session) -> Response:
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
    async def select(self, request: Request, session: Session) -> Response:
        """Separate a part of a recording as a recording of its own."""
        whole = entry_of(session.recordings, request.path_params["recording"])
        values = await self.json(request)
        start, end = parse_selection(values)
        task = self._separation_task(session, parse_recording_options(values))
        with self.pool.reserve():
            entry = session.new_selection(whole, start, end)
            return self._submit_separation(session, entry, task)

    @with_session
    async def rename(self, request: Request, session: Session) -> Response:
        """Name the sources of a recording, also in its report, tables and pictures."""
        entry = entry_of(session.recordings, request.path_params["recording"])
        names = parse_names((await self.json(request)).get("names"))
        with self.pool.reserve():
            previous = entry.renaming
            replaced = [] if previous is None else [previous]
            job = self.pool.submit(session.register_job(entry.rename_sources(names), *replaced))
        return JSONResponse({"names": names, "job": job.id})

    @with_session
    async def remove_recording(self, request: Request, session: Session) -> Response:
        """Remove a recording and its files."""
        entry = entry_of(session.recordings, request.path_params["recording"])
        if entry.job is not None:
            self.pool.cancel(entry.job)
        session.remove(entry)
        return JSONResponse({})

    @with_session
    async def file(self, request: Request, session: Session) -> Response:
        """Send a file of a result."""
        entry = entry_of(session.recordings, request.path_params["recording"])
        name = request.path_params["name"]
        path = entry.served_file(name)
        if path is None:
            raise NotFoundError
        return FileResponse(path, filename=entry.saved_names()[name])

    @with_session
    async def add_sound(self, request: Request, session: Session) -> Response:
        """Upload a dry sound for a scene."""
        sound_id, folder = session.new_folder("sound")
        name = Path(display_name(request.query_params.get("name", ""))).stem
        await self.store_upload(request, folder / "upload")
        session.sounds[sound_id] = (name, folder / "upload")
        return JSONResponse({"sound": sound_id, "name": name})

    @with_session
    async def add_scene(self, request: Request, session: Session) -> Response:
        """Render a scene, which can then be separated."""
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
