"""Reports of a live stream for tests of formats and protocols."""

import numpy as np

from earatlas.streaming.report import LiveReport, LiveSource


def live_source(
    number: int,
    direction: tuple[float, ...] = (30.0, -5.0),
    *,
    age: float = 0.0,
    since: float = 0.0,
    radius: float = 4.0,
    confirmed: bool = True,
) -> LiveSource:
    """Return a tracked source, which is active if it was detected in the last 0.4 s."""
    return LiveSource(
        number, np.array(direction), radius, since, age, -20.0, confirmed, age < 0.41, 0.0
    )


def conversation() -> list[LiveReport]:
    """Return 2 s of reports every 0.05 s: track 1 speaks at both ends, track 4 from 0.5 to 1.5 s.

    Track 1 began at 0.1 s and is confirmed at 0.3 s. Track 4 has no known direction before 1 s.
    """
    reports = []
    for step in range(1, 41):
        time = 0.05 * step
        spoke = time if time < 0.8 or time > 1.6 else 0.8
        sources = [live_source(1, age=time - spoke, since=0.1, confirmed=time > 0.29)]
        ended: tuple[LiveSource, ...] = ()
        if 0.49 < time < 1.49:
            radius = 150.0 if time < 0.99 else 6.0
            sources.append(live_source(4, (-120.4, 20.6), since=0.5, radius=radius))
        elif abs(time - 1.5) < 0.01:
            ended = (live_source(4, (-120.4, 20.6), since=0.5),)
        reports.append(LiveReport(time, 0, tuple(sources), ended))
    return reports
