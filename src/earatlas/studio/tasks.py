"""What a worker can do, by name.

In: an order, as JSON values, and sound as bytes. Out: JSON values for the page, and sound. Paths in
an order come from the server, which chose them; none comes from a browser.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from earatlas.atlas import Atlas
from earatlas.errors import EaratlasWarning, InputError
from earatlas.studio import heads, recordings, scenes
from earatlas.studio.live import Listening
from earatlas.studio.progress import Teller
from earatlas.studio.session import BUILT_IN
from earatlas.studio.story import story

__all__ = ["Tasks"]

_KEPT = 2  # atlases in memory: some 10 MB each
_Order = dict[str, Any]


@lru_cache(maxsize=_KEPT)
def _loaded(path: str) -> Atlas:
    """An atlas, ready for mixtures."""
    atlas = Atlas.load(path)
    _ = atlas.separator
    return atlas


def _as_known(order: _Order, text: str) -> str:
    """A sentence with the user's name of a file where it has the path that is ours."""
    paths = [order[key] for key in ("file", "source") if order.get(key)]
    if "names" in order:  # of a folder, whose table is written anew
        paths.append(str(Path(order["source"]).with_name(heads.TABLE)))
    if "folder" in order:
        paths.append(str(Path(order["folder"]) / recordings.MIXTURE))
    for path in paths:
        text = text.replace(path, str(order.get("name", "the file")))
    return text


class Tasks:
    """The orders of one worker."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._teller = Teller(say)
        self._listening: Listening | None = None
        self._known: dict[str, Callable[[_Order], dict[str, Any]]] = {
            "warm": self._warm,
            "learn": lambda order: heads.learned(order, self._teller),
            "describe": lambda order: heads.described(Path(order["atlas"])),
            "separate": lambda order: recordings.separated(
                order, _loaded(order["atlas"]), self._teller
            ),
            "render": lambda order: scenes.rendered(order, self._teller),
            "story": lambda order: story(_loaded(str(BUILT_IN)), self._teller),
            "live_begin": self._begin,
        }

    def do(self, name: str, order: _Order, data: bytes) -> tuple[dict[str, Any], bytes]:
        """What comes of an order, with the warnings that were given on the way."""
        if name == "live_push":
            assert self._listening is not None
            return self._listening.push(data, order["monitor"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", EaratlasWarning)

            def warned() -> list[str]:
                told = [str(w.message) for w in caught if issubclass(w.category, EaratlasWarning)]
                return list(dict.fromkeys(_as_known(order, text) for text in told))

            self._teller.warned = warned
            try:
                done = self._known[name](order)
            except InputError as error:
                raise InputError(_as_known(order, str(error))) from None
            return {**done, "warnings": warned()}, b""

    def _warm(self, order: _Order) -> dict[str, Any]:
        """Import what is needed, so that the first recording does not wait for it."""
        recordings.tried(_loaded(str(BUILT_IN)))
        return {}

    def _begin(self, order: _Order) -> dict[str, Any]:
        self._listening = Listening(_loaded(order["atlas"]), int(order["rate"]))
        return {}
