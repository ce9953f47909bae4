"""MESSL, DUET, the PHAT histogram and oracle masks: against loops, and on solvable mixtures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import earatlas as ea
from earatlas.baselines import duet, messl, oracle
from earatlas.baselines.masking import MaskedMixture, Separation
from earatlas.baselines.phat import (
    delay_grid,
    histogram_peaks,
    phat_histogram,
    whitened_cross_spectrum,
)
from earatlas.evaluation import quality as metrics

RATE = 16_000
SMALL = ea.CueLayout(window=256, hop=32)


def sparse_sound(rng: np.random.Generator, seconds: float = 1.0, share: float = 0.15) -> np.ndarray:
    """Return noise that is active in few bins, like speech, so that two of them rarely overlap."""
    n = int(seconds * RATE)
    spectra = ea.stft(rng.normal(size=(1, n)), 1024, 256)
    cells = rng.random((1, 57, spectra.shape[-1] // 6 + 1)) < share
    active = cells.repeat(9, axis=1).repeat(6, axis=2)[:, :513, : spectra.shape[-1]]
    sound: np.ndarray = ea.istft(spectra * (active + 1e-3), 1024, 256, n)[0]
    return sound


def delay_and_gain(sound: np.ndarray, delay_samples: float, gain: float) -> np.ndarray:
    """Return (2, n) with a delayed and scaled right channel, the anechoic model of DUET."""
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(2 * len(sound)) * delay_samples)
    delayed = np.fft.irfft(np.fft.rfft(sound, 2 * len(sound)) * turn)[: len(sound)]
    return np.stack([sound, gain * delayed])


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Two sparse signals, seven samples to the right and five to the left."""
    rng = np.random.default_rng(5)
    return np.stack(
        [delay_and_gain(sparse_sound(rng), -7.0, 1.3), delay_and_gain(sparse_sound(rng), 5.0, 0.7)]
    )


@pytest.fixture(scope="module")
def pair(images: np.ndarray) -> ea.Audio:
    """The mixture of the two images."""
    return ea.Audio(images.sum(axis=0), RATE)


@pytest.fixture(scope="module")
def messl_result(pair: ea.Audio) -> Separation:
    """The MESSL separation of the mixture."""
    return messl.separate(pair, 2)


def sdr(images: np.ndarray, sounds: np.ndarray) -> float:
    """Return the mean SDR in the given order."""
    return metrics.separation_quality(images, sounds).mean().sdr_db


# --- MESSL ---------------------------------------------------------------------------------------


def random_observations(F: int = 5, T: int = 4) -> messl.Observations:
    """Return bins with random phases and levels, one of them silent."""
    rng = np.random.default_rng(2)
    active = np.ones((F, T), dtype=np.float32)
    active[1, 2] = 0.0
    return messl.Observations(
        phase=rng.uniform(-0.5, 0.5, (F, T)).astype(np.float32),
        level=rng.normal(0, 6, (F, T)).astype(np.float32),
        active=active,
        frequencies_hz=np.linspace(300.0, 4000.0, F),
    )


def random_parameters(F: int = 5) -> messl.Parameters:
    """Return parameters of two sources with two and three delays, all different."""
    rng = np.random.default_rng(3)
    psi = rng.uniform(0.1, 1.0, 6)
    psi /= psi.sum()
    return messl.Parameters(
        source=np.array([0, 0, 1, 1, 1]),
        delay=np.array([-3e-4, -2e-4, 1e-4, 3e-4, 5e-4]),
        psi=psi[:5],
        garbage=float(psi[5]),
        xi=rng.normal(0, 0.1, (5, F)),
        phase_variance=rng.uniform(0.1, 0.3, (5, F)) ** 2,
        mu=rng.normal(0, 4, (3, F)),
        level_variance=rng.uniform(3, 9, (3, F)) ** 2,
    )


def loop_responsibilities(
    observations: messl.Observations, p: messl.Parameters
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return ν of the pairs (P, F, T), ν of garbage (F, T), residuals (P, F, T), log-likelihood."""
    F, T = observations.phase.shape
    P = len(p.psi)
    nu, garbage, d, total = np.zeros((P, F, T)), np.zeros((F, T)), np.zeros((P, F, T)), 0.0
    for f in range(F):
        for t in range(T):
            alpha = float(observations.level[f, t])
            density = np.empty(P + 1)
            for i in range(P):
                turn = (
                    observations.phase[f, t]
                    + observations.frequencies_hz[f] * p.delay[i]
                    - p.xi[i, f]
                )
                d[i, f, t] = (turn + 0.5) % 1.0 - 0.5
                m = p.source[i]
                density[i] = (
                    p.psi[i]
                    * norm.pdf(d[i, f, t], scale=np.sqrt(p.phase_variance[i, f]))
                    * norm.pdf(alpha, p.mu[m, f], np.sqrt(p.level_variance[m, f]))
                )
            density[P] = p.garbage * norm.pdf(alpha, p.mu[2, f], np.sqrt(p.level_variance[2, f]))
            if observations.active[f, t]:
                nu[:, f, t], garbage[f, t] = (
                    density[:P] / density.sum(),
                    density[P] / density.sum(),
                )
                total += float(np.log(density.sum()))
    return nu, garbage, d, total


def test_messl_e_step_equals_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums over frames equal a loop over bins for any block size, in single precision."""
    observations, p = random_observations(), random_parameters()
    nu, garbage, d, total = loop_responsibilities(observations, p)
    shares = np.stack([nu[:2].sum(axis=0), nu[2:].sum(axis=0), garbage])
    a = observations.level - p.mu[..., None]
    for block in (2**18, 1, 45):
        monkeypatch.setattr(messl._blocks, "__defaults__", (block,))
        s = messl.e_step(observations, p)
        close: dict[str, Any] = {"rtol": 2e-5, "atol": 2e-5}
        np.testing.assert_allclose(s.phase[0], nu.sum(axis=-1), **close)
        np.testing.assert_allclose(s.phase[1], (nu * d).sum(axis=-1), **close)
        np.testing.assert_allclose(s.phase[2], (nu * d**2).sum(axis=-1), **close)
        np.testing.assert_allclose(s.level[0], shares.sum(axis=-1), **close)
        np.testing.assert_allclose(s.level[1], (shares * a).sum(axis=-1), rtol=2e-5, atol=2e-4)
        np.testing.assert_allclose(s.level[2], (shares * a**2).sum(axis=-1), rtol=2e-5, atol=2e-4)
        assert s.log_likelihood == pytest.approx(total, rel=1e-5)
    masks = messl.masks(observations, p)
    np.testing.assert_allclose(masks[:, 0], shares[:2, 0], **close)
    np.testing.assert_allclose(masks[:, 4], shares[:2, 4], **close)


@pytest.mark.parametrize("bands", [1, 2, 5])
def test_messl_m_step_equals_a_loop(bands: int) -> None:
    """Weighted means and variances per band, and the prior counted as frames, equal a loop."""
    observations, p = random_observations(), random_parameters()
    nu, garbage, d, _ = loop_responsibilities(observations, p)
    shares = np.stack([nu[:2].sum(axis=0), nu[2:].sum(axis=0), garbage])
    a = observations.level - p.mu[..., None]
    statistics = messl.Statistics(
        np.stack([nu.sum(-1), (nu * d).sum(-1), (nu * d**2).sum(-1)]),
        np.stack([shares.sum(-1), (shares * a).sum(-1), (shares * a**2).sum(-1)]),
        0.0,
    )
    prior, prior_frames = np.random.default_rng(4).normal(0, 5, (2, 5)), 1.7
    new = messl.m_step(p, statistics, bands=bands, prior=prior, prior_frames=prior_frames)
    edges = {1: [0, 5], 2: [0, 2, 5], 5: [0, 1, 2, 3, 4, 5]}[bands]
    residual = d + p.xi[..., None]
    for first, last in pairwise(edges):
        for i in range(5):
            w, r = nu[i, first:last], residual[i, first:last]
            mean = (w * r).sum() / w.sum()
            np.testing.assert_allclose(new.xi[i, first:last], mean, rtol=1e-9)
            variance = (w * (r - mean) ** 2).sum() / w.sum()
            np.testing.assert_allclose(new.phase_variance[i, first:last], variance, rtol=1e-9)
    for m in range(3):
        for f in range(5):
            extra = prior_frames if m < 2 else 0.0
            prior_mean = prior[m, f] if m < 2 else 0.0
            n = shares[m, f].sum() + extra
            mean = (shares[m, f] @ observations.level[f] + extra * prior_mean) / n
            spread = (
                shares[m, f] @ (observations.level[f] - mean) ** 2
                + extra * (prior_mean - mean) ** 2
            ) / n
            assert new.mu[m, f] == pytest.approx(mean, rel=1e-9)
            assert new.level_variance[m, f] == pytest.approx(max(spread, 4.0), rel=1e-9)
    np.testing.assert_allclose(new.psi, nu.sum(axis=(1, 2)) / 19, rtol=1e-9)  # one bin is silent
    assert new.psi.sum() + new.garbage == pytest.approx(1.0, abs=1e-12)


def test_messl_likelihood_never_decreases(pair: ea.Audio) -> None:
    """The penalized likelihood increases while the bands are fixed and nothing is pruned."""
    settings = messl.MESSLSettings(pruning_ratio=0.0)
    mixture = MaskedMixture.of(pair, SMALL)
    observations = messl.observe(mixture).frames(4)
    delays = np.array([-7.0, 5.0]) / RATE
    p = messl.initial_parameters(observations, delays, delay_grid(21), settings)
    prior, prior_frames = p.mu[:-1], 4.0
    for bands in (1, 16, 128):
        scores = []
        for _ in range(5):
            s = messl.e_step(observations, p)
            level = norm.logpdf(prior, p.mu[:-1], np.sqrt(p.level_variance[:-1])).sum()
            scores.append(s.log_likelihood + prior_frames * level)
            p = messl.m_step(
                p, s, bands=bands, prior=prior, prior_frames=prior_frames, settings=settings
            )
        assert scores[-1] > scores[0] + 10
        assert (np.diff(scores) > -1e-6 * abs(scores[0])).all()


def test_messl_initial_parameters() -> None:
    """All sources are as probable as garbage; each is near its delay, narrower beside others."""
    delays = np.array([-4.0, 2.0, 3.5]) / RATE
    p = messl.initial_parameters(random_observations(), delays, delay_grid())
    shares = np.add.reduceat(p.psi, p.starts)
    np.testing.assert_allclose(shares, 0.25, rtol=2e-3)  # except for pruned delays
    assert p.garbage == 0.25
    for m, width in enumerate([1.0, 0.3, 0.3]):
        own = p.source == m
        psi, offset = p.psi[own], p.delay[own] * RATE - delays[m] * RATE
        expected = np.exp(-0.5 * (offset / width) ** 2)
        np.testing.assert_allclose(psi / psi.max(), expected, atol=1e-5)
    np.testing.assert_array_equal(
        p.mu[:3], messl.ild_prior(delays, random_observations().frequencies_hz)
    )


def test_messl_separates_delays_and_gains(
    images: np.ndarray, pair: ea.Audio, messl_result: Separation
) -> None:
    """In the anechoic case delays are found to half a sample, with an SDR near the oracle."""
    np.testing.assert_allclose(messl_result.delays_seconds * RATE, [-7.0, 5.0], atol=0.51)
    best = sdr(images, oracle.separate(pair, images).render())
    assert best - 4 < sdr(images, messl_result.render()) < best + 4
    assert sdr(images, messl_result.render()) > 10


def test_messl_masks_sum_to_at_most_one(pair: ea.Audio, messl_result: Separation) -> None:
    """Masks are between 0 and 1 with a sum of at most 1, in the bins of the layout."""
    assert messl_result.masks.shape == (2, 512, 126)
    assert messl_result.masks.min() >= 0
    assert messl_result.masks.sum(axis=0).max() <= 1 + 1e-5
    assert 0.5 < messl_result.masks.sum(axis=0).mean() < 1
    assert messl_result.render().shape == (2, 2, RATE)
    assert "delays -4" in repr(messl_result)
    np.testing.assert_array_equal(messl_result.binary.sum(axis=0), 1.0)


def test_messl_is_symmetric_in_the_ears(pair: ea.Audio, messl_result: Separation) -> None:
    """Exchanging the ears negates the delays and keeps the mask of each source."""
    mirrored = messl.separate(ea.Audio(pair.samples[::-1], RATE), 2)
    np.testing.assert_allclose(
        mirrored.delays_seconds, -messl_result.delays_seconds[::-1], atol=1e-12
    )
    same = np.abs(mirrored.masks - messl_result.masks[::-1]) < 1e-3
    assert same.mean() > 0.9998  # a phase of half a turn may round to either side


def test_messl_is_gain_invariant(pair: ea.Audio, messl_result: Separation) -> None:
    """A gain of a power of two changes no mask, and zero padding hardly any."""
    louder = messl.separate(ea.Audio(4 * pair.samples, RATE), 2)
    np.testing.assert_allclose(louder.masks, messl_result.masks, atol=1e-6)
    padded = messl.separate(ea.Audio(np.pad(pair.samples, ((0, 0), (RATE, 0))), RATE), 2)
    assert np.isfinite(padded.masks).all()
    np.testing.assert_allclose(padded.delays_seconds, messl_result.delays_seconds, atol=1e-12)


def test_messl_ild_prior() -> None:
    """The prior is odd in the delay; the lagging ear is weaker, most at high frequencies."""
    f = np.array([500.0, 2000.0, 5000.0])
    prior = messl.ild_prior([-6e-4, 0.0, 6e-4], f)
    np.testing.assert_allclose(prior[0], -prior[2], rtol=1e-12)
    np.testing.assert_array_equal(prior[1], 0.0)
    assert (prior[2] < -1).all()
    assert prior[2, 2] < prior[2, 0]
    assert np.abs(messl.ild_prior(delay_grid(), np.arange(1, 513) * 15.625)).max() < 35


@pytest.mark.parametrize("iterations", [1, 2, 5, 9, 16, 30])
def test_messl_band_counts_grow(iterations: int) -> None:
    """There is one count per iteration; counts never decrease and end with all frequencies."""
    counts = messl.band_counts(512, iterations)
    assert len(counts) == iterations
    assert (np.diff(counts) >= 0).all()
    assert counts[-1] == 512
    assert messl.separate(ea.Audio(np.eye(2, 4000, 100) + 0.1, RATE), 1, iterations=1).masks.any()


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # KU100 file
def test_messl_on_a_measured_head(data: Path) -> None:
    """For two talkers with KU100 the SDR is far above the mixture and below the oracle."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    files = sorted((data / "speech").glob("*.flac"))[:2]
    sounds = [ea.read_mono(file, rate=RATE)[: 2 * RATE] for file in files]
    scene = ea.render_scene(head, sounds, [(40.0, 10.0), (-25.0, 0.0)])
    found = messl.separate(scene.mixture, 2).render()[
        [1, 0]
    ]  # delays ascend, so the right source is first
    bound = sdr(scene.images, oracle.separate(scene.mixture, scene.images).render())
    assert 8 < sdr(scene.images, found) < bound


# --- DUET ----------------------------------------------------------------------------------------


def test_duet_separates_delays_and_gains(images: np.ndarray, pair: ea.Audio) -> None:
    """Delays are found although phases wrap, and the SDR is near the oracle."""
    found = duet.separate(pair, 2)
    np.testing.assert_allclose(found.delays_seconds * RATE, [-7.0, 5.0], atol=0.51)
    best = sdr(images, oracle.separate(pair, images).render())
    assert best - 2 < sdr(images, found.render()) < best + 0.5
    np.testing.assert_array_equal(found.masks, found.binary)


def test_duet_sources_sum_to_the_mixture(pair: ea.Audio) -> None:
    """Every bin, also at 0 Hz, belongs to one source, so that the sources sum to the mixture."""
    found = duet.separate(pair, 3)
    np.testing.assert_array_equal(found.masks.sum(axis=0), 1.0)
    np.testing.assert_allclose(found.render().sum(axis=0), pair.samples, atol=1e-12)


def test_duet_histogram_equals_a_loop() -> None:
    """Each bin counts at every delay that its phase allows, as in a loop over bins."""
    rng = np.random.default_rng(8)
    left, right = rng.normal(size=(2, 4, 3)) + 1j * rng.normal(size=(2, 4, 3))
    left[2, 1] = 0.0
    hz, grid = np.array([400.0, 1500.0, 3000.0, 7000.0]), delay_grid(11)
    attenuation = np.linspace(-1, 1, 5)
    expected = np.zeros((5, 11))
    for f in range(4):
        for t in range(3):
            if left[f, t] == 0:
                continue
            ratio = right[f, t] / left[f, t]
            alpha = np.clip(abs(ratio) - 1 / abs(ratio), -1, 1)
            for k in range(-20, 21):
                delay = (-np.angle(ratio) / (2 * np.pi) + k) / hz[f]
                if abs(delay) < grid[-1] + (grid[1] - grid[0]) / 2:
                    cell = np.argmin(abs(attenuation - alpha)), np.argmin(abs(grid - delay))
                    weight = abs(left[f, t] * right[f, t]) ** 0.5 * (2 * np.pi * hz[f]) ** 2
                    expected[cell] += weight
    found = duet.histogram(
        left, right, hz, delays_seconds=grid, attenuation=attenuation, p=0.5, q=2.0
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_duet_assignment_equals_a_loop() -> None:
    """Each bin belongs to the source that predicts R from L with the least error."""
    rng = np.random.default_rng(9)
    left, right = rng.normal(size=(2, 5, 4)) + 1j * rng.normal(size=(2, 5, 4))
    hz, gains, delays = np.linspace(300, 7000, 5), np.array([0.5, 1.0, 2.1]), np.array([-3, 1, 6])
    masks = duet.assign(left, right, hz, gains, delays / RATE)
    for f in range(5):
        for t in range(4):
            cost = [
                abs(a * np.exp(-2j * np.pi * hz[f] * s / RATE) * left[f, t] - right[f, t]) ** 2
                / (1 + a * a)
                for a, s in zip(gains, delays, strict=True)
            ]
            assert masks[:, f, t].tolist() == [float(m == np.argmin(cost)) for m in range(3)]


def test_duet_peaks_keep_minimum_separation() -> None:
    """The second peak is not a shoulder of the first; another level at the same delay counts."""
    h = np.zeros((12, 20))
    h[6, 10], h[6, 11], h[0, 10], h[6, 15] = 9.0, 8.0, 7.0, 5.0
    rows, columns = duet.peaks(h, 3)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(6, 10), (0, 10), (6, 15)]


# --- PHAT histogram ------------------------------------------------------------------------------


def test_phat_histogram_counts_frames(pair: ea.Audio) -> None:
    """The histogram counts the best delay of each frame, without silent frames."""
    mixture = MaskedMixture.of(pair, SMALL)
    spectra = mixture.spectra[..., 40:60].copy()
    spectra[..., 3] = 0.0
    grid, hz = delay_grid(13), SMALL.frequencies_hz
    expected = np.zeros(13)
    for t in range(20):
        if t == 3:
            continue
        ratio = spectra[1, 1:, t] / spectra[0, 1:, t]
        g = [np.real(np.exp(2j * np.pi * hz * tau) * ratio / abs(ratio)).sum() for tau in grid]
        expected[np.argmax(g)] += 1
    np.testing.assert_array_equal(
        phat_histogram(whitened_cross_spectrum(spectra), hz, grid), expected
    )
    assert expected.sum() == 19


def test_phat_peaks_keep_minimum_separation() -> None:
    """Delays within one sample of a peak belong to it, and peaks are in ascending order."""
    grid, h = delay_grid(), np.zeros(61)
    h[[20, 21, 22, 23, 50]] = 5, 9, 8, 3, 4
    np.testing.assert_allclose(histogram_peaks(h, grid, 2), grid[[21, 50]])
    np.testing.assert_allclose(histogram_peaks(h, grid, 1), grid[[21]])


# --- oracle masks --------------------------------------------------------------------------------


def test_oracle_exceeds_the_mixture(images: np.ndarray, pair: ea.Audio) -> None:
    """The oracle is at least 10 dB above the mixture, and its sources sum to the mixture."""
    truth = oracle.separate(pair, images)
    assert sdr(images, truth.render()) > sdr(images, np.stack([pair.samples] * 2)) + 10
    np.testing.assert_allclose(truth.render().sum(axis=0), pair.samples, atol=1e-12)
    np.testing.assert_array_equal(truth.masks.sum(axis=0), 1.0)
    assert np.isnan(truth.delays_seconds).all()


def test_oracle_at_another_rate(images: np.ndarray) -> None:
    """Images have the rate of the recording; masks have the bins of the layout."""
    slow = np.stack([ea.Audio(i, RATE).at_rate(12_000).samples for i in images])
    found = oracle.separate(ea.Audio(slow.sum(axis=0), 12_000), slow)
    assert found.masks.shape == (2, 512, 126)
    assert found.render().shape == (2, 2, RATE)


def test_invalid_input_raises(images: np.ndarray, pair: ea.Audio) -> None:
    """Each error names the argument, the rule, the value and the remedy."""
    for call in (messl.separate, duet.separate):
        with pytest.raises(ea.InputError, match=r"n_sources must be at least 1, got 0\. Give"):
            call(pair, 0)
        with pytest.raises(ea.InputError, match="two channels"):
            call(replace(pair, samples=pair.samples[:1]), 2)
        with pytest.raises(ea.InputError, match="sound in both channels, got a silent one"):
            call(replace(pair, samples=pair.samples * [[1], [0]]), 2)
    with pytest.raises(ea.InputError, match=r"iterations must be at least 1, got 0\."):
        messl.separate(pair, 2, iterations=0)
    with pytest.raises(ea.InputError, match=r"delays must be at least 3, got 1\."):
        duet.separate(pair, 2, delays=1)
    with pytest.raises(ea.InputError, match=r"images must have shape \(M, 2, 16000\)"):
        oracle.separate(pair, images[..., :-1])
