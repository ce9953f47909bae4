"""A live stream: the same whatever the blocks, sounds that add up, tracks that keep their names."""

import pickle

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.angles import great_circle_error
from earatlas.streaming.filterbank import Bank, OverlapAdd, WindowStream
from earatlas.streaming.online_demixing import Filters
from earatlas.streaming.online_steering import RECENT_SECONDS
from earatlas.streaming.output_buffer import Outlet
from earatlas.streaming.resampling import Resampler
from earatlas.tracking.online import Tracker

RATE = 16_000
Whole = tuple[list[ea.LiveReport], dict[int, np.ndarray]]  # reports, sounds
PAIR = np.array([[50.0, 10.0], [-70.0, 0.0]])


@pytest.fixture(scope="module")
def ready(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas, made ready for rooms."""
    return atlas if atlas.rooms is not None else atlas.with_rooms(atlas_head)


@pytest.fixture(scope="module")
def scene(atlas_head: ea.Head) -> ea.SimulatedScene:
    """Two murmurs of 4 s in the open."""
    sounds = [ea.synthetic_speech(4.0, seed=seed) for seed in (3, 4)]
    return ea.render_scene(atlas_head, sounds, PAIR)


def heard(live: ea.Live, samples: np.ndarray, block: int) -> Whole:
    """All reports, and the whole sound (2, n) of each source that has some."""
    reports = [live.push(samples[:, i : i + block]) for i in range(0, samples.shape[1], block)]
    reports.append(live.finish())
    sounds: dict[int, np.ndarray] = {}
    for report in reports:
        for source in (*report.sources, *report.ended):
            whole = sounds.setdefault(source.id, np.zeros(samples.shape))
            n = source.samples.shape[1]
            whole[:, report.start : report.start + n] = source.samples
    return reports, {i: sound for i, sound in sounds.items() if sound.any()}


@pytest.fixture(scope="module")
def whole(ready: ea.Atlas, scene: ea.SimulatedScene) -> Whole:
    """That of the scene, in blocks of 1000."""
    return heard(ready.live(), scene.mixture.samples, 1000)


def test_two_talkers_are_followed_and_separated(whole: Whole, scene: ea.SimulatedScene) -> None:
    """Each has one name, is where it is, and its sound is mostly its own."""
    reports, sounds = whole
    last = [source for source in reports[-1].sources if source.confirmed]
    assert len(last) == 2
    late = slice(2 * RATE, None)
    for m in range(2):
        places = np.stack([source.direction for source in last])
        errors = great_circle_error(scene.directions[m], places)
        own = last[int(errors.argmin())]
        assert 0 < errors.min() < 8
        image = scene.images[m][:, late]
        miss = image - sounds[own.id][:, late]
        assert 8 < 10 * np.log10((image**2).sum() / (miss**2).sum()) < 80


def test_sounds_add_up_to_the_mixture(whole: Whole, scene: ea.SimulatedScene) -> None:
    """Sample by sample, from when somebody is heard on."""
    total = np.sum(list(whole[1].values()), axis=0)
    late = slice(RATE, None)
    np.testing.assert_allclose(total[:, late], scene.mixture.samples[:, late], atol=1e-9)


@pytest.mark.parametrize("block", [64, 48_000])
def test_blocks_change_nothing(
    ready: ea.Atlas,
    scene: ea.SimulatedScene,
    whole: Whole,
    block: int,
) -> None:
    """The same tracks, the same samples."""
    reports, sounds = heard(ready.live(), scene.mixture.samples, block)
    assert reports[-1].to_dict()["sources"] == whole[0][-1].to_dict()["sources"]
    assert set(sounds) == set(whole[1])
    for i, sound in sounds.items():
        np.testing.assert_array_equal(sound, whole[1][i])


@pytest.mark.parametrize("block", [1000, 48_000])
def test_who_ends_has_the_last_of_its_sound(
    ready: ea.Atlas, scene: ea.SimulatedScene, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Whatever the blocks: what still waits within a hop when a track dies comes with the next."""
    bury = Tracker._bury

    def in_time(self: Tracker, now: float) -> None:
        for track in self.tracks:
            track.dead |= track.id == 1 and now > 2.0
        bury(self, now)

    monkeypatch.setattr(Tracker, "_bury", in_time)
    (some, few), (others, many) = (
        heard(ready.live(), scene.mixture.samples, n) for n in (64, block)
    )
    assert few[1][:, : 2 * RATE].any()
    for reports in (some, others):
        (last,) = (source for report in reports for source in report.ended if source.id == 1)
        assert np.isfinite(last.level_db)
    np.testing.assert_array_equal(few[1], many[1])


def test_a_snapshot_goes_on_alike(ready: ea.Atlas, scene: ea.SimulatedScene) -> None:
    """A copy, a pickle and a stream that went back give what the stream gives."""
    x = scene.mixture.samples
    live = ready.live(rate=RATE)
    live.push(x[:, :24_000])
    saved, pickled = live.snapshot(), pickle.dumps(live)
    expected = live.push(x[:, 24_000:32_000])
    again = pickle.loads(pickled).push(x[:, 24_000:32_000])
    live.restore(saved)
    for report in (again, live.push(x[:, 24_000:32_000]), saved.push(x[:, 24_000:32_000])):
        assert report.to_dict() == expected.to_dict()
        for one, other in zip(report.sources, expected.sources, strict=True):
            np.testing.assert_array_equal(one.samples, other.samples)


@pytest.mark.parametrize("hops", [(7, 7), (8, 3), (16, 5)])
def test_frames_of_a_bank_give_the_sound_back(hops: tuple[int, int]) -> None:
    """Spectra that nothing was done to are the sound, `heard` - hop samples later."""
    bank = Bank.of(11_025, hop_seconds=0.008, window_hops=hops[0], heard_hops=hops[1])
    x = np.random.default_rng(1).normal(size=(2, 40 * bank.hop))
    windows, adder = WindowStream(bank), OverlapAdd(bank, 1)
    hop = bank.hop
    out = [adder.push(windows.push(x[:, i : i + hop])[None]) for i in range(0, x.shape[1], hop)]
    late = bank.heard - hop
    y = np.concatenate(out, axis=-1)[0, :, late:]
    np.testing.assert_allclose(y[:, bank.window :], x[:, bank.window : -late], atol=1e-12)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000, 192_000])
def test_resampled_tones_are_tones(rate: int) -> None:
    """Of any rate, in blocks of any size; by the delay that it states."""
    t = np.arange(rate // 4) / rate
    x = np.stack([np.sin(2 * np.pi * 1000 * t), np.cos(2 * np.pi * 2300 * t)])
    resampler = Resampler(rate, RATE)
    y = np.concatenate([resampler.push(x[:, i : i + 331]) for i in range(0, len(t), 331)], axis=1)
    late = 0.0015 if rate > RATE else 24 / rate  # 24 crossings of zero, at the lower rate
    s = np.arange(y.shape[1]) / RATE - np.ceil(late * rate - 1e-9) / rate
    expected = np.stack([np.sin(2 * np.pi * 1000 * s), np.cos(2 * np.pi * 2300 * s)])
    assert y.shape[1] == RATE // 4
    np.testing.assert_allclose(y[:, 200:], expected[:, 200:], atol=1e-4)


def test_what_is_past_fades_and_is_counted_once() -> None:
    """While a source moves, the frames that are used stay; while others are heard, time passes."""
    rng = np.random.default_rng(6)
    bank = Bank.of(8000, hop_seconds=0.016, window_hops=2, heard_hops=2)
    hertz = bank.hertz[1:]
    filters = Filters(bank, hertz)
    F, T = len(hertz), round(RECENT_SECONDS / (2 * bank.hop_seconds))  # every second is kept

    def hear(frames: int) -> None:
        for x in rng.normal(size=(frames, 2, 2, F + 1)):
            filters.hear(x[0] + 1j * x[1])

    hear(2 * T)
    filters.update((1, 2), rng.uniform(size=(2, F, T)), 0.0)
    pair = filters.columns._pairs[1, 2]
    before, ears = pair.past.copy(), pair.ears
    assert before.any()
    for _ in range(3):
        hear(8)
        filters.update((1, 3), rng.uniform(size=(2, F, T)), 0.0)
    filters.update((1, 2), None, 0.5)
    change = (ears / pair.ears).T
    expected = 0.5 * np.exp(-24 * bank.hop_seconds / 60.0) * before
    expected = change[:, :, None] * change[:, None, :] * expected
    np.testing.assert_allclose(pair.past, expected, rtol=1e-9)


def test_an_outlet_gives_what_was_put_in() -> None:
    """Stretches of any length are the hops, put together; those before the start are dropped."""
    outlet = Outlet(4, -6)
    hops = np.arange(2 * 40).reshape(2, 40).astype(float)
    taken = []
    for k in range(10):
        outlet.put({7: hops[:, 4 * k : 4 * k + 4]} | ({9: np.ones((2, 4))} if k == 5 else {}))
        if k > 2:
            taken.append(outlet.take(3 * k - 2))
    out = np.concatenate([part[7] for part in taken], axis=1)
    np.testing.assert_array_equal(out, hops[:, 6 : 6 + 25])
    other = np.concatenate([part.get(9, np.zeros((2, part[7].shape[1]))) for part in taken], axis=1)
    np.testing.assert_array_equal(other[0], (np.arange(25) >= 14) & (np.arange(25) < 18))


def test_a_refused_block_was_never_there(ready: ea.Atlas) -> None:
    """Times and doubts are those of the blocks that were taken, of both kinds of stream."""
    x = np.random.default_rng(5).normal(size=(2, 1600))
    x[0, 7] = np.nan
    live, localizer = ready.live(), ready.localizer(rate=RATE)
    live.push(x, yaw=0.0)
    localizer.push(np.zeros((2, 1600)), yaw=0.0)
    for _ in range(2):  # 150 degrees in 0.1 s: refused, and refused again
        with pytest.raises(ea.InputError, match="jump"):
            live.push(x, yaw=150.0)
        with pytest.raises(ea.InputError, match="jump"):
            localizer.push(np.zeros((2, 1600)), yaw=150.0)
    report = live.push(np.zeros((2, 1600)), yaw=10.0)
    assert report.time == pytest.approx(0.2)
    assert report.doubts[0].value == 1


def test_bad_input_is_refused_or_survived(ready: ea.Atlas) -> None:
    """One sentence each, and numbers that are none count as silence."""
    for rate, sources in ((4000, 2), (400_000, 2), (RATE, 0), (RATE, 9), (RATE, 2.5)):
        with pytest.raises(ea.InputError, match="must be from"):
            ready.live(rate=rate, max_sources=sources)  # type: ignore[arg-type]
    live = ready.live()
    with pytest.raises(ea.InputError, match="got an Audio"):
        live.push(ea.Audio(np.zeros((2, 10)), RATE))  # type: ignore[arg-type]
    with pytest.raises(ea.InputError, match="like this one"):
        live.restore("x")  # type: ignore[arg-type]
    with pytest.raises(ea.InputError, match="left and right"):
        live.push(np.zeros((3, 10)))
    x = np.zeros((2, 4000))
    x[0, 5], x[1, 9], x[:, 20] = np.nan, np.inf, 1e300
    report = live.push(x)
    assert (report.doubts[0].word, report.doubts[0].value) == ("broken input", 3)
    live.finish()
    with pytest.raises(ea.InputError, match="before finish"):
        live.push(x)
    with pytest.raises(ea.InputError, match="once"):
        live.finish()


def test_one_microphone_tells_no_direction(ready: ea.Atlas) -> None:
    """Whoever is heard in both ears alike may be anywhere, and that is said."""
    live = ready.live()
    sound = ea.synthetic_speech(2.5, RATE, seed=4)
    live.push(np.stack([sound, sound]))
    report = live.push(np.zeros((2, 1600)))
    assert "nothing directional" in {doubt.word for doubt in report.doubts}
    assert report.sources
    assert all(source.radius_90 > 140 for source in report.sources)
