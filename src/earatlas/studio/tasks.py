"""The tasks of a worker by name.

The inputs are a request as JSON values and sound as bytes, the outputs JSON values for the page and
sound. Paths in a request are chosen by the server and never come from a browser.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from earatlas.atlas import Atlas
from earatlas.errors import EaratlasWarning, InputError
from earatlas.packaged_atlases import EXAMPLE_ATLAS, PEOPLE_ATLAS
from earatlas.studio import heads, recordings, scenes
from earatlas.studio.explainer import explainer
from earatlas.studio.live import LiveListener
from earatlas.studio.pictures import write_pictures
from earatlas.studio.progress import ProgressReporter

__all__ = ["Tasks"]

_Request = dict[str, Any]


@lru_cache(maxsize=2)  # an atlas takes about 10 MB of memory
def _load_atlas(path: str) -> Atlas:
    """Return an atlas whose separator is initialized."""
    atlas = Atlas.load(path)
    _ = atlas.separator
    return atlas


def _page_text(request: _Request, text: str) -> str:
    """Return a message for the page, with the user's file names."""
    paths = [request[key] for key in ("file", "source") if request.get(key)]
    if "names" in request:  # a folder, whose table was rewritten
        paths.append(str(Path(request["source"]).with_name(heads.TABLE)))
    if "folder" in request:
        paths.append(str(Path(request["folder"]) / recordings.MIXTURE))
    for path in paths:
        text = text.replace(path, str(request.get("name", "the file")))
    return text


class Tasks:
    """Runs the requests of one worker."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._reporter = ProgressReporter(send)
        self._listener: LiveListener | None = None
        self._tasks: dict[str, Callable[[_Request], dict[str, Any]]] = {
            "warm_up": self._warm_up,
            "learn": lambda request: heads.learn_uploaded_head(request, self._reporter),
            "describe": lambda request: heads.describe_atlas(Path(request["atlas"])),
            "separate": lambda request: recordings.separate_recording(
                request, _load_atlas(request["atlas"]), self._reporter
            ),
            "rename": lambda request: recordings.rename_sources(request, self._reporter),
            "render": lambda request: scenes.render(request, self._reporter),
            "explainer": lambda request: explainer(
                _load_atlas(str(EXAMPLE_ATLAS)), Path(request["folder"]), self._reporter
            ),
            "pictures": lambda request: write_pictures(request, self._reporter),
            "live_begin": self._live_begin,
        }

    def run(self, name: str, request: _Request, data: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the result of a task, with the warnings that it gave, and its bytes."""
        if name == "live_push":
            assert self._listener is not None
            return self._listener.push(data, request["monitor"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", EaratlasWarning)

            def page_warnings() -> list[str]:
                messages = [w.message for w in caught]
                texts = [m.message for m in messages if isinstance(m, EaratlasWarning)]
                return list(dict.fromkeys(_page_text(request, text) for text in texts))

            self._reporter.warnings = page_warnings
            try:
                result = self._tasks[name](request)
            except InputError as error:
                raise InputError(_page_text(request, error.message)) from None
            return {**result, "warnings": page_warnings()}, b""

    def _warm_up(self, request: _Request) -> dict[str, Any]:
        """Import libraries and fill caches before the first recording."""
        recordings.warm_up(_load_atlas(str(PEOPLE_ATLAS)))
        return {}

    def _live_begin(self, request: _Request) -> dict[str, Any]:
        self._listener = LiveListener(_load_atlas(request["atlas"]), int(request["rate"]))
        return {}
