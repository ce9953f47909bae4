"""Handlers of heads: add, learn, describe, rename, save and remove them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from earatlas.errors import InputError
from earatlas.studio.handlers import Handlers, NotFoundError, entry_of, with_session
from earatlas.studio.jobs import Job
from earatlas.studio.requests import parse_wrong_way
from earatlas.studio.safety import TooLargeError, display_name
from earatlas.studio.session import HeadEntry, Session, Uploads

__all__ = ["HeadHandlers"]


class HeadHandlers(Handlers):
    """The part of the studio that serves heads."""

    @with_session
    async def list_heads(self, request: Request, session: Session) -> Response:
        """Return the heads that can be selected, or are being learned."""
        session.remove_abandoned_heads()
        return JSONResponse({"heads": [head.to_dict() for head in session.heads.values()]})

    @with_session
    async def add_head(self, request: Request, session: Session) -> Response:
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
                await self.store_upload(request, file)
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
    async def describe_head(self, request: Request, session: Session) -> Response:
        """Describe the atlas of a head."""
        head = entry_of(session.heads, request.path_params["head"])
        task = {"task": "describe", "atlas": str(head.atlas)}
        with self.pool.reserve():
            job = self.pool.submit(session.register_job(Job(task)))
        return JSONResponse({"job": job.id})

    @with_session
    async def change_head(self, request: Request, session: Session) -> Response:
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
    async def head_file(self, request: Request, session: Session) -> Response:
        """Return the atlas of a head, to be used by other commands."""
        head = _own_head(session, request)
        if not head.ready:
            raise NotFoundError
        return FileResponse(head.atlas, filename=f"{Path(head.name).stem}.atlas")

    @with_session
    async def add_folder(self, request: Request, session: Session) -> Response:
        """Add a folder of calibration recordings, whose files are uploaded one by one."""
        name = display_name(request.query_params.get("name", ""))
        head_id, folder = session.new_head()
        session.heads[head_id] = HeadEntry(
            head_id, name, folder / "head.atlas", folder / "positions.csv", uploads=Uploads(),
            own=True,
        )  # fmt: skip
        return JSONResponse({"head": head_id})

    @with_session
    async def add_folder_file(self, request: Request, session: Session) -> Response:
        """Add a recording, or the table, to a folder."""
        head, uploads = _folder(session, request)
        if uploads.n_started >= self.limits.folder_files:
            raise TooLargeError(
                f"folder must have at most {self.limits.folder_files} files in the studio, got "
                "more. Use the command `earatlas learn`."
            )
        browser_name = request.query_params.get("name", "")
        is_table = browser_name.lower().endswith(".csv")
        name = uploads.new_name(".csv" if is_table else ".sound")
        await self.store_upload(request, head.atlas.with_name(name))
        if is_table:
            uploads.table = name
        else:
            uploads.names[browser_name] = name
        return JSONResponse({"n_sounds": len(uploads.names)})

    @with_session
    async def learn_folder(self, request: Request, session: Session) -> Response:
        """Learn a folder whose files were uploaded."""
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
