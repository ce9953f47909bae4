"""Where the one sound of a recording comes from: one pass over it, in constant memory."""

from __future__ import annotations

from earatlas.hearing.layout import Threshold
from earatlas.hearing.recording import Recording
from earatlas.learning.learned import LearnedHead
from earatlas.localization.answer import Localization
from earatlas.localization.motion import YawLike, checked_yaw
from earatlas.localization.stream import Localizer

__all__ = ["localize"]


def localize(
    head: LearnedHead,
    recording: Recording,
    *,
    threshold: Threshold | None = None,
    yaw: YawLike = 0.0,
    again: bool = False,
) -> Localization:
    """What is believed after all of the recording; `again`: it has been read and warned of."""
    turned = checked_yaw(yaw, head.space)
    turned.check_end(recording.seconds)
    localizer = Localizer(head, threshold=threshold, yaw=turned)
    for block in recording.centred().blocks(head.layout, again=again):
        localizer.push(block.samples)
    return localizer.finish()
