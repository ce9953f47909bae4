"""Tests of the plausibility of two channels as the ears of a head."""

from collections.abc import Callable

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.audio import resample
from earatlas.features.channel_distortion import DistortionSettings
from earatlas.features.input_plausibility import (
    InputFault,
    InterauralLimits,
    PlausibilitySettings,
    find_input_faults,
    low_band_delays,
)
from earatlas.features.input_samples import SampleChecker, count_clipped
from earatlas.features.interaural_monitor import InterauralMonitor, InterauralStatistics
from earatlas.features.onset_detector import OnsetDetectorSettings
from earatlas.hrtf.interaural_templates import InterauralTemplates
from earatlas.types import Array

RATE = 16_000
DIRECTIONS = ((0.0, 0.0), (-85.0, 10.0), (140.0, -20.0))


@pytest.fixture(scope="module")
def limits(small_head: ea.Head) -> InterauralLimits:
    """Return the limits of a simulated head."""
    templates = InterauralTemplates.of(small_head, OnsetDetectorSettings().frequencies_hz)
    return InterauralLimits.of(templates.frequencies_hz, templates.measured_ratios)


def talker(direction: tuple[float, float], *, snr_db: float = 40.0, seconds: float = 2.5) -> Array:
    """Return a talker at a direction of the simulated head."""
    head = ea.simulated_head([direction])
    settings = ea.SceneSettings(snr_db=snr_db, seed=3)
    sounds = [ea.synthetic_speech(seconds, RATE, seed=5)]
    return ea.render_scene(head, sounds, [direction], settings=settings).mixture.samples


def statistics_of(x: Array, block: int = 10**9, forgetting: float = 1.0) -> InterauralStatistics:
    """Return the statistics of samples that are pushed in blocks."""
    monitor = InterauralMonitor(RATE, forgetting=forgetting)
    for start in range(0, x.shape[1], block):
        monitor.push(x[:, start : start + block])
    monitor.finish()
    return monitor.statistics()


def faults_of(x: Array, limits: InterauralLimits) -> list[InputFault]:
    """Return the faults of samples."""
    return [finding.fault for finding in find_input_faults(statistics_of(x), limits)]


def with_noise(x: Array, level_db: float) -> Array:
    """Add independent noise to both channels."""
    noise = np.random.default_rng(2).normal(size=x.shape)
    return x + noise * (float(x.std()) * 10 ** (level_db / 20))


def late(x: Array, n: int) -> Array:
    """Delay the right channel by n samples."""
    return np.stack([x[0, n:], x[1, :-n]])


def interrupted(x: Array) -> Array:
    """Return the sound with a gap of 5 ms every half second."""
    x = x.copy()
    for start in range(3000, x.shape[1], 8000):
        x[:, start : start + 80] = 0.0
    return x


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("snr_db", [40.0, 0.0])
def test_right_recordings_have_no_faults(
    limits: InterauralLimits, direction: tuple[float, float], snr_db: float
) -> None:
    """Neither sources at the side nor noise are faults."""
    assert faults_of(talker(direction, snr_db=snr_db), limits) == []


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("fault", "broken"),
    [
        (InputFault.DEAD_CHANNEL, lambda x: x * [[1.0], [0.0]]),
        (InputFault.DEAD_CHANNEL, lambda x: with_noise(x * [[0.0], [1.0]], -65.0)),
        (InputFault.INVERTED_CHANNEL, lambda x: x * [[-1.0], [1.0]]),
        (InputFault.UNEQUAL_GAINS, lambda x: x * [[1.0], [2.0]]),
        (InputFault.UNEQUAL_GAINS, lambda x: x * [[2.0], [1.0]]),
        (InputFault.LATE_CHANNEL, lambda x: late(x, 160)),
        (InputFault.LATE_CHANNEL, lambda x: late(x, 1600)),
        (InputFault.SAME_SIGNAL, lambda x: x[[0, 0]] * [[1.0], [0.5]]),
        (InputFault.GAPS, interrupted),
    ],
)
def test_faults_are_found(
    limits: InterauralLimits,
    direction: tuple[float, float],
    fault: InputFault,
    broken: Callable[[Array], Array],
) -> None:
    """Each fault is found, and no other one."""
    assert faults_of(broken(talker(direction)), limits) == [fault]


def test_findings_have_values_and_channels(limits: InterauralLimits) -> None:
    """The value is the delay, the gain in dB or the number of gaps, at the right channel."""
    x = talker((30.0, 0.0))
    (finding,) = find_input_faults(statistics_of(late(x[::-1], 160)[::-1]), limits)
    assert finding.channel == 0
    assert finding.value == pytest.approx(0.01, abs=1e-3)
    (finding,) = find_input_faults(statistics_of(x * [[1.0], [4.0]]), limits)
    assert finding.channel == 1
    assert finding.value == pytest.approx(12.0, abs=1.5)
    (finding,) = find_input_faults(statistics_of(interrupted(x)), limits)
    assert finding.value == 5


@pytest.mark.parametrize("level_db", [-65.0, -40.0, -20.0])
def test_one_signal_with_independent_noise_is_found(level_db: float) -> None:
    """The ratio of the channels must vary over frequency as that of an asymmetric head does."""
    rng = np.random.default_rng(4)
    frequencies = OnsetDetectorSettings().frequencies_hz
    phase = 2 * np.pi * frequencies * np.linspace(-7e-4, 7e-4, 9)[:, None]
    level = rng.normal(0, 2.0, (9, len(frequencies)))
    asymmetric = InterauralLimits.of(frequencies, 10 ** (level / 20) * np.exp(-1j * phase))
    sound = talker((0.0, 0.0))[0]
    assert faults_of(with_noise(np.stack([sound, sound]), level_db), asymmetric) == ["same signal"]
    symmetric = InterauralLimits.of(frequencies, np.exp(-1j * phase))
    assert faults_of(with_noise(np.stack([sound, sound]), level_db), symmetric) == []


@pytest.mark.parametrize("direction", [(60.0, 0.0), (80.0, 0.0), (-60.0, 0.0)])
def test_a_loud_reflection_in_the_far_ear_is_not_late(
    limits: InterauralLimits, direction: tuple[float, float]
) -> None:
    """It is louder than the direct sound at high frequencies only; a real lag is found with it."""
    near = 0 if direction[0] > 0 else 1
    x = talker(direction)
    x[1 - near] += 0.6 * np.roll(x[near], round(0.015 * RATE))
    statistics = statistics_of(x)
    assert not find_input_faults(statistics, limits)
    for settings in (
        PlausibilitySettings(low_late_ratio=0.0),
        PlausibilitySettings(min_direct_correlation=1e9),
    ):
        (finding,) = find_input_faults(statistics, limits, settings)
        assert (finding.fault, finding.channel) == (InputFault.LATE_CHANNEL, 1 - near)
    for ears in (x, x[::-1]):
        assert faults_of(late(ears, 160), limits) == [InputFault.LATE_CHANNEL]


def test_a_clear_delay_beyond_the_head_is_late(limits: InterauralLimits) -> None:
    """1 ms is more than a head can do, as of a recording at 48 kHz that is read as 16 kHz."""
    direction, low = (0.0, 0.0), np.arange(150.0, 1000.0, 25.0)
    ratios = InterauralTemplates.of(ea.simulated_head([direction]), low).measured_ratios
    (own_delay,) = low_band_delays(low, ratios, 1e-3)  # 75 µs: the simulated ears are asymmetric
    (finding,) = find_input_faults(statistics_of(late(talker(direction), 16)), limits)
    assert (finding.fault, finding.channel) == (InputFault.LATE_CHANNEL, 1)
    assert finding.value == pytest.approx(1e-3 + own_delay, abs=2.6e-5)  # steps of 25 µs


SIDES = ((35.0, 0.0), (-60.0, 10.0), (130.0, -20.0))


@pytest.fixture(scope="module")
def dense_limits() -> InterauralLimits:
    """Return the limits of a simulated head at directions 5 degrees apart."""
    head = ea.simulated_head(np.vstack([ea.Sphere().grid(5.0), SIDES]))
    templates = InterauralTemplates.of(head, OnsetDetectorSettings().frequencies_hz)
    return InterauralLimits.of(templates.frequencies_hz, templates.measured_ratios)


@pytest.mark.parametrize(("true_khz", "stated_khz"), [(32, 16), (16, 32), (16, 48)])
@pytest.mark.parametrize("direction", SIDES)
def test_a_wrong_sampling_rate_is_found(
    dense_limits: InterauralLimits,
    direction: tuple[float, float],
    true_khz: int,
    stated_khz: int,
) -> None:
    """The value is the true rate over the stated one; a large error may look like a delay."""
    x = resample(resample(talker(direction), RATE, 1000 * true_khz), 1000 * stated_khz, RATE)
    (finding,) = find_input_faults(statistics_of(x), dense_limits)
    if finding.fault is InputFault.LATE_CHANNEL:
        assert true_khz > stated_khz
    else:
        assert finding.fault is InputFault.WRONG_RATE
        assert finding.value == pytest.approx(true_khz / stated_khz)


@pytest.mark.parametrize("direction", SIDES)
@pytest.mark.parametrize("channel", [0, 1])
def test_delays_within_those_of_the_head_are_found(
    dense_limits: InterauralLimits, direction: tuple[float, float], channel: int
) -> None:
    """Half a millisecond is found because no direction has both this delay and these levels."""
    step = 1 if channel else -1
    x = late(talker(direction)[::step], 8)[::step]
    (finding,) = find_input_faults(statistics_of(x), dense_limits)
    assert (finding.fault, finding.channel) == (InputFault.LATE_CHANNEL, channel)


def test_sources_between_measured_directions_have_no_faults() -> None:
    """Sparse directions explain a residual that another sampling rate would remove by chance."""
    random = np.random.default_rng(0)
    directions = random.uniform((-180, -40), (180, 60), (5, 2))
    recordings = [statistics_of(talker((float(a), float(e)))) for a, e in directions]
    for spacing in (5.0, 10.0, 15.0, 20.0):
        head = ea.simulated_head(ea.Sphere().grid(spacing))
        templates = InterauralTemplates.of(head, OnsetDetectorSettings().frequencies_hz)
        sparse = InterauralLimits.of(templates.frequencies_hz, templates.measured_ratios)
        assert [find_input_faults(one, sparse) for one in recordings] == [()] * 5


def test_packaged_head_has_no_wrong_rate() -> None:
    """A talker between the directions of the packaged atlas, whose levels vary most there."""
    atlas = ea.example_atlas()
    assert atlas.reverberant_localizer is not None
    limits = atlas.reverberant_localizer.direct_sound.templates
    found = InterauralLimits.of(limits.frequencies_hz, limits.measured_ratios)
    recordings = [statistics_of(talker((azimuth, 0.0))) for azimuth in (40.0, 20.0, 0.0)]
    assert [find_input_faults(one, found) for one in recordings] == [()] * 3


def test_tones_are_found(limits: InterauralLimits) -> None:
    """A tone is tonal, with or without noise; correlations say nothing about its channels."""
    t = np.arange(2 * RATE) / RATE
    tone = 0.1 * np.sin(2 * np.pi * 1000 * t)
    x = np.stack([tone, 0.5 * np.roll(tone, 7)])
    assert faults_of(with_noise(x, -60.0), limits) == [InputFault.TONAL]


def test_identical_tones_are_the_same_signal(limits: InterauralLimits) -> None:
    """That a tone has few frequencies does not hide that both channels are identical."""
    tone = 0.1 * np.sin(2 * np.pi * 1000 * np.arange(2 * RATE) / RATE)
    assert faults_of(np.stack([tone, 0.5 * tone]), limits) == [InputFault.SAME_SIGNAL]


@pytest.mark.parametrize("sign", [-1, 1])
def test_lateral_sound_of_a_wide_head_is_not_late(sign: int) -> None:
    """Delays of up to 1.45 ms are plausible for a head that has them, 4 ms are not."""
    frequencies = OnsetDetectorSettings().frequencies_hz
    delays = np.linspace(-1.45e-3, 1.45e-3, 41)[:, None]
    level_db = -5500.0 * delays + np.random.default_rng(4).normal(0, 1.0, (41, len(frequencies)))
    ratios = 10 ** (level_db / 20) * np.exp(-2j * np.pi * frequencies * delays)
    wide = InterauralLimits.of(frequencies, ratios)
    assert wide.max_delay_seconds == pytest.approx(1.45e-3, abs=3e-5)
    assert wide.level_slope == pytest.approx(-5500.0, rel=0.05)
    sound = ea.synthetic_speech(2.5, RATE, seed=5)
    lateral = np.stack([sound, 10 ** (-5500.0 * 1.4375e-3 / 20) * np.roll(sound, 23)])[::sign]
    assert faults_of(with_noise(lateral, -40.0), wide) == []
    shifted = late(lateral[::sign], 41)[::sign]
    assert faults_of(with_noise(shifted, -40.0), wide) == [InputFault.LATE_CHANNEL]


def test_settings_concern_all_faults(limits: InterauralLimits) -> None:
    """The tolerance of the gains is that of the given settings."""
    statistics = statistics_of(talker((30.0, 0.0)) * [[1.0], [2.0]])
    tolerant = PlausibilitySettings(
        gain_tolerance_db=30.0,
        excess_level_db=30.0,
        distortion=DistortionSettings(min_gain_db=30.0),
    )
    assert find_input_faults(statistics, limits, tolerant) == ()


def test_statistics_do_not_depend_on_blocks() -> None:
    """Blocks of any size give the same sums and the same number of gaps."""
    x = interrupted(talker((50.0, 0.0)))
    whole, blocks = statistics_of(x), statistics_of(x, 777)
    np.testing.assert_allclose(blocks.cross, whole.cross, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(blocks.powers, whole.powers, rtol=1e-9)
    assert (blocks.gaps, blocks.active_frames) == (whole.gaps, whole.active_frames)


def test_streams_forget_faults(limits: InterauralLimits) -> None:
    """A channel that was dead and has sound again is not dead any more."""
    x = talker((50.0, 0.0), seconds=4.0)
    repaired = np.concatenate([x * [[1.0], [0.0]], x, x], axis=1)
    remembered = find_input_faults(statistics_of(repaired), limits)
    assert [finding.fault for finding in remembered] == [InputFault.DEAD_CHANNEL]
    assert find_input_faults(statistics_of(repaired, forgetting=0.3), limits) == ()


def test_silence_has_no_faults(limits: InterauralLimits) -> None:
    """Without sound, nothing is concluded."""
    assert faults_of(np.zeros((2, RATE)), limits) == []


def test_unusable_samples_are_replaced_and_counted() -> None:
    """NaN, infinity and huge values become zero; repeated samples at full scale are clipped."""
    x = np.full((2, 1000), 0.2)
    x[0, 5], x[1, 9], x[:, 20] = np.nan, np.inf, 1e300
    checker = SampleChecker(RATE)
    assert np.count_nonzero(checker.usable(x) == 0) == 4
    assert [(f.fault, f.value) for f in checker.findings] == [(InputFault.UNUSABLE_SAMPLES, 3)]
    clipped = np.clip(np.sin(np.arange(1000) / 9) * np.ones((2, 1)) * 1.5, -1, 1)
    assert count_clipped(clipped) > 800
    checker.usable(clipped)
    assert [finding.fault for finding in checker.findings][1:] == [InputFault.CLIPPED]


def test_clipped_fraction_is_of_the_samples_of_both_channels() -> None:
    """The fraction is at most 1, and half of it if one channel is clipped."""
    for channels, expected in (([[1.0], [1.0]], 0.999), ([[1.0], [0.0]], 0.4995)):
        checker = SampleChecker(RATE)
        checker.usable(np.ones((2, 1000)) * channels)
        assert [(f.fault, f.value) for f in checker.findings] == [(InputFault.CLIPPED, expected)]
    for n, found in ((5, 0), (7, 1)):  # repeated samples of one channel: 0.2 % and 0.3 % of all
        checker = SampleChecker(RATE)
        checker.usable(np.stack([np.arange(1000) < n, np.zeros(1000)]).astype(float))
        assert len(checker.findings) == found


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300])
def test_repeated_unusable_samples_are_not_clipped(value: float) -> None:
    """They are reported as unusable only."""
    x = np.full((2, 1000), 0.2)
    x[:, 100:900] = value
    assert count_clipped(x) == 0
    checker = SampleChecker(RATE)
    checker.usable(x)
    assert [finding.fault for finding in checker.findings] == [InputFault.UNUSABLE_SAMPLES]
