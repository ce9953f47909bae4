"""The batch job that localizes recordings.

It is in a file of its own, because `earatlas localize` needs nothing of the separation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from earatlas.atlas import Atlas
from earatlas.batch.job import BatchJob
from earatlas.errors import InputError
from earatlas.features.audio_files import audio_seconds
from earatlas.features.layout import Threshold
from earatlas.geometry.head_yaw import Yaw
from earatlas.types import Progress

__all__ = ["LocalizationJob", "RecordingJob"]


@dataclass(frozen=True)
class RecordingJob(BatchJob):
    """A job that processes recordings with an atlas."""

    atlas: Atlas
    # Further fields of the answers, which say how the atlas was chosen; they change nothing else.
    atlas_fields: Mapping[str, str] = field(
        default_factory=dict, kw_only=True, metadata={"setting": False}
    )

    def workload(self, file: Path) -> float:
        """Return the duration of the recording in seconds, or 0 if it cannot be read."""
        try:
            return audio_seconds(file)
        except InputError:  # reported when the file is processed
            return 0.0


@dataclass(frozen=True)
class LocalizationJob(RecordingJob):
    """Localize the single source of each recording."""

    channels: tuple[int, int] = (0, 1)
    threshold: Threshold | None = None
    yaw: Yaw = field(default_factory=lambda: Yaw.constant(0.0))

    command: ClassVar[str] = "localize"

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Return the answer of `earatlas localize --json`."""
        start = time.perf_counter()
        localization = self.atlas.localize_file(
            file, channels=self.channels, threshold=self.threshold, yaw=self.yaw
        )
        answer = {"file": str(file), **self.atlas_fields, **localization.to_dict()}
        answer["seconds"] = round(time.perf_counter() - start, 4)
        answer["recording_seconds"] = round(audio_seconds(file), 3)
        return answer

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return no files: the answer is in the sidecar."""
        return []
