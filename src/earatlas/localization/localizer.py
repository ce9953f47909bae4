"""Where the one sound of a recording comes from: one pass over it, in constant memory."""

from __future__ import annotations

from earatlas.features.layout import Threshold
from earatlas.features.recording import Recording
from earatlas.localization.head_motion import YawLike, checked_yaw
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.result import Localization
from earatlas.localization.streaming_localizer import Localizer

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
