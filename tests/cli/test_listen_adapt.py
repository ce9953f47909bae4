"""`listen --adapt`: segments of single sources, adaptation in the background, and refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.cli.listen_adapt import StreamAdaptation, StreamAdaptationSettings
from earatlas.population.adaptation_report import Adaptation, AdaptationVerdict

RATE = 100
SETTINGS = StreamAdaptationSettings(
    segment_seconds=3.0, min_seconds=1.5, interval_segments=2, max_segments=3
)


class StubAtlas:
    """An atlas whose adaptation has a given verdict, and which remembers the recordings."""

    def __init__(self, verdict: AdaptationVerdict) -> None:
        self.verdict, self.calls, self.saved = verdict, [], []  # type: ignore[var-annotated]
        self.adapted_atlas = object.__new__(StubAtlas)
        self.adapted_atlas.saved = self.saved

    def adapt(self, recordings: Sequence[ea.Audio]) -> tuple[Any, Adaptation]:
        """Return the adapted atlas, or this one."""
        self.calls.append([round(one.seconds, 2) for one in recordings])
        adaptation = Adaptation(self.verdict, cast(Any, None), len(recordings), 1.0, 0.5, 0.4)
        return (self.adapted_atlas if adaptation.adapted else self), adaptation

    def save(self, path: Path) -> None:
        """Remember the path."""
        self.saved.append(path)


def push(adaptation: StreamAdaptation, *sources: tuple[int | None, int]) -> list[object]:
    """Push blocks of 0.5 s: a number of blocks of each source; return all new atlases."""
    block = np.zeros((2, RATE // 2))
    found = [adaptation.add(block, source) for source, n in sources for _ in range(n)]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("verdict", [AdaptationVerdict.ADAPTED, AdaptationVerdict.NO_GAIN])
def test_segments_are_of_one_source_and_old_ones_are_dropped(
    verdict: AdaptationVerdict, tmp_path: Path
) -> None:
    """Silence and several sources do not count; a change of the source ends a segment."""
    stub = StubAtlas(verdict)
    adaptation = StreamAdaptation(cast(Atlas, stub), RATE, wait=True, settings=SETTINGS)
    assert push(adaptation, (1, 4), (None, 2), (1, 2), (2, 2), (3, 3), (None, 9)) == []
    assert stub.calls == []  # 3 s of source 1; 1 s of source 2 is too short; 3 has not ended
    adapted = verdict is AdaptationVerdict.ADAPTED
    assert push(adaptation, (4, 1)) == [stub.adapted_atlas] * adapted
    assert stub.calls == [[3.0, 1.5]]
    assert push(adaptation, (5, 6), (6, 6)) == []  # the same atlas again
    assert stub.calls[1:] == [[1.5, 3.0, 3.0]]
    adaptation.close(tmp_path)
    assert stub.saved == [tmp_path / "listener.atlas"] * adapted


def test_a_single_head_is_refused_at_once(tmp_path: Path) -> None:
    """Before the stream begins, an error says which atlas can be adapted."""
    with pytest.raises(ea.InputError, match="must be of many heads"):
        StreamAdaptation.of(ea.example_atlas(), RATE, tmp_path, wait=False, force=False)
    assert not list(tmp_path.iterdir())


def test_streams_continue_with_another_head(rng: np.random.Generator) -> None:
    """The head of a localizer and of a stream can be replaced between two blocks."""
    atlas = ea.people_atlas()
    adapted = atlas.for_listener(atlas.population.unknown_listener)
    samples = 0.1 * rng.normal(size=(2, 8000))
    localizer, live = atlas.localizer(), atlas.live()
    for head in (atlas, adapted):
        localizer.use_head(head)
        live.use_head(head.separator)
        localizer.push(samples)
        report = live.push(samples)
    assert localizer.where().observed_share > 0
    assert report.time == 1.0
