"""MESSL, DUET, PHAT's histogram and the bounds: against loops, and on mixtures they must solve."""

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
from earatlas.baselines.phat import delay_grid, histogram_peaks, phat_histogram, whitened
from earatlas.evaluation import quality as metrics

RATE = 16_000
SMALL = ea.CueLayout(window=256, hop=32)


def sparse_sound(rng: np.random.Generator, seconds: float = 1.0, share: float = 0.15) -> np.ndarray:
    """Noise that is on in few bins, as speech is, so that two of them rarely meet."""
    n = int(seconds * RATE)
    spectra = ea.stft(rng.normal(size=(1, n)), 1024, 256)
    cells = rng.random((1, 57, spectra.shape[-1] // 6 + 1)) < share
    on = cells.repeat(9, axis=1).repeat(6, axis=2)[:, :513, : spectra.shape[-1]]
    sound: np.ndarray = ea.istft(spectra * (on + 1e-3), 1024, 256, n)[0]
    return sound


def two_ears(sound: np.ndarray, delay_samples: float, gain: float) -> np.ndarray:
    """Left as it is, right later and weaker: DUET's anechoic model."""
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(2 * len(sound)) * delay_samples)
    later = np.fft.irfft(np.fft.rfft(sound, 2 * len(sound)) * turn)[: len(sound)]
    return np.stack([sound, gain * later])


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Two sparse sounds, seven samples from the right and five from the left."""
    rng = np.random.default_rng(5)
    return np.stack([two_ears(sparse_sound(rng), -7.0, 1.3), two_ears(sparse_sound(rng), 5.0, 0.7)])


@pytest.fixture(scope="module")
def pair(images: np.ndarray) -> ea.Audio:
    """Their mixture."""
    return ea.Audio(images.sum(axis=0), RATE)


@pytest.fixture(scope="module")
def unmixed(pair: ea.Audio) -> Separation:
    """What MESSL makes of it."""
    return messl.separate(pair, 2)


def sdr(images: np.ndarray, sounds: np.ndarray) -> float:
    """Mean SDR in the given order."""
    return metrics.separation_quality(images, sounds).mean().sdr_db


# --- MESSL ---------------------------------------------------------------------------------------


def some_observations(F: int = 5, T: int = 4) -> messl.Observations:
    """Bins with any phase and level, one of them silent."""
    rng = np.random.default_rng(2)
    heard = np.ones((F, T), dtype=np.float32)
    heard[1, 2] = 0.0
    return messl.Observations(
        phase=rng.uniform(-0.5, 0.5, (F, T)).astype(np.float32),
        level=rng.normal(0, 6, (F, T)).astype(np.float32),
        heard=heard,
        frequencies_hz=np.linspace(300.0, 4000.0, F),
    )


def some_parameters(F: int = 5) -> messl.Parameters:
    """Two sources with two and three delays, everything different."""
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
    seen: messl.Observations, p: messl.Parameters
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """ν of the pairs (P, F, T) and of garbage (F, T), residuals (P, F, T), the log-likelihood."""
    F, T = seen.phase.shape
    P = len(p.psi)
    nu, garbage, d, total = np.zeros((P, F, T)), np.zeros((F, T)), np.zeros((P, F, T)), 0.0
    for f in range(F):
        for t in range(T):
            alpha = float(seen.level[f, t])
            density = np.empty(P + 1)
            for i in range(P):
                turn = seen.phase[f, t] + seen.frequencies_hz[f] * p.delay[i] - p.xi[i, f]
                d[i, f, t] = (turn + 0.5) % 1.0 - 0.5
                m = p.source[i]
                density[i] = (
                    p.psi[i]
                    * norm.pdf(d[i, f, t], scale=np.sqrt(p.phase_variance[i, f]))
                    * norm.pdf(alpha, p.mu[m, f], np.sqrt(p.level_variance[m, f]))
                )
            density[P] = p.garbage * norm.pdf(alpha, p.mu[2, f], np.sqrt(p.level_variance[2, f]))
            if seen.heard[f, t]:
                nu[:, f, t], garbage[f, t] = (
                    density[:P] / density.sum(),
                    density[P] / density.sum(),
                )
                total += float(np.log(density.sum()))
    return nu, garbage, d, total


def test_messl_e_step_is_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over frames, bin by bin from the density; in blocks of any size. Single precision."""
    seen, p = some_observations(), some_parameters()
    nu, garbage, d, total = loop_responsibilities(seen, p)
    shares = np.stack([nu[:2].sum(axis=0), nu[2:].sum(axis=0), garbage])
    a = seen.level - p.mu[..., None]
    for block in (2**18, 1, 45):
        monkeypatch.setattr(messl, "_BLOCK", block)
        s = messl.e_step(seen, p)
        close: dict[str, Any] = {"rtol": 2e-5, "atol": 2e-5}
        np.testing.assert_allclose(s.phase[0], nu.sum(axis=-1), **close)
        np.testing.assert_allclose(s.phase[1], (nu * d).sum(axis=-1), **close)
        np.testing.assert_allclose(s.phase[2], (nu * d**2).sum(axis=-1), **close)
        np.testing.assert_allclose(s.level[0], shares.sum(axis=-1), **close)
        np.testing.assert_allclose(s.level[1], (shares * a).sum(axis=-1), rtol=2e-5, atol=2e-4)
        np.testing.assert_allclose(s.level[2], (shares * a**2).sum(axis=-1), rtol=2e-5, atol=2e-4)
        assert s.log_likelihood == pytest.approx(total, rel=1e-5)
    masks = messl.masks(seen, p)
    np.testing.assert_allclose(masks[:, 0], shares[:2, 0], **close)
    np.testing.assert_allclose(masks[:, 4], shares[:2, 4], **close)


@pytest.mark.parametrize("bands", [1, 2, 5])
def test_messl_m_step_is_its_formula(bands: int) -> None:
    """Weighted means and variances over the bins of a band, and the prior as so many frames."""
    seen, p = some_observations(), some_parameters()
    nu, garbage, d, _ = loop_responsibilities(seen, p)
    shares = np.stack([nu[:2].sum(axis=0), nu[2:].sum(axis=0), garbage])
    a = seen.level - p.mu[..., None]
    statistics = messl.Statistics(
        np.stack([nu.sum(-1), (nu * d).sum(-1), (nu * d**2).sum(-1)]),
        np.stack([shares.sum(-1), (shares * a).sum(-1), (shares * a**2).sum(-1)]),
        0.0,
    )
    prior, worth = np.random.default_rng(4).normal(0, 5, (2, 5)), 1.7
    new = messl.m_step(p, statistics, bands=bands, prior=prior, prior_frames=worth)
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
            extra = worth if m < 2 else 0.0
            aim = prior[m, f] if m < 2 else 0.0
            n = shares[m, f].sum() + extra
            mean = (shares[m, f] @ seen.level[f] + extra * aim) / n
            spread = (shares[m, f] @ (seen.level[f] - mean) ** 2 + extra * (aim - mean) ** 2) / n
            assert new.mu[m, f] == pytest.approx(mean, rel=1e-9)
            assert new.level_variance[m, f] == pytest.approx(max(spread, 4.0), rel=1e-9)
    np.testing.assert_allclose(new.psi, nu.sum(axis=(1, 2)) / 19, rtol=1e-9)  # one is silent
    assert new.psi.sum() + new.garbage == pytest.approx(1.0, abs=1e-12)


def test_messl_likelihood_never_falls(pair: ea.Audio, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the prior's frames counted, while the bands stay the same and nothing is pruned."""
    monkeypatch.setattr(messl, "_PRUNE", 0.0)
    mixture = MaskedMixture.of(pair, SMALL)
    seen = messl.observe(mixture).frames(4)
    p = messl.start(seen, np.array([-7.0, 5.0]) / RATE, delay_grid(21))
    prior, worth = p.mu[:-1], 4.0
    for bands in (1, 16, 128):
        scores = []
        for _ in range(5):
            s = messl.e_step(seen, p)
            level = norm.logpdf(prior, p.mu[:-1], np.sqrt(p.level_variance[:-1])).sum()
            scores.append(s.log_likelihood + worth * level)
            p = messl.m_step(p, s, bands=bands, prior=prior, prior_frames=worth)
        assert scores[-1] > scores[0] + 10
        assert (np.diff(scores) > -1e-6 * abs(scores[0])).all()


def test_messl_starts_at_its_delays() -> None:
    """All sources as probable as garbage, each at its delay, narrower where another is near."""
    delays = np.array([-4.0, 2.0, 3.5]) / RATE
    p = messl.start(some_observations(), delays, delay_grid())
    shares = np.add.reduceat(p.psi, p.starts)
    np.testing.assert_allclose(shares, 0.25, rtol=2e-3)  # but for what was pruned
    assert p.garbage == 0.25
    for m, width in enumerate([1.0, 0.3, 0.3]):
        own = p.source == m
        psi, offset = p.psi[own], p.delay[own] * RATE - delays[m] * RATE
        expected = np.exp(-0.5 * (offset / width) ** 2)
        np.testing.assert_allclose(psi / psi.max(), expected, atol=1e-5)
    np.testing.assert_array_equal(
        p.mu[:3], messl.ild_prior(delays, some_observations().frequencies_hz)
    )


def test_messl_unmixes_delays_and_gains(
    images: np.ndarray, pair: ea.Audio, unmixed: Separation
) -> None:
    """The anechoic case it was made for: delays to half a sample, sound near the oracle's."""
    np.testing.assert_allclose(unmixed.delays_seconds * RATE, [-7.0, 5.0], atol=0.51)
    best = sdr(images, oracle.separate(pair, images).render())
    assert best - 4 < sdr(images, unmixed.render()) < best + 4
    assert sdr(images, unmixed.render()) > 10


def test_messl_masks_are_shares(pair: ea.Audio, unmixed: Separation) -> None:
    """From 0 to 1, at most 1 together, in the layout's bins and frames."""
    assert unmixed.masks.shape == (2, 512, 126)
    assert unmixed.masks.min() >= 0
    assert unmixed.masks.sum(axis=0).max() <= 1 + 1e-5
    assert 0.5 < unmixed.masks.sum(axis=0).mean() < 1
    assert unmixed.render().shape == (2, 2, RATE)
    assert "delays -4" in repr(unmixed)
    np.testing.assert_array_equal(unmixed.binary.sum(axis=0), 1.0)


def test_messl_mirrors_with_the_ears(pair: ea.Audio, unmixed: Separation) -> None:
    """Swapping the ears turns the delays round and leaves each source its mask."""
    mirrored = messl.separate(ea.Audio(pair.samples[::-1], RATE), 2)
    np.testing.assert_allclose(mirrored.delays_seconds, -unmixed.delays_seconds[::-1], atol=1e-12)
    same = np.abs(mirrored.masks - unmixed.masks[::-1]) < 1e-3
    assert same.mean() > 0.9998  # a phase of half a turn may round to either side


def test_messl_hears_no_gain(pair: ea.Audio, unmixed: Separation) -> None:
    """Both ears louder by a power of two: the same masks; zeros before and after change little."""
    louder = messl.separate(ea.Audio(4 * pair.samples, RATE), 2)
    np.testing.assert_allclose(louder.masks, unmixed.masks, atol=1e-6)
    padded = messl.separate(ea.Audio(np.pad(pair.samples, ((0, 0), (RATE, 0))), RATE), 2)
    assert np.isfinite(padded.masks).all()
    np.testing.assert_allclose(padded.delays_seconds, unmixed.delays_seconds, atol=1e-12)


def test_messl_ild_prior() -> None:
    """Odd in the delay, none ahead; the ear that hears later hears less, most at high pitch."""
    f = np.array([500.0, 2000.0, 5000.0])
    prior = messl.ild_prior([-6e-4, 0.0, 6e-4], f)
    np.testing.assert_allclose(prior[0], -prior[2], rtol=1e-12)
    np.testing.assert_array_equal(prior[1], 0.0)
    assert (prior[2] < -1).all()
    assert prior[2, 2] < prior[2, 0]
    assert np.abs(messl.ild_prior(delay_grid(), np.arange(1, 513) * 15.625)).max() < 35


@pytest.mark.parametrize("iterations", [1, 2, 5, 9, 16, 30])
def test_messl_bands_grow(iterations: int) -> None:
    """As many counts as iterations, never fewer bands than before, all bins at the end."""
    counts = messl.band_counts(512, iterations)
    assert len(counts) == iterations
    assert (np.diff(counts) >= 0).all()
    assert counts[-1] == 512
    assert messl.separate(ea.Audio(np.eye(2, 4000, 100) + 0.1, RATE), 1, iterations=1).masks.any()


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # of the KU100
def test_messl_on_a_measured_head(data: Path) -> None:
    """Two readers at KU100: well above the mixture, below what the truth's masks give."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    files = sorted((data / "speech").glob("*.flac"))[:2]
    sounds = [ea.read_mono(file, rate=RATE)[: 2 * RATE] for file in files]
    scene = ea.render_scene(head, sounds, [(40.0, 10.0), (-25.0, 0.0)])
    found = messl.separate(scene.mixture, 2).render()[[1, 0]]  # delays ascend: right one first
    bound = sdr(scene.images, oracle.separate(scene.mixture, scene.images).render())
    assert 8 < sdr(scene.images, found) < bound


# --- DUET ----------------------------------------------------------------------------------------


def test_duet_unmixes_delays_and_gains(images: np.ndarray, pair: ea.Audio) -> None:
    """Its own model, though phases wrap at seven samples: delays on the grid, sound as oracle's."""
    found = duet.separate(pair, 2)
    np.testing.assert_allclose(found.delays_seconds * RATE, [-7.0, 5.0], atol=0.51)
    best = sdr(images, oracle.separate(pair, images).render())
    assert best - 2 < sdr(images, found.render()) < best + 0.5
    np.testing.assert_array_equal(found.masks, found.binary)


def test_duet_parts_add_up(pair: ea.Audio) -> None:
    """Every bin is somebody's, 0 Hz too: the sources sum to the mixture."""
    found = duet.separate(pair, 3)
    np.testing.assert_array_equal(found.masks.sum(axis=0), 1.0)
    np.testing.assert_allclose(found.render().sum(axis=0), pair.samples, atol=1e-12)


def test_duet_histogram_is_its_formula() -> None:
    """Every bin at every delay that its phase allows, weighted; bin by bin."""
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


def test_duet_assigns_by_both_ears() -> None:
    """The source that explains R from L with the least error, by its formula."""
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


def test_peaks_keep_apart() -> None:
    """The second peak is not the first one's shoulder; another level at the same delay counts."""
    h = np.zeros((12, 20))
    h[6, 10], h[6, 11], h[0, 10], h[6, 15] = 9.0, 8.0, 7.0, 5.0
    rows, columns = duet.peaks(h, 3)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(6, 10), (0, 10), (6, 15)]


# --- PHAT's histogram ----------------------------------------------------------------------------


def test_phat_histogram_counts_frames(pair: ea.Audio) -> None:
    """The best delay of each frame, by its formula; frames that are silent do not count."""
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
    np.testing.assert_array_equal(phat_histogram(whitened(spectra), hz, grid), expected)
    assert expected.sum() == 19


def test_phat_peaks_ascend_and_keep_apart() -> None:
    """A sample on either side of a peak belongs to it."""
    grid, h = delay_grid(), np.zeros(61)
    h[[20, 21, 22, 23, 50]] = 5, 9, 8, 3, 4
    np.testing.assert_allclose(histogram_peaks(h, grid, 2), grid[[21, 50]])
    np.testing.assert_allclose(histogram_peaks(h, grid, 1), grid[[21]])


# --- bounds and borders --------------------------------------------------------------------------


def test_oracle_is_above_and_mixture_below(images: np.ndarray, pair: ea.Audio) -> None:
    """Ten decibels and more between them; the images' sounds add up to the mixture."""
    truth = oracle.separate(pair, images)
    assert sdr(images, truth.render()) > sdr(images, np.stack([pair.samples] * 2)) + 10
    np.testing.assert_allclose(truth.render().sum(axis=0), pair.samples, atol=1e-12)
    np.testing.assert_array_equal(truth.masks.sum(axis=0), 1.0)
    assert np.isnan(truth.delays_seconds).all()


def test_oracle_at_another_rate(images: np.ndarray) -> None:
    """Images at the recording's own rate; the masks are in the layout's bins."""
    slow = np.stack([ea.Audio(i, RATE).at_rate(12_000).samples for i in images])
    found = oracle.separate(ea.Audio(slow.sum(axis=0), 12_000), slow)
    assert found.masks.shape == (2, 512, 126)
    assert found.render().shape == (2, 2, RATE)


def test_wrong_input_is_refused(images: np.ndarray, pair: ea.Audio) -> None:
    """One wording: what, the rule, what was given, what to do."""
    for call in (messl.separate, duet.separate):
        with pytest.raises(ea.InputError, match=r"n_sources must be at least 1, got 0\. Say"):
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
