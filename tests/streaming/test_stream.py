"""Live stream: independence of the block size, perfect reconstruction, and stable track ids."""

import copy
import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.angles import great_circle_error, to_vectors
from earatlas.geometry.lateral_angle import lateral_angles
from earatlas.hrtf.head import ImpulseResponses
from earatlas.localization.diagnostics import DoubtKind
from earatlas.parts import complete
from earatlas.streaming.filterbank import AnalysisFrames, Filterbank, OverlapAdd
from earatlas.streaming.hops import (
    Hop,
    OutputSettings,
    Resampler,
    ResamplerSettings,
    StreamInput,
    StreamOutput,
    _Position,
    _position_state,
)
from earatlas.streaming.online_demixing import OnlineDemixer
from earatlas.streaming.online_masks import OnlineMasks
from earatlas.streaming.online_steering import SteeringSettings
from earatlas.streaming.renderer import latency_profile
from earatlas.streaming.stages import MaskStage, _UpdateStep
from earatlas.tracking.front_end import TrackingFrontEnd
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.online_track import TrackEvent
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Complex

RATE = 16_000
StreamResult = tuple[
    list[ea.LiveReport], dict[int, np.ndarray]
]  # reports, and the whole signal of each track
PAIR = np.array([[50.0, 10.0], [-70.0, 0.0]])


@pytest.fixture(scope="module")
def reverberant_atlas(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas, learned for reverberant rooms."""
    return atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)


@pytest.fixture(scope="module")
def scene(atlas_head: ea.Head) -> ea.SimulatedScene:
    """Two anechoic talkers (synthetic speech) of 4 s."""
    sounds = [ea.synthetic_speech(4.0, seed=seed) for seed in (3, 4)]
    return ea.render_scene(atlas_head, sounds, PAIR)


def run_stream(live: ea.Live, samples: np.ndarray, block: int) -> StreamResult:
    """Return all reports, and the whole signal (2, n) of each source that has one."""
    reports = [live.push(samples[:, i : i + block]) for i in range(0, samples.shape[1], block)]
    reports.append(live.finish())
    sounds: dict[int, np.ndarray] = {}
    for report in reports:
        for source in (*report.sources, *report.ended):
            result = sounds.setdefault(source.id, np.zeros(samples.shape))
            n = source.samples.shape[1]
            result[:, report.start : report.start + n] = source.samples
    return reports, {i: sound for i, sound in sounds.items() if sound.any()}


@pytest.fixture(scope="module")
def result(reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene) -> StreamResult:
    """The result of the scene in blocks of 1000 samples."""
    return run_stream(reverberant_atlas.live(), scene.mixture.samples, 1000)


def test_two_talkers_are_tracked_and_separated(
    result: StreamResult, scene: ea.SimulatedScene
) -> None:
    """Each talker has one track at the right direction, with a signal that is mostly its own."""
    reports, sounds = result
    last = [source for source in reports[-1].sources if source.confirmed]
    assert len(last) == 2
    latency = slice(2 * RATE, None)
    for m in range(2):
        places = np.stack([source.direction for source in last])
        errors = great_circle_error(scene.directions[m], places)
        own = last[int(errors.argmin())]
        assert 0 < errors.min() < 8
        (true,) = lateral_angles(to_vectors(scene.directions[m : m + 1]))
        assert own.lateral_angle is not None
        assert abs(own.lateral_angle.angle - true) < own.lateral_angle.radius_90 < 15
        image = scene.images[m][:, latency]
        error = image - sounds[own.id][:, latency]
        assert 8 < 10 * np.log10((image**2).sum() / (error**2).sum()) < 80


def test_signals_add_up_to_the_mixture(result: StreamResult, scene: ea.SimulatedScene) -> None:
    """The signals add up sample by sample, as soon as there is a track."""
    total = np.sum(list(result[1].values()), axis=0)
    latency = slice(RATE, None)
    np.testing.assert_allclose(total[:, latency], scene.mixture.samples[:, latency], atol=1e-9)


def test_delay_separates_the_first_sound_of_a_track(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene, result: StreamResult
) -> None:
    """With 0.4 s more delay, signals begin 0.4 s earlier, and their first second is better."""
    live = reverberant_atlas.live(delay_seconds=0.512)
    assert live.delay_samples == round(0.512 * RATE)
    _, sounds = run_stream(live, scene.mixture.samples, 1000)
    total = np.sum(list(sounds.values()), axis=0)
    np.testing.assert_allclose(total[:, RATE:], scene.mixture.samples[:, RATE:], atol=1e-9)
    assert list(sounds) == list(result[1])
    begins, with_delay = (
        [int(np.argmax(np.abs(sound).max(axis=0) > 0)) for sound in each.values()]
        for each in (result[1], sounds)
    )
    expected = np.maximum(np.array(begins) - round(0.4 * RATE), 0)  # the stream begins at 0
    np.testing.assert_array_equal(with_delay, expected)
    early = slice(max(with_delay), max(with_delay) + RATE)
    image, sdr = scene.images[:, None, :, early], []
    for each in (result[1], sounds):
        errors = ((image - np.stack(list(each.values()))[..., early]) ** 2).sum(axis=(2, 3))
        sdr.append(10 * np.log10((image**2).sum(axis=(2, 3)) / errors).max(axis=1))
    before, now = sdr
    assert (now > before + 3).all()
    assert (now < 80).all()


@pytest.mark.parametrize("block", [64, 48_000])
def test_result_is_independent_of_the_block_size(
    reverberant_atlas: ea.Atlas,
    scene: ea.SimulatedScene,
    result: StreamResult,
    block: int,
) -> None:
    """Blocks of any size give identical tracks and samples."""
    reports, sounds = run_stream(reverberant_atlas.live(), scene.mixture.samples, block)
    assert reports[-1].to_dict()["sources"] == result[0][-1].to_dict()["sources"]
    assert set(sounds) == set(result[1])
    for i, sound in sounds.items():
        np.testing.assert_array_equal(sound, result[1][i])


def test_ended_track_returns_its_last_samples(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples that are pending when a track is deleted are returned with the next block."""
    prune = OnlineTracker._prune

    def delete_first_track(self: OnlineTracker, now: float) -> None:
        for track in self.tracks:
            if track.id == 1 and now > 2.0:
                track.handle(TrackEvent.ABSORBED)
        prune(self, now)

    monkeypatch.setattr(OnlineTracker, "_prune", delete_first_track)
    samples = scene.mixture.samples[:, : int(3.2 * RATE)]
    results = [run_stream(reverberant_atlas.live(), samples, n) for n in (64, 1000, 48_000)]
    _, expected = results[0]
    assert expected[1][:, : 2 * RATE].any()
    for reports, sounds in results:
        (last,) = (source for report in reports for source in report.ended if source.id == 1)
        assert np.isfinite(last.level_db)
        np.testing.assert_array_equal(sounds[1], expected[1])


def test_replaced_track_keeps_its_last_sound(
    reverberant_atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """With the longest delay, the sound of a talker is due before another one takes the track."""
    talkers = [(4.0, 1, PAIR[0]), (2.0, 2, PAIR[1])]  # seconds, seed and direction
    first, second = (
        ea.render_scene(atlas_head, [ea.synthetic_speech(seconds, seed=seed)], [place]).mixture
        for seconds, seed, place in talkers
    )
    end = 4 * RATE
    x = np.zeros((2, round(4.3 * RATE) + second.samples.shape[1]))
    x[:, : first.samples.shape[1]] += first.samples
    x[:, round(4.3 * RATE) :] += second.samples
    live = reverberant_atlas.live(delay_seconds=1.0, max_sources=1)
    _, sounds = run_stream(live, x, 800)
    assert list(sounds) == [1, 2]
    late = slice(end - RATE, end)
    np.testing.assert_allclose(sounds[1][:, late], x[:, late], atol=1e-3)
    assert not sounds[2][:, :end].any()


def test_snapshot_continues_identically(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene, result: StreamResult
) -> None:
    """Copies, pickles, and streams that were copied or restored continue as one that was not.

    An update of the filters is in progress when they are copied.
    """
    blocks = np.split(scene.mixture.samples, range(1000, scene.mixture.samples.shape[1], 1000), 1)
    live, k = reverberant_atlas.live(rate=RATE), 0

    def filters_in_progress() -> bool:
        update = live._rendering._update
        return update is not None and update.step is _UpdateStep.FILTERS

    while k < 24 or not filters_in_progress():
        live.push(blocks[k])
        k += 1
    saved, pickled = live.snapshot(), pickle.dumps(live)

    def check(stream: ea.Live) -> None:
        for j in range(k, k + 8):
            report, expected = stream.push(blocks[j]), result[0][j]
            assert report.to_dict() == expected.to_dict()
            for one, other in zip(report.sources, expected.sources, strict=True):
                np.testing.assert_array_equal(one.samples, other.samples)

    check(live)
    check(pickle.loads(pickled))
    live.restore(saved)
    check(live)
    check(saved)


def test_cues_are_inferred_again_if_a_track_is_added(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene
) -> None:
    """The sound of a new track was assigned to the other one, whose cues have too much noise."""
    separator = reverberant_atlas.separator
    layout = separator.layout
    x, window, hop = scene.mixture.samples, layout.window, layout.window // 4

    frames: list[Complex] = []
    alone = OnlineMasks(separator, hop / layout.rate)
    for t in range(100):
        alone.append(x[:, t * hop : t * hop + window])
        frames.append(alone.latest_frame)
        if t == 91:
            alone.apply(complete(alone.update_parts({1: PAIR[0]}, {})))

    def noise(*forgetting: float, recent: Sequence[Complex] = frames) -> float:
        """Return the noise of the cues relative to that of the head, once a track was added.

        An update follows for each forgetting of the first track.
        """
        shared = (separator, separator.source_model)
        masks = copy.deepcopy(alone, {id(part): part for part in shared})
        for k, one in enumerate(forgetting):
            if k:
                masks.append(x[:, 99 * hop : 99 * hop + window])
            pair = {1: PAIR[0], 2: PAIR[1]}
            masks.apply(complete(masks.update_parts(pair, {1: one}, recent)))
        return float(np.median(masks._noise / separator.source_model.noise))

    as_before = noise(0.0, recent=())
    assert 0.5 < noise(0.05) < 0.8 * as_before  # also if the head trembles
    assert noise(0.5) > 0.8 * as_before  # what was before a motion does not fit its directions
    # Once there is sound after it, the cues are inferred again from that alone.
    assert noise(0.5, 0.0) == pytest.approx(noise(0.0, recent=frames[-1:]))


def test_masks_belong_to_the_window_that_is_synthesized(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene
) -> None:
    """With a delay, masks are those of an earlier frame, with the newest cues."""
    latency = latency_profile(0.16, RATE)
    filterbank = latency.filterbank(RATE)
    stage = MaskStage(reverberant_atlas.separator, filterbank, latency)
    for t in range(80):
        block = scene.mixture.samples[:, t * filterbank.hop : (t + 1) * filterbank.hop]
        if t == 70:
            pair = {1: PAIR[0], 2: PAIR[1]}
            stage.model.apply(complete(stage.model.update_parts(pair, {})))
        masks = stage.push(Hop(block, block), (1, 2) if t >= 70 else None)
    assert filterbank.delay_hops == 3
    assert masks is not None
    np.testing.assert_array_equal(masks, stage.model.masks_of(stage.frames[-4], (1, 2))[..., 0])
    newest = stage.model.masks_of(stage.frames[-1], (1, 2))[..., 0]
    assert np.abs(masks - newest).max() > 0.1


@pytest.mark.parametrize("hops", [(7, 7, 0), (8, 3, 0), (16, 5, 6)])
def test_filterbank_reconstructs_the_input(hops: tuple[int, int, int]) -> None:
    """Unmodified spectra return the input, latency_samples - hop later."""
    filterbank = Filterbank.from_seconds(
        11_025, hop_seconds=0.008, window_hops=hops[0], synthesis_hops=hops[1], delay_hops=hops[2]
    )
    x = np.random.default_rng(1).normal(size=(2, 40 * filterbank.hop))
    frames, overlap_add = AnalysisFrames(filterbank), OverlapAdd(filterbank, 1)
    hop, out = filterbank.hop, []
    for i in range(0, x.shape[1], hop):
        frames.append(x[:, i : i + hop])
        out.append(overlap_add.push(frames.delayed_spectra()[None]))
    assert filterbank.latency_samples == (hops[1] + hops[2]) * hop
    latency = filterbank.latency_samples - hop
    y = np.concatenate(out, axis=-1)[0, :, latency:]
    np.testing.assert_allclose(
        y[:, filterbank.window :], x[:, filterbank.window : -latency], atol=1e-12
    )


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000, 192_000])
def test_resampling_keeps_tones(rate: int) -> None:
    """Tones are kept for any rate and block size, with the stated delay."""
    t = np.arange(rate // 4) / rate
    x = np.stack([np.sin(2 * np.pi * 1000 * t), np.cos(2 * np.pi * 2300 * t)])
    resampler = Resampler(rate, RATE, ResamplerSettings())
    y = np.concatenate([resampler.push(x[:, i : i + 331]) for i in range(0, len(t), 331)], axis=1)
    latency = 0.0015 if rate > RATE else 24 / rate  # 24 zero crossings at the lower rate
    s = np.arange(y.shape[1]) / RATE - np.ceil(latency * rate - 1e-9) / rate
    expected = np.stack([np.sin(2 * np.pi * 1000 * s), np.cos(2 * np.pi * 2300 * s)])
    assert y.shape[1] == RATE // 4
    np.testing.assert_allclose(y[:, 200:], expected[:, 200:], atol=1e-4)


def test_past_covariances_decay_and_are_counted_once() -> None:
    """Motion and time reduce past covariances, and frames in use are not added."""
    rng = np.random.default_rng(6)
    filterbank = Filterbank.from_seconds(8000, hop_seconds=0.016, window_hops=2, synthesis_hops=2)
    frequencies_hz = filterbank.frequencies_hz[1:]
    demixer = OnlineDemixer(filterbank, frequencies_hz, SteeringSettings())
    F = len(frequencies_hz)
    recent_seconds = SteeringSettings().recent_seconds
    T = round(recent_seconds / (2 * filterbank.hop_seconds))  # every second frame is kept

    def append(frames: int) -> None:
        for x in rng.normal(size=(frames, 2, 2, F + 1)):
            if demixer.steering.advance():
                demixer.steering.append((x[0] + 1j * x[1])[:, 1:])

    def update_demixer(ids: tuple[int, int], masks: Array | None, forgetting: float) -> None:
        update = demixer.steering.begin_update(ids, forgetting)
        demixer.apply(complete(demixer.estimate_parts(update, masks)))

    append(2 * T)
    update_demixer((1, 2), rng.uniform(size=(2, F, T)), 0.0)
    pair = demixer.steering._pairs[1, 2]
    before, ear_levels = pair.past, pair.ear_levels
    assert before.any()
    for _ in range(3):
        append(8)
        update_demixer((1, 3), rng.uniform(size=(2, F, T)), 0.0)
    update_demixer((1, 2), None, 0.5)
    pair = demixer.steering._pairs[1, 2]
    change = (ear_levels / pair.ear_levels).T
    expected = 0.5 * np.exp(-24 * filterbank.hop_seconds / 60.0) * before
    expected = change[:, :, None] * change[:, None, :] * expected
    np.testing.assert_allclose(pair.past, expected, rtol=1e-9)


def test_output_returns_the_hops() -> None:
    """Blocks of any length are the concatenated hops; samples before 0 are dropped."""
    output = StreamOutput(4, RATE, 10, OutputSettings())
    hops = np.arange(2 * 40).reshape(2, 40).astype(float)
    blocks = []
    for k in range(10):
        output.append({7: hops[:, 4 * k : 4 * k + 4]} | ({9: np.ones((2, 4))} if k == 5 else {}))
        if k > 2:
            blocks.append(output.take(3 * k - 2))
    out = np.concatenate([part[7] for part in blocks], axis=1)
    np.testing.assert_array_equal(out, hops[:, 6 : 6 + 25])
    other = np.concatenate(
        [part.get(9, np.zeros((2, part[7].shape[1]))) for part in blocks], axis=1
    )
    np.testing.assert_array_equal(other[0], (np.arange(25) >= 14) & (np.arange(25) < 18))


def test_reported_positions_are_those_of_the_tracks(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene
) -> None:
    """Positions are kept between steps, but every report has those of its hop; yaw counts, too."""
    live = reverberant_atlas.live(yaw=[[0.0, 0.0], [2.0, 0.0], [4.0, 30.0]])
    samples, kept, n_sources = scene.mixture.samples, 0, 0
    before: dict[int, tuple[object, ...]] = {}
    for first in range(0, samples.shape[1], 256):
        report = live.push(samples[:, first : first + 256])
        front_end = live._tracking.front_end
        for source in report.sources:
            (track,) = [one for one in front_end.tracker.tracks if one.id == source.id]
            expected = _Position.of(track, front_end)
            np.testing.assert_array_equal(source.direction, expected.direction)
            assert source.radius_90 == expected.radius_90
            assert source.lateral_angle == expected.lateral_angle
            assert repr(source.alternatives) == repr(expected.alternatives)
            state = _position_state(track, front_end)
            kept += before.get(source.id) == state
            before[source.id] = state
            n_sources += 1
    assert 0.5 * n_sources < kept < n_sources


def test_input_returns_whole_hops() -> None:
    """Hops are independent of the blocks; the padding completes the last one."""
    x = np.random.default_rng(2).normal(size=(2, 50))
    x[1, 3] = np.inf
    hops = {}
    for block in (3, 20):
        stream = StreamInput(RATE, RATE, 8)
        hops[block] = [
            hop.samples
            for i in range(0, 50, block)
            for hop in stream.hops(stream.accept(x[:, i : i + block]))
        ]
        assert (stream.n_samples, stream.doubts[0].value) == (50, 1)
        hops[block] += [hop.samples for hop in stream.hops(stream.padding(11))]
        assert len(hops[block]) == 8  # 50 samples and 11 of latency, in whole hops
    x[1, 3] = 0.0
    np.testing.assert_array_equal(hops[3], hops[20])
    np.testing.assert_array_equal(np.concatenate(hops[3], axis=1)[:, :50], x)


def test_a_stream_has_three_parts(reverberant_atlas: ea.Atlas) -> None:
    """Live orchestrates: it has fewer than ten attributes of its own."""
    assert len(vars(reverberant_atlas.live())) < 10


def test_number_of_sources_is_any_integer_in_range(reverberant_atlas: ea.Atlas) -> None:
    """It is checked as `n_sources` of a separation is, and can be read."""
    assert reverberant_atlas.live().max_sources == 4
    assert reverberant_atlas.live(max_sources=np.int64(3)).max_sources == 3  # type: ignore[arg-type]
    one = reverberant_atlas.live(max_sources=True)
    assert one.max_sources == 1
    with pytest.raises(ea.InputError, match=r"max_sources .* from 1 to 6, got 7\. Two microphones"):
        reverberant_atlas.live(max_sources=7)
    with pytest.raises(ea.InputError, match="number of sources"):
        one.restore(reverberant_atlas.live().snapshot())


def test_refused_block_has_no_effect(reverberant_atlas: ea.Atlas) -> None:
    """Times and doubts are those of the accepted blocks, for Live and Localizer."""
    x = np.random.default_rng(5).normal(size=(2, 1600))
    x[0, 7] = np.nan
    live, localizer = reverberant_atlas.live(), reverberant_atlas.localizer(rate=RATE)
    live.push(x, yaw=0.0)
    localizer.push(np.zeros((2, 1600)), yaw=0.0)
    for _ in range(2):  # 150 degrees in 0.1 s: refused each time
        with pytest.raises(ea.InputError, match="jump"):
            live.push(x, yaw=150.0)
        with pytest.raises(ea.InputError, match="jump"):
            localizer.push(np.zeros((2, 1600)), yaw=150.0)
    report = live.push(np.zeros((2, 1600)), yaw=10.0)
    assert report.time == pytest.approx(0.2)
    assert report.doubts[0].value == 1


def test_invalid_input_is_refused_or_replaced(reverberant_atlas: ea.Atlas) -> None:
    """Errors name the rule; samples that are not finite count as silence."""
    for rate, sources in ((4000, 2), (400_000, 2), (RATE, 0), (RATE, 9), (RATE, 2.5)):
        with pytest.raises(ea.InputError, match="must be from"):
            reverberant_atlas.live(rate=rate, max_sources=sources)  # type: ignore[arg-type]
    live = reverberant_atlas.live()
    with pytest.raises(ea.InputError, match="got an Audio"):
        live.push(ea.Audio(np.zeros((2, 10)), RATE))
    with pytest.raises(ea.InputError, match="like this one"):
        live.restore("x")  # type: ignore[arg-type]
    with pytest.raises(ea.InputError, match="left and right"):
        live.push(np.zeros((3, 10)))
    x = np.zeros((2, 4000))
    x[0, 5], x[1, 9], x[:, 20] = np.nan, np.inf, 1e300
    report = live.push(x)
    assert (report.doubts[0].word, report.doubts[0].value) == ("broken input", 3)
    assert "3 samples were not finite or beyond 1e6" in report.doubts[0]
    live.finish()
    with pytest.raises(ea.InputError, match="before finish"):
        live.push(x)
    with pytest.raises(ea.InputError, match="once"):
        live.finish()


def test_identical_channels_have_no_direction(reverberant_atlas: ea.Atlas) -> None:
    """The radius covers the sphere, and a doubt is raised."""
    live = reverberant_atlas.live()
    sound = ea.synthetic_speech(2.5, RATE, seed=4)
    live.push(np.stack([sound, sound]))
    report = live.push(np.zeros((2, 1600)))
    assert "nothing directional" in {doubt.word for doubt in report.doubts}
    assert report.sources
    assert all(source.radius_90 > 140 for source in report.sources)
    assert all(source.to_dict()["lateral_angle"] is None for source in report.sources)


@pytest.mark.parametrize("start", [0, 4000])
def test_a_dead_channel_has_no_direction_from_the_first_report(
    reverberant_atlas: ea.Atlas, scene: ea.SimulatedScene, start: int
) -> None:
    """No direction of a channel without a second one is reported, not even in the first second."""
    samples = np.pad(scene.images[0][:, :24_000] * [[1.0], [0.0]], ((0, 0), (start, 0)))
    reports, _ = run_stream(reverberant_atlas.live(), samples, 1600)
    found = [report for report in reports if report.sources]
    assert found
    for report in found:
        assert report.doubts[0].word is DoubtKind.BROKEN_INPUT
        assert all(source.radius_90 > 90 for source in report.sources)


def test_another_head_is_doubted_and_its_radius_is_wide(reverberant_atlas: ea.Atlas) -> None:
    """With a head that is larger by a tenth the stream raises a doubt; radii cover the errors."""
    direction = np.array([[50.0, 10.0]])
    head = ea.simulated_head(direction)
    responses = head.responses()
    larger = ea.Head("larger", direction, ImpulseResponses(responses.samples, 43_600))
    sound = ea.synthetic_speech(4.0, seed=3)
    doubted = []
    for hearing in (head, larger):
        samples = ea.render_scene(hearing, [sound], direction).mixture.at_rate(RATE).samples
        reports, _ = run_stream(reverberant_atlas.live(), samples, 4000)
        kinds = {doubt.word for report in reports for doubt in report.doubts}
        doubted.append(DoubtKind.HEAD_MISMATCH in kinds)
        for report in reports[8:]:
            for source in report.sources:
                error = float(great_circle_error(direction[0], source.direction))
                assert error <= source.radius_90, (hearing.name, report)
    assert doubted == [False, True]


def test_templates_are_computed_before_a_stream(reverberant_atlas: ea.Atlas) -> None:
    """No hop of the first stream of a head takes long because it computes what all hops need."""
    localizer = reverberant_atlas.reverberant_localizer
    assert localizer is not None
    sound = replace(localizer.direct_sound)  # without cached properties
    assert "coarse_points" not in vars(sound)
    TrackingFrontEnd(replace(localizer, direct_sound=sound), np.zeros_like, TrackerSettings())
    assert "coarse_points" in vars(sound)
    assert "sparse" in vars(sound.interaural_limits.ratios)
