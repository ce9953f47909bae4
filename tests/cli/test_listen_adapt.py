"""`listen --adapt`: segments of single sources, adaptation in the background, and refusals."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.cli.listen_adapt import StreamAdaptation, StreamAdaptationSettings
from earatlas.population.adaptation_report import Adaptation, AdaptationVerdict
from earatlas.population.population import Listener

RATE = 100
SETTINGS = StreamAdaptationSettings(
    segment_seconds=3.0, min_seconds=1.5, interval_segments=2, max_segments=3
)


class StubAtlas:
    """An atlas whose adaptation has a given verdict, and which remembers the recordings."""

    def __init__(self, verdict: AdaptationVerdict, error: BaseException | None = None) -> None:
        self.verdict, self.calls, self.saved = verdict, [], []  # type: ignore[var-annotated]
        self.error = error  # raised by every adaptation
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.adapted_atlas = object.__new__(StubAtlas)
        self.adapted_atlas.saved = self.saved

    def adapt(self, recordings: Sequence[ea.Audio]) -> tuple[Any, Adaptation]:
        """Return the adapted atlas, or this one."""
        self.calls.append([round(one.seconds, 2) for one in recordings])
        assert self.may_finish.wait(60)
        if self.error is not None:
            raise self.error
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


def test_adaptation_that_runs_at_the_end_is_awaited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stream continues while an adaptation runs; the end takes its result."""
    stub = StubAtlas(AdaptationVerdict.ADAPTED)
    stub.may_finish.clear()
    adaptation = StreamAdaptation(cast(Atlas, stub), RATE, settings=SETTINGS)
    assert push(adaptation, (1, 6), (2, 6), (3, 6)) == []
    assert adaptation.adaptation is None
    threading.Timer(0.05, stub.may_finish.set).start()
    adaptation.close(tmp_path)
    assert stub.calls == [[3.0, 3.0]]
    assert stub.saved == [tmp_path / "listener.atlas"]
    text = capsys.readouterr().err
    assert text.startswith("adapted: 2 usable segments")
    assert "not adapted" not in text


@pytest.mark.parametrize("wait", [False, True])
def test_refused_recordings_do_not_end_the_stream(
    wait: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An input error of the adaptation becomes a note, and the stream keeps its atlas."""
    stub = StubAtlas(AdaptationVerdict.ADAPTED, ea.InputError("recordings must be long, got 1 s."))
    adaptation = StreamAdaptation(cast(Atlas, stub), RATE, wait=wait, settings=SETTINGS)
    assert push(adaptation, (1, 6), (2, 6)) == []
    adaptation.close(tmp_path)
    assert adaptation.atlas is cast(Atlas, stub)
    assert stub.saved == []
    note = "not adapted: recordings must be long, got 1 s. The atlas is used as it is."
    assert capsys.readouterr().err.split("\n") == [note, ""]


def test_interrupted_adaptation_is_reported_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second interruption while the end waits is not reported as too few segments."""
    stub = StubAtlas(AdaptationVerdict.ADAPTED, KeyboardInterrupt())
    stub.may_finish.clear()
    adaptation = StreamAdaptation(cast(Atlas, stub), RATE, settings=SETTINGS)
    push(adaptation, (1, 6), (2, 6))
    stub.may_finish.set()
    adaptation.close(tmp_path)
    assert capsys.readouterr().err == "not adapted: The last adaptation was not finished.\n"


def test_a_single_head_is_refused_at_once(tmp_path: Path) -> None:
    """Before the stream begins, an error says which atlas can be adapted."""
    with pytest.raises(ea.InputError, match="must be of many heads"):
        StreamAdaptation.of(ea.example_atlas(), RATE, tmp_path, wait=False, force=False)
    assert not list(tmp_path.iterdir())


def test_streams_continue_with_another_head(rng: np.random.Generator) -> None:
    """The head of a localizer and of a stream can be replaced between two blocks."""
    atlas = ea.people_atlas()
    J = atlas.population.n_coordinates
    adapted = atlas.for_listener(Listener(2 * rng.normal(size=J), 1e-3 * np.eye(J)))
    noise = 0.1 * rng.normal(size=8000)
    samples = np.stack([noise, 0.5 * np.roll(noise, 6)])  # from the left
    localizer, live = atlas.localizer(), atlas.live()
    localizer.push(samples)
    live.push(samples)
    before = localizer.where()
    localizer.use_head(adapted)
    live.use_head(adapted.separator)
    after = localizer.where()
    assert before.observed_share == after.observed_share > 0
    x = after.direction[None]
    change = after.posterior.log_density(x) - before.posterior.log_density(x)
    assert abs(change[0]) > 0.5
    from_start = adapted.localizer()
    from_start.push(samples)
    np.testing.assert_array_equal(from_start.where().direction, after.direction)
    localizer.push(samples)
    assert live.push(samples).time == 1.0
