"""`earatlas listen --adapt`: adapt an atlas of many heads to the listener while the stream runs.

Input: the blocks of a stream, and whether one source alone was active in each. Output: an adapted
atlas, whenever one improves on the atlas of the population. Adaptation takes seconds, so it runs in
a thread of its own; the stream continues with the previous atlas until it is finished.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from earatlas.atlas import Atlas
from earatlas.cli.adaptation_text import format_adaptation, format_segments
from earatlas.cli.atlas_argument import LISTENER_FILE
from earatlas.cli.console import print_note
from earatlas.cli.outputs import OutputFiles, is_atlas
from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.files import output_folder
from earatlas.population.adaptation_report import Adaptation
from earatlas.population_atlas import SEGMENT_SECONDS
from earatlas.types import Array

__all__ = ["StreamAdaptation", "StreamAdaptationSettings"]


# Evidence: docs/figures/settings/streaming.md, "listen_adapt".
@dataclass(frozen=True, slots=True)
class StreamAdaptationSettings:
    """Which sound of a stream is adapted to, and how often."""

    segment_seconds: float = SEGMENT_SECONDS  # length of a segment
    min_seconds: float = 1.5  # a source that ends earlier does not make a segment
    interval_segments: int = 5  # new segments between two adaptations
    max_segments: int = 60  # most recent segments that are used: 3 minutes


class StreamAdaptation:
    """Collects the sound of single sources, and adapts to it in a thread."""

    def __init__(
        self,
        atlas: Atlas,
        rate: int,
        *,
        wait: bool = False,
        settings: StreamAdaptationSettings | None = None,
    ) -> None:
        """Adapt `atlas`; `wait`: until an adaptation is finished, for input without a clock."""
        self._atlas, self._rate, self._wait = atlas, rate, wait
        self._settings = settings or StreamAdaptationSettings()
        self._segments: deque[Audio] = deque(maxlen=self._settings.max_segments)
        self._blocks: list[Array] = []  # (2, n) of the current segment
        self._source: int | None = None  # of these blocks
        self._n_new = 0  # segments since the last adaptation
        self._started = False  # whether there was an adaptation, finished or not
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[tuple[Atlas, Adaptation]] | None = None
        self.atlas = atlas  # adapted, or that of the population
        self.adaptation: Adaptation | None = None  # the last one that is finished

    @classmethod
    def of(
        cls, atlas: Atlas, rate: int, folder: Path | None, *, wait: bool, force: bool
    ) -> StreamAdaptation:
        """Return the adaptation of a command; refuse a single head and files of others."""
        atlas.adapt([])  # raises an error that says which atlas can be adapted
        if folder is not None:
            path = folder / LISTENER_FILE
            OutputFiles(force=force).claim_in_folder(path, is_atlas(path))
        return cls(atlas, rate, wait=wait)

    def add(self, block: Array, source: int | None) -> Atlas | None:
        """Add a block (2, n); return the atlas if it changed.

        `source` is the id of the one source that is active; None: none or several are. A segment
        consists of blocks of one source.
        """
        if source is not None:
            if source != self._source:
                self._end_segment()
            self._source = source
            self._blocks.append(block)
            if self._seconds >= self._settings.segment_seconds:
                self._end_segment()
        if self._pending is None and self._n_new >= self._settings.interval_segments:
            self._n_new, self._started = 0, True
            self._pending = self._pool.submit(self._atlas.adapt, list(self._segments))
        if self._pending is None or not (self._wait or self._pending.done()):
            return None
        return self._take(self._pending)

    def _take(self, pending: Future[tuple[Atlas, Adaptation]]) -> Atlas | None:
        """Wait for an adaptation, and print its verdict; return the atlas if it changed."""
        try:
            adapted, self.adaptation = pending.result()
        except InputError as error:
            self._pending = None
            print_note("[yellow]not adapted:[/]", f"{error} The atlas is used as it is.")
            return None
        self._pending = None
        before, self.atlas = self.atlas, adapted
        self._print()
        return None if adapted is before else adapted

    @property
    def _seconds(self) -> float:
        """Length of the current segment."""
        n: int = sum(block.shape[1] for block in self._blocks)
        return n / self._rate

    def _end_segment(self) -> None:
        """End the current segment, and keep it if it is long enough."""
        if self._seconds >= self._settings.min_seconds:
            self._segments.append(Audio(np.concatenate(self._blocks, axis=1), self._rate))
            self._n_new += 1
        self._blocks = []

    def _print(self) -> None:
        """Print the verdict of the last adaptation."""
        adaptation = self.adaptation
        if adaptation is None:
            return
        if adaptation.adapted:
            print_note("[cyan]adapted:[/]", f"{format_adaptation(adaptation, 1)}.")
        else:
            text = f"{adaptation.verdict} ({format_segments(adaptation)})."
            print_note("[yellow]not adapted:[/]", f"{text} The atlas is used as it is.")

    def close(self, folder: Path | None) -> None:
        """End; save an adapted atlas in the folder of the results, if there is one.

        An adaptation that is still running is awaited. A keyboard interrupt ends the wait.
        """
        try:
            if self._pending is not None:
                self._take(self._pending)
        except KeyboardInterrupt:
            print_note("[yellow]not adapted:[/]", "The last adaptation was not finished.")
        self._pool.shutdown(wait=False, cancel_futures=True)
        if not self._started:
            print_note(
                "[yellow]not adapted:[/]",
                f"{len(self._segments)} segments with one source alone were found, at least "
                f"{self._settings.interval_segments} are needed. The atlas was used as it is.",
            )
        elif self.adaptation is not None and self.adaptation.adapted and folder is not None:
            with output_folder(folder):
                self.atlas.save(folder / LISTENER_FILE)
