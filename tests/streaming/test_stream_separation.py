"""Separation in a live stream: steering vectors and FIR filters from the recent frames."""

import numpy as np
import pytest

from earatlas.parts import complete
from earatlas.separation.demixing.determined import DemixingSettings, SecondMoments
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.fir_demixing import (
    FirDemixer,
    FirFilterBank,
    _longer_filters,
    fit_taps_parts,
    truncated_taps,
)
from earatlas.streaming.online_steering import OnlineSteeringVectors, SteeringSettings
from earatlas.streaming.recent_frames import RecentFrames
from earatlas.types import Array, Complex

FREQUENCIES_HZ = np.arange(1.0, 65.0) * 62.5
RECENT_SECONDS = SteeringSettings().recent_seconds


def steering_vectors(
    filterbank: Filterbank,
    first: tuple[tuple[int, int], ...],
    second: tuple[tuple[int, int], ...],
) -> OnlineSteeringVectors:
    """Return steering vectors with the given smoothing, and masks in the first three updates."""
    demixing = DemixingSettings(first, second)
    return OnlineSteeringVectors(
        filterbank, FREQUENCIES_HZ, SteeringSettings(), demixing, mask_updates=3
    )


def update_steering(
    steering: OnlineSteeringVectors, ids: tuple[int, ...], masks: Array | None, forgetting: float
) -> None:
    """Update the steering vectors of tracks at once."""
    begun = steering.begin_update(ids, forgetting)
    steering.apply(complete(begun.estimate_parts(masks, None)))


def test_recent_frames_are_ordered_and_normalized() -> None:
    """Moments are those of the last frames, for few and for many frames and blocks of frames."""
    rng = np.random.default_rng(12)
    frames = rng.normal(size=(83, 2, 5)) + 1j * rng.normal(size=(83, 2, 5))
    ear_levels = rng.uniform(1, 3, size=(2, 5))
    recent = RecentFrames(5, 37)
    for count, frame in enumerate(frames, start=1):
        earlier = recent.moments
        before = [part.copy() for part in earlier.parts]
        recent.append(frame)
        for part, values in zip(earlier.parts, before, strict=True):
            np.testing.assert_array_equal(part, values)  # views stay valid
        T = min(count, 37)
        assert len(recent) == len(recent.moments) == T
        recent_frames = frames[count - T : count] / ear_levels
        X: Complex = np.asarray(recent_frames.transpose(1, 2, 0), dtype=np.complex128)
        oracle = SecondMoments.from_spectra(X).values
        np.testing.assert_allclose(
            recent.moments.normalized(ear_levels).values, oracle, rtol=1e-4, atol=1e-5
        )
        last = recent.moments.last(T // 2 + 1, 3).normalized(ear_levels[:, :3]).values
        expected = oracle[:3, :, T - T // 2 - 1 :]
        np.testing.assert_allclose(last, expected, rtol=1e-4, atol=1e-5)


def convolved(h: Array, x: Array, n_future: int) -> Array:
    """y(n) = Σ_l h(l) x(n - l), l from -n_future on: loops."""
    y = np.zeros_like(x)
    for n in range(x.shape[1]):
        for row, matrix in enumerate(h):
            then = n - (row - n_future)
            if 0 <= then < x.shape[1]:
                y[:, n] += matrix @ x[:, then]
    return y


def test_fir_filters_are_a_convolution() -> None:
    """The latency is n_future samples; a change of taps is crossfaded over a hop."""
    rng = np.random.default_rng(2)
    hop, n_future = 5, 4
    old, new = rng.normal(size=(2, 11, 2, 2))
    x = rng.normal(size=(2, 60))
    fir = FirFilterBank(hop, len(old))
    fir.set_taps(old)
    out = []
    for k in range(12):
        if k == 6:
            fir.set_taps(new)
        fir.append(x[:, k * hop : (k + 1) * hop])
        out.append(fir.output())
    y = np.concatenate(out, axis=1)[:, n_future:]
    one, other = (convolved(h, x, n_future)[:, :-n_future] for h in (old, new))
    change = 6 * hop - n_future
    np.testing.assert_allclose(y[:, :change], one[:, :change], atol=1e-12)
    np.testing.assert_allclose(y[:, change + hop :], other[:, change + hop :], atol=1e-12)
    fade_in = (np.arange(hop) + 0.5) / hop
    between = slice(change, change + hop)
    expected = fade_in * other[:, between] + (1 - fade_in) * one[:, between]
    np.testing.assert_allclose(y[:, between], expected, atol=1e-12)


def test_fir_filters_with_extra_delay() -> None:
    """The output has the same samples, later by the extra delay."""
    rng = np.random.default_rng(6)
    x, h = rng.normal(size=(2, 60)), rng.normal(size=(9, 2, 2))
    undelayed, delayed = FirFilterBank(5, len(h)), FirFilterBank(5, len(h), 7)
    signals = []
    for fir in (undelayed, delayed):
        fir.set_taps(h)
        out = []
        for k in range(12):
            fir.append(x[:, 5 * k : 5 * (k + 1)])
            out.append(fir.output())
        signals.append(np.concatenate(out, axis=1))
    np.testing.assert_allclose(signals[1][:, 7:], signals[0][:, :-7], atol=1e-12)


def test_truncated_taps_are_those_of_the_spectrum() -> None:
    """The taps are unchanged in the middle and faded at both ends."""
    rng = np.random.default_rng(3)
    h = rng.normal(size=(48, 2, 2))
    taps = truncated_taps(np.fft.rfft(h, axis=0), 12, 24, 1 / 6)
    assert len(taps) == 12 + 24
    np.testing.assert_allclose(taps[2 : 12 + 20], np.concatenate([h[-10:], h[:20]]), atol=1e-12)
    assert (np.abs(taps[0]) < np.abs(h[-12])).all()
    assert (np.abs(taps[-1]) < np.abs(h[23])).all()


def test_steering_vectors_restart_after_motion() -> None:
    """Only frames since the motion are used, also long after it."""
    rng = np.random.default_rng(21)
    filterbank = Filterbank.from_seconds(8000, hop_seconds=0.016, window_hops=4, synthesis_hops=4)
    steering = steering_vectors(filterbank, ((5, 1),) * 4, ((5, 1),))
    F, hops = filterbank.window // 2, round(RECENT_SECONDS / filterbank.hop_seconds)
    before, after = (_random_steering_vectors(rng, F) for _ in range(2))
    active = rng.uniform(size=(2, 2 * hops)) < 0.5

    def append_frames(first: int, last: int, A: Complex) -> None:
        for k in range(first, last):
            y = (0.02 + active[:, k]) * (rng.normal(size=(F, 2)) + 1j * rng.normal(size=(F, 2)))
            assert steering.advance()
            steering.append(np.einsum("fam,fm->af", A, y))

    def leakage(last: int, forgetting: float) -> float:
        """Return the median leakage between the sources after the motion."""
        q = np.where(active[:, max(last - hops, 0) : last], 0.95, 0.05)
        masks = np.tile(q[:, None], (1, F, 1)) if steering.needs_masks((3, 5)) else None
        update_steering(steering, (3, 5), masks, forgetting)
        assert steering.vectors is not None
        vectors = steering.ear_levels.T[:, :, None] * steering.vectors
        demixed = np.abs(np.linalg.solve(vectors, after))[:, 0]
        return float(np.median(demixed.min(axis=1) / demixed.max(axis=1)))

    append_frames(0, 200, before)
    assert leakage(200, 0.0) > 0.2
    leakage(200, 0.4)
    leakage(200, 0.4)
    for first in range(200, 2 * hops - 40, 40):
        append_frames(first, first + 40, after)
        assert leakage(first + 40, 0.0) < 0.05


@pytest.mark.parametrize("n_frames", [10, 40])
def test_demixing_of_a_source_without_sound_amplifies_little(n_frames: int) -> None:
    """Where one of two sources has had no sound, the vectors do not become nearly collinear.

    The gain from the input to an image is 1 / |det A|. Where both have sound, it is the true one.
    """
    rng = np.random.default_rng(23)
    filterbank = Filterbank.from_seconds(8000, hop_seconds=0.016, window_hops=4, synthesis_hops=4)
    steering = steering_vectors(filterbank, ((5, 1),) * 4, ((5, 1),))
    F = filterbank.window // 2
    A = _random_steering_vectors(rng, F)
    active = np.arange(n_frames) % 2 == 0
    for k in range(n_frames):
        y = rng.normal(size=(2, F)) + 1j * rng.normal(size=(2, F))
        y *= np.where([active[k], not active[k]], 1.0, 0.01)[:, None]
        y[1, F // 2 :] *= 1e-3  # no sound of the second source
        noise = 1e-3 * (rng.normal(size=(2, F)) + 1j * rng.normal(size=(2, F)))
        assert steering.advance()
        steering.append(np.einsum("fam,mf->af", A, y) + noise)
    q = np.where([active, ~active], 0.95, 0.05)
    update_steering(steering, (3, 5), np.tile(q[:, None], (1, F, 1)), 0.0)
    assert steering.vectors is not None
    gain = 1 / np.abs(np.linalg.det(steering.vectors))
    assert gain[F // 2 :].max() < 8
    normalized = A / steering.ear_levels.T[:, :, None]
    normalized /= np.linalg.norm(normalized, axis=1, keepdims=True)
    true_gain = 1 / np.abs(np.linalg.det(normalized))
    np.testing.assert_allclose(gain[: F // 2], true_gain[: F // 2], rtol=0.1)


def test_frames_of_a_dropped_update_are_counted_by_the_next() -> None:
    """The statistics of the past contain as many frames as if no update had been dropped."""
    rng = np.random.default_rng(33)
    filterbank = Filterbank.from_seconds(8000, hop_seconds=0.016, window_hops=2, synthesis_hops=2)
    steering = steering_vectors(filterbank, ((5, 1),), ((5, 1),))
    F = filterbank.window // 2

    def append_frames(count: int) -> None:
        for x in rng.normal(size=(count, 2, 2, F)):
            assert steering.advance()
            steering.append(x[0] + 1j * x[1])

    append_frames(20)
    begun = steering.begin_update((1, 2), 0.0)
    append_frames(3)
    steering.apply(complete(begun.estimate_parts(rng.uniform(size=(2, F, 20)), None)))
    assert steering.begin_update((1, 2), 0.0).n_new == 3  # dropped
    append_frames(4)
    assert steering.begin_update((1, 2), 0.0).n_new == 7


def test_retain_forgets_pairs_with_deleted_tracks() -> None:
    """Pairs of retained tracks are kept; a pair with any other track restarts."""
    rng = np.random.default_rng(17)
    filterbank = Filterbank.from_seconds(8000, hop_seconds=0.016, window_hops=4, synthesis_hops=4)
    steering = steering_vectors(filterbank, ((5, 1),), ((5, 1),))
    F = filterbank.window // 2
    for x in rng.normal(size=(20, 2, 2, F)):
        assert steering.advance()
        steering.append(x[0] + 1j * x[1])
    for pair in ((1, 2), (1, 3)):
        update_steering(steering, pair, rng.uniform(size=(2, F, 20)), 0.0)
    steering.retain([1, 2, 4])
    assert (steering.n_updates((1, 2)), steering.n_updates((1, 3))) == (1, 0)


def _random_steering_vectors(rng: np.random.Generator, F: int) -> Complex:
    A = rng.normal(size=(F, 2, 2)) + 1j * rng.normal(size=(F, 2, 2)) + 4 * np.eye(2)
    return np.asarray(A, dtype=np.complex128)


def test_fit_taps_converges_to_least_squares() -> None:
    """J decreases with every step to the solution of the full least-squares problem."""
    rng = np.random.default_rng(13)
    N, n_future, n_past = 16, 3, 6
    H = np.fft.fft(rng.normal(size=(N, 2, 2)), axis=0)
    channels = np.fft.fft(rng.normal(size=(N, 2, 2)), axis=0)
    Phi = channels @ channels.conj().swapaxes(1, 2)
    half = slice(N // 2 + 1)
    mean = np.trace(Phi[half], axis1=1, axis2=2).real.mean()
    roots = np.linalg.cholesky(Phi / mean + 1e-4 * np.eye(2))  # (H - ĥ) Φ (H - ĥ)ᴴ is a square
    basis = np.exp(-2j * np.pi * np.outer(np.arange(N), np.arange(-n_future, n_past)) / N)
    A = np.einsum("fl,fik->fkil", basis, roots).reshape(2 * N, -1)  # taps (i, l) of a channel
    b = np.einsum("fei,fik->fke", H, roots).reshape(2 * N, 2)

    def J(h: Array) -> float:
        residual: Complex = A @ h.transpose(2, 0, 1).reshape(-1, 2) - b
        return float((np.abs(residual) ** 2).sum())

    exact = np.linalg.lstsq(np.r_[A.real, A.imag], np.r_[b.real, b.imag], rcond=None)[0]
    oracle = exact.reshape(2, n_future + n_past, 2).transpose(1, 2, 0)  # (l, e, i)
    start = truncated_taps(H[half], n_future, n_past, 1 / 6)
    taps = [complete(fit_taps_parts(H[half], Phi[half], start, n_future, n)) for n in (0, 1, 3, 18)]
    np.testing.assert_allclose(taps[0], start)
    np.testing.assert_allclose(taps[-1], oracle, rtol=1e-6)
    assert (np.diff([J(h) for h in taps]) < 0).all()


@pytest.fixture(scope="module")
def reverberant() -> tuple[Array, Array]:
    """Mixture and images of two intermittent noises with responses of 90 ms."""
    rng = np.random.default_rng(9)
    n = 5 * 8000
    active = np.repeat(rng.uniform(size=(2, n // 800)) < 0.5, 800, axis=1)
    signals = rng.normal(size=(2, n)) * (0.05 + active)
    responses = rng.normal(size=(2, 2, 720)) * np.exp(-np.arange(720) / 150)
    responses[:, :, 0] += [[6.0, 2.0], [1.0, 5.0]]
    images = np.array(
        [[np.convolve(s, h)[:n] for h in own] for s, own in zip(signals, responses, strict=True)]
    )
    return images.sum(axis=0), images


def fir_demixer_sdr(
    reverberant: tuple[Array, Array], window_hops: int, refined_hops: int, delay_hops: int
) -> tuple[float, float]:
    """Return the SDR of the mixture and of the output for the first noise, in dB."""
    mixture, images = reverberant
    filterbank = Filterbank.from_seconds(
        8000, hop_seconds=0.016, window_hops=4, synthesis_hops=4, delay_hops=delay_hops
    )
    shorter = steering_vectors(filterbank, ((9, 3),) * 4, ((5, 3),))
    fir_demixer = FirDemixer(
        filterbank,
        FREQUENCIES_HZ,
        window_hops,
        SteeringSettings(),
        reverberant=True,
        refined_hops=refined_hops,
    )
    window, hop = filterbank.windows()[0], filterbank.hop
    out = []
    for k in range(mixture.shape[1] // hop):
        block = mixture[:, k * hop : (k + 1) * hop]
        fir_demixer.append(block)
        start = max((k + 1) * hop - filterbank.window, 0)
        frame = np.zeros((2, filterbank.window))
        frame[:, filterbank.window - ((k + 1) * hop - start) :] = mixture[:, start : (k + 1) * hop]
        assert shorter.advance()
        shorter.append(np.fft.rfft(frame * window)[:, 1:])
        if k % 40 == 39:  # binary masks of the louder source
            ends = hop * (k + 1 + shorter.kept_hops)
            power = [[(i[:, max(e - 400, 0) : e] ** 2).sum() for e in ends] for i in images]
            first = (np.asarray(power[0]) > power[1]).astype(float)
            q = np.tile(np.stack([first, 1 - first])[:, None], (1, filterbank.window // 2, 1))
            begun = shorter.begin_update((3, 5), 0.0)
            found = complete(begun.estimate_parts(q, None))
            shorter.apply(found)
            update_of_fir = fir_demixer.steering.begin_update((3, 5), 0.0)
            refinement = fir_demixer.begin_refinement((3, 5), 0.0)
            assert (refinement is not None) == (refined_hops > 0 and k > 40)
            parts = fir_demixer.estimate_parts(
                update_of_fir, begun, found.vectors, refinement=refinement
            )
            fir_demixer.apply(complete(parts))
            assert fir_demixer.ready
        if fir_demixer.ready:
            out.append(fir_demixer.output())
    output = np.concatenate(out, axis=1)
    late = mixture.shape[1] // hop * hop - output.shape[1] - (filterbank.latency_samples - hop)
    image = images[0][:, late : late + output.shape[1]]
    half = slice(output.shape[1] // 2, None)

    def sdr(estimate: Array) -> float:
        error = image[:, half] - estimate[:, half]
        return 10 * float(np.log10((image[:, half] ** 2).sum() / (error**2).sum()))

    return sdr(mixture[:, late : late + output.shape[1]]), sdr(output)


def test_fir_demixer_separates_reverberant_noise(reverberant: tuple[Array, Array]) -> None:
    """Masks of 64 ms windows suffice, with the latency of the stream."""
    before, after = fir_demixer_sdr(reverberant, 16, 0, 0)
    assert before < 2
    assert 8 < after < 30


def test_filters_are_refined_in_longer_windows(reverberant: tuple[Array, Array]) -> None:
    """Windows of 128 ms are shorter than the responses; with refinement in 256 ms SDR grows."""
    _, short = fir_demixer_sdr(reverberant, 8, 0, 8)
    _, refined = fir_demixer_sdr(reverberant, 8, 16, 8)
    assert short + 2 < refined < 30


def test_longer_filters_are_the_same_at_common_frequencies() -> None:
    """They have the same taps, so that spectra agree where both have a frequency."""
    rng = np.random.default_rng(37)
    H = np.fft.rfft(rng.normal(size=(12, 2, 2)), axis=0)
    longer = _longer_filters(H, np.arange(1.0, 13.0))
    assert longer.shape == (12, 2, 2)
    np.testing.assert_allclose(longer[1::2], H[1:], atol=1e-12)
    # A tap after the centre and one before it, at their times
    h = np.zeros((12, 2, 2))
    h[2, 0, 1], h[-3, 1, 0] = 0.7, -0.4
    f = np.arange(1, 13)[:, None, None] / 24
    expected = np.zeros((12, 2, 2), dtype=complex)
    expected[:, 0, 1] = 0.7 * np.exp(-2j * np.pi * 2 * f[:, 0, 0])
    expected[:, 1, 0] = -0.4 * np.exp(2j * np.pi * 3 * f[:, 0, 0])
    np.testing.assert_allclose(
        _longer_filters(np.fft.rfft(h, axis=0), np.arange(1.0, 13.0)), expected, atol=1e-12
    )


def test_three_steering_vectors_follow_clusters_of_bins() -> None:
    """With half of the bins shared by two of three tracks, all vectors are close to the truth.

    Masks of a few frequencies are wrong; above the band of phases, their neighbours correct them.
    """
    rng = np.random.default_rng(3)
    filterbank = Filterbank.from_seconds(8000, hop_seconds=0.016, window_hops=2, synthesis_hops=2)
    F, T = len(filterbank.frequencies_hz) - 1, 300
    phases = np.array([-2.0, 0.1, 2.1]) + 0.2 * rng.normal(size=(F, 3))
    truth = np.stack([np.ones((F, 3)), np.exp(1j * phases)], axis=1) / np.sqrt(2)
    active = rng.random((3, 1, T)).argsort(axis=0) < rng.integers(1, 3, size=T)
    noise = rng.normal(size=(2, 3, F, T))
    y = (noise[0] + 1j * noise[1]) * active
    q = np.abs(y) ** 2 + 1e-9
    q /= q.sum(axis=0)
    wrong = [70, 85, 100]
    q[:, wrong] = q[[1, 2, 0]][:, wrong]

    def errors(max_phase_hz: float) -> Array:
        steering = OnlineSteeringVectors(
            filterbank,
            FREQUENCIES_HZ,
            SteeringSettings(),
            DemixingSettings(),
            max_phase_hz=max_phase_hz,
        )
        for x in np.einsum("fam,mft->taf", truth, y):
            assert steering.advance()
            steering.append(x)
        update_steering(steering, (1, 2, 3), q, 0.0)
        vectors = steering.vectors
        assert vectors is not None
        vectors = vectors * steering.ear_levels.T[:, :, None]
        vectors = vectors / np.sqrt((np.abs(vectors) ** 2).sum(axis=1, keepdims=True))
        error: Array = 1 - np.abs((truth.conj() * vectors).sum(axis=1)) ** 2
        return error

    corrected = errors(1000.0)
    assert np.median(corrected) < 1e-2
    assert corrected[wrong].max() < 0.05
    assert errors(np.inf)[wrong].min() > 0.1
