"""Handlers of ZIP files of recordings: draw their pictures, then send all of their files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from earatlas.errors import InputError
from earatlas.studio.archives import PICTURES, archive_chunks, unique_stems
from earatlas.studio.handlers import Handlers, entry_of, with_session
from earatlas.studio.jobs import Job
from earatlas.studio.requests import parse_recording_ids
from earatlas.studio.session import RecordingEntry, Session

__all__ = ["ArchiveHandlers"]


class ArchiveHandlers(Handlers):
    """The part of the studio that saves several files at once."""

    @with_session
    async def draw_pictures(self, request: Request, session: Session) -> Response:
        """Draw the pictures of recordings, which their archive then contains."""
        ids = parse_recording_ids((await self.json(request)).get("recordings"))
        recordings = [
            {"folder": str(folder), "name": entry.name, "mixture": str(folder / "mixture.wav")}
            for entry, folder in _finished(session, ids)
        ]
        with self.pool.reserve():
            job = self.pool.submit(
                session.register_job(Job({"task": "pictures", "recordings": recordings}))
            )
        return JSONResponse({"job": job.id})

    @with_session
    async def archive(self, request: Request, session: Session) -> Response:
        """Send the files of recordings as one ZIP file, made while it is sent."""
        ids = parse_recording_ids(request.query_params.get("recordings", "").split(","))
        entries = _finished(session, ids)
        stems = unique_stems([entry.name for entry, _ in entries])
        files: dict[str, Path] = {}
        for stem, (entry, folder) in zip(stems, entries, strict=True):
            top = f"{stem}/" if len(entries) > 1 else ""
            saved = entry.saved_names(stem)
            files |= {f"{top}{saved[name]}": path for name, path in entry.files()}
            pictures = sorted((folder / PICTURES).glob("*.*"))
            files |= {f"{top}{PICTURES}/{picture.name}": picture for picture in pictures}
        name = stems[0] if len(stems) == 1 else "recordings"
        encoded = quote(f"{name}.zip", safe="")
        headers = {"content-disposition": f"attachment; filename*=utf-8''{encoded}"}
        chunks = archive_chunks(files)
        return StreamingResponse(chunks, media_type="application/zip", headers=headers)


def _finished(session: Session, ids: list[str]) -> list[tuple[RecordingEntry, Path]]:
    """Return recordings with the folders of their results; all must be separated."""
    found = []
    for one in ids:
        entry = entry_of(session.recordings, one)
        job = entry.shown_job
        if job is None or job.request["task"] != "separate" or job.state != "done":
            raise InputError(
                f"recordings must be separated completely, got '{entry.name}', which is not. Wait "
                "until it is done, or leave it out."
            )
        found.append((entry, Path(job.request["folder"])))
    return found
