"""Separation quality: BSS-eval against its definition, invariances, assignments and errors."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import InputError
from earatlas.evaluation import quality as metrics
from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.directions import assign_directions, direction_errors
from earatlas.evaluation.masks import oracle_masks
from earatlas.evaluation.score import score

M, N = 3, 2000
TAPS = 16


def projection(sounds: list[np.ndarray], e: np.ndarray, taps: int) -> np.ndarray:
    """Project e, or its columns, onto the signals delayed by 0 … taps - 1, by least squares."""
    delayed = [np.pad(s, (k, taps - 1 - k)) for s in sounds for k in range(taps)]
    A = np.stack(delayed, axis=1)
    fitted: np.ndarray = A @ np.linalg.lstsq(A, e, rcond=None)[0]
    return fitted


def db(a: np.ndarray, b: np.ndarray) -> float:
    """Return the energy of a relative to that of b, in dB."""
    return float(10 * np.log10(np.sum(a**2) / np.sum(b**2)))


def bss_eval(images: np.ndarray, estimates: np.ndarray, taps: int) -> np.ndarray:
    """SDR, SIR, SAR, SI-SDR (4, M, 2) from the definitions, one source and ear at a time."""
    out = np.zeros((4, len(images), 2))
    for ear in range(2):
        padded = np.pad(estimates[:, ear], ((0, 0), (0, taps - 1)))
        all_sources = projection(list(images[:, ear]), padded.T, taps).T
        for m, (e, every) in enumerate(zip(padded, all_sources, strict=True)):
            own = projection([images[m, ear]], e, taps)
            s = images[m, ear]
            target = s * (estimates[m, ear] @ s) / (s @ s)
            out[:, m, ear] = [
                db(own, e - own),
                db(own, every - own),
                db(every, e - every),
                db(target, estimates[m, ear] - target),
            ]
    return out


def stacked(quality: metrics.Quality) -> np.ndarray:
    """Return all measures (4, M, 2)."""
    return np.stack([quality.sdr_db, quality.sir_db, quality.sar_db, quality.si_sdr_db])


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    """Three coloured sources at both ears, with different levels and correlated."""
    white = rng.normal(size=(M, 2, N + 7))
    taps = rng.normal(size=8)
    coloured: np.ndarray = np.apply_along_axis(np.convolve, -1, white, taps, "valid")
    coloured[1] += 0.2 * coloured[0]
    coloured *= np.array([1.0, 0.3, 5.0])[:, None, None]
    return coloured


@pytest.fixture
def estimates(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Filtered images with leakage and noise, different at each ear."""
    out = np.zeros_like(images)
    for m in range(M):
        for ear in range(2):
            taps = rng.normal(size=5) * 0.5 ** np.arange(5)
            out[m, ear] = np.convolve(images[m, ear], taps)[:N]
            out[m, ear] += 0.1 * (1 + ear) * images[(m + 1) % M, ear]
    return out + 0.05 * rng.normal(size=out.shape)


@pytest.mark.parametrize("taps", [1, TAPS])
def test_quality_equals_bss_eval(images: np.ndarray, estimates: np.ndarray, taps: int) -> None:
    """Every measure equals the least-squares definition, per source and ear."""
    quality = metrics.separation_quality(images, estimates, filter_length=taps)
    np.testing.assert_allclose(stacked(quality), bss_eval(images, estimates, taps), rtol=1e-9)
    np.testing.assert_allclose(quality.mean(), stacked(quality).mean(axis=(1, 2)), rtol=1e-12)


def test_default_filter_length_is_512(images: np.ndarray, estimates: np.ndarray) -> None:
    """The default filter has 512 taps."""
    few, n = 2, 1100
    true, found = images[:few, :, :n], estimates[:few, :, :n]
    np.testing.assert_allclose(
        stacked(metrics.separation_quality(true, found)), bss_eval(true, found, 512), rtol=1e-7
    )


def test_high_sdr_and_band_limited_signals_are_accurate(rng: np.random.Generator) -> None:
    """80 dB are accurate to 1e-4 dB, and band-limited signals to 0.05 dB."""
    white = rng.normal(size=(2, 2, N))
    near = white + 1e-4 * rng.normal(size=white.shape)
    quality = metrics.separation_quality(white, near, filter_length=TAPS)
    limited = np.minimum(bss_eval(white, near, TAPS), metrics.LIMIT_DB)
    np.testing.assert_allclose(stacked(quality), limited, atol=1e-4)
    spectrum = np.fft.rfft(white)
    spectrum[..., N // 4 :] = 0
    low = np.fft.irfft(spectrum)
    rough = low + 0.1 * low[::-1] + 0.01 * rng.normal(size=low.shape)
    quality = metrics.separation_quality(low, rough, filter_length=TAPS)
    np.testing.assert_allclose(stacked(quality), bss_eval(low, rough, TAPS), atol=0.05)


def test_quality_is_gain_invariant(images: np.ndarray, estimates: np.ndarray) -> None:
    """Gains of images and estimates change nothing, with either sign and at any level."""
    quality = metrics.separation_quality(images, estimates, filter_length=TAPS)
    gains = np.array([1e-12, -3.0, 1e9])[:, None, None]
    scaled = metrics.separation_quality(images * gains[::-1], estimates * gains, filter_length=TAPS)
    np.testing.assert_allclose(stacked(scaled), stacked(quality), rtol=1e-9)


def test_short_delay_is_allowed_by_sdr_but_not_by_si_sdr(images: np.ndarray) -> None:
    """A delay shorter than the filter keeps the SDR high, but not the SI-SDR."""
    late = np.roll(images, 3, axis=-1)
    late[..., :3] = 0
    quality = metrics.separation_quality(images, late, filter_length=TAPS)
    assert quality.sdr_db.min() > 15
    assert quality.si_sdr_db.max() < 5


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 12.0])
def test_sdr_equals_the_snr_of_white_noise(rng: np.random.Generator, snr_db: float) -> None:
    """With white noise, SDR, SAR and SI-SDR equal the SNR, and the SIR is far above."""
    true = rng.normal(size=(2, 2, 40_000))
    noise = rng.normal(size=true.shape) * 10 ** (-snr_db / 20)
    quality = metrics.separation_quality(true, true + noise, filter_length=8)
    for figures in (quality.sdr_db, quality.sar_db, quality.si_sdr_db):
        np.testing.assert_allclose(figures, snr_db, atol=0.15)
    assert quality.sir_db.min() > snr_db + 20


def test_sir_equals_the_level_of_interference(rng: np.random.Generator) -> None:
    """Leakage at -20 dB gives an SIR of 20 dB and the maximum SAR."""
    true = rng.normal(size=(2, 2, 40_000))
    quality = metrics.separation_quality(true, true + 0.1 * true[::-1], filter_length=8)
    np.testing.assert_allclose(quality.sir_db, 20.0, atol=0.1)
    np.testing.assert_allclose(quality.sdr_db, 20.0, atol=0.1)
    assert (quality.sar_db == metrics.LIMIT_DB).all()


def test_limits_of_the_scale(images: np.ndarray) -> None:
    """A perfect estimate has +LIMIT_DB, silence -LIMIT_DB, and a single source no interference."""
    top = metrics.LIMIT_DB
    perfect = metrics.separation_quality(images, images, filter_length=TAPS)
    np.testing.assert_allclose(stacked(perfect), top)
    silent = images.copy()
    silent[1, 0] = 0
    figures = stacked(metrics.separation_quality(images, silent, filter_length=TAPS))
    np.testing.assert_allclose(figures[:, 1, 0], -top)
    np.testing.assert_allclose(figures[:, 1, 1], top)
    alone = metrics.separation_quality(images[:1], images[:1] + images[1:2], filter_length=TAPS)
    np.testing.assert_allclose(alone.sir_db, top)
    assert alone.sdr_db.max() < 20


def test_singular_normal_equations(rng: np.random.Generator) -> None:
    """Equal images and pure tones, whose normal equations are singular, give finite results."""
    one = rng.normal(size=(1, 2, N))
    twice = np.concatenate([one, one])
    noisy = twice + 0.1 * rng.normal(size=twice.shape)
    quality = metrics.separation_quality(twice, noisy, filter_length=TAPS)
    np.testing.assert_allclose(quality.sdr_db, 20.0, atol=0.5)
    tones = np.sin(np.arange(N) * np.array([0.1, 0.25])[:, None, None]) * np.ones((2, 2, 1))
    leaky = tones + 0.1 * rng.normal(size=tones.shape)
    quality = metrics.separation_quality(tones, leaky, filter_length=TAPS)
    np.testing.assert_allclose(quality.sdr_db, 17.0, atol=1.0)


def test_permutation_of_sources_permutes_quality(images: np.ndarray, estimates: np.ndarray) -> None:
    """Sources in another order have the same measures in that order."""
    order = [2, 0, 1]
    quality = metrics.separation_quality(images, estimates, filter_length=TAPS)
    other = metrics.separation_quality(images[order], estimates[order], filter_length=TAPS)
    np.testing.assert_allclose(stacked(other), stacked(quality)[:, order], rtol=1e-9)


def test_ears_are_independent(images: np.ndarray, estimates: np.ndarray) -> None:
    """A change at one ear does not affect the other; exchanging the ears exchanges the measures."""
    quality = stacked(metrics.separation_quality(images, estimates, filter_length=TAPS))
    changed = estimates.copy()
    changed[:, 1] = changed[::-1, 1]
    left = stacked(metrics.separation_quality(images, changed, filter_length=TAPS))
    np.testing.assert_allclose(left[..., 0], quality[..., 0], rtol=1e-12)
    swapped = metrics.separation_quality(images[:, ::-1], estimates[:, ::-1], filter_length=TAPS)
    np.testing.assert_allclose(stacked(swapped), quality[..., ::-1], rtol=1e-12)


def test_mixture_quality_uses_the_mixture_for_every_source(images: np.ndarray) -> None:
    """mixture_quality equals separation_quality with the mixture M times."""
    mixture = images.sum(axis=0)
    quality = metrics.mixture_quality(images, mixture, filter_length=TAPS)
    same = metrics.separation_quality(images, np.stack([mixture] * M), filter_length=TAPS)
    np.testing.assert_allclose(stacked(quality), stacked(same), rtol=1e-12)


def test_estimates_are_assigned_by_sdr(images: np.ndarray, estimates: np.ndarray) -> None:
    """Any order is found, also with fewer or more estimates than sources."""
    order = np.array([2, 0, 1])
    assignment = metrics.assign_estimates(images, estimates[order], filter_length=TAPS)
    np.testing.assert_array_equal(order[assignment.found], np.arange(M))
    fewer = metrics.assign_estimates(images, estimates[[2, 0]], filter_length=TAPS)
    assert fewer.found.tolist() == [1, -1, 0]
    assert (fewer.missed, fewer.false) == ((1,), ())
    more = metrics.assign_estimates(images[[2, 0]], estimates, filter_length=TAPS)
    assert more.found.tolist() == [2, 0]
    assert (more.missed, more.false) == ((), (1,))


def test_assignment_is_the_same_at_both_ears(images: np.ndarray) -> None:
    """If the ears disagree, the larger SDR decides for both."""
    rough = images[:2].copy()
    rough[:, 1] = 0.9 * images[:2, 1][::-1] + 0.8 * images[:2, 1]
    found = metrics.assign_estimates(images[:2], rough, filter_length=TAPS).found
    assert found.tolist() == [0, 1]


def test_directions_are_assigned_by_least_total_error() -> None:
    """The sum of errors decides, not the nearest pair, and azimuth wraps behind the head."""
    true = [[0.0, 0.0], [20.0, 0.0], [179.0, 10.0]]
    found = [[-178.0, 10.0], [19.0, 0.0], [45.0, 0.0]]
    assignment = assign_directions(true, found)
    assert assignment.found.tolist() == [1, 2, 0]
    errors = direction_errors(true, found)
    np.testing.assert_allclose(errors.azimuth_degrees, [19, 25, 3], atol=1e-9)
    np.testing.assert_allclose(errors.elevation_degrees, 0, atol=1e-12)
    arc = float(ea.great_circle_error(true[2], found[0]))
    np.testing.assert_allclose(errors.great_circle_degrees, [19, 25, arc], atol=1e-9)
    assert errors.mean().azimuth_degrees == pytest.approx(47 / 3)


def test_missed_and_false_directions() -> None:
    """Numbers of sources may differ; missed sources are NaN and left out of means."""
    true = [[0.0, 0.0], [90.0, 30.0]]
    errors = direction_errors(true, [[85.0, 33.0]])
    np.testing.assert_allclose(errors.azimuth_degrees, [np.nan, 5.0])
    assert errors.mean().elevation_degrees == pytest.approx(3.0)
    three = assign_directions(true, [[80.0, 30.0], [-90.0, 0.0], [1.0, 0.0]])
    assert (three.found.tolist(), three.missed, three.false) == ([2, 0], (), (1,))
    nothing = assign_directions(true, [])
    assert (nothing.missed, nothing.false) == ((0, 1), ())
    assert np.isnan(direction_errors(true, []).mean()).all()


DIRECTIONS = np.array([[40.0, 0.0], [-50.0, 20.0], [170.0, -30.0]])


def test_score_equals_its_parts(images: np.ndarray, estimates: np.ndarray) -> None:
    """One call gives the results of the separate functions, in the order of the true sources."""
    order = [1, 2, 0]
    mixture = images.sum(axis=0)
    found = DIRECTIONS + np.array([[3.0, 0.0], [0.0, -4.0], [20.0, 0.0]])
    result = score(
        images,
        estimates[order],
        mixture,
        directions=DIRECTIONS,
        estimated_directions=found[order],
        filter_length=TAPS,
    )
    quality = metrics.separation_quality(images, estimates, filter_length=TAPS)
    before = metrics.mixture_quality(images, mixture, filter_length=TAPS)
    np.testing.assert_allclose(stacked(result.quality), stacked(quality), rtol=1e-9)
    np.testing.assert_allclose(stacked(result.mixture), stacked(before), rtol=1e-9)
    gain = stacked(quality) - stacked(before)
    np.testing.assert_allclose(stacked(result.improvement), gain, rtol=1e-7, atol=1e-9)
    assert result.errors is not None
    np.testing.assert_allclose(result.errors.azimuth_degrees, [3, 0, 20], atol=1e-9)
    np.testing.assert_allclose(result.errors.elevation_degrees, [0, 4, 0], atol=1e-9)
    assert result.by_sound.found.tolist() == [2, 0, 1]
    assert result.agree is True
    assert "assigned differently" not in repr(result)


def test_different_assignments_are_reported(images: np.ndarray, estimates: np.ndarray) -> None:
    """Correct sounds with exchanged directions have no errors, but the assignments disagree."""
    result = score(
        images,
        estimates,
        images.sum(axis=0),
        directions=DIRECTIONS,
        estimated_directions=DIRECTIONS[[1, 0, 2]],
        filter_length=TAPS,
    )
    assert result.errors is not None
    assert result.errors.mean().great_circle_degrees == pytest.approx(0, abs=1e-9)
    assert result.by_sound.found.tolist() == [0, 1, 2]
    assert result.agree is False
    assert "assigned differently" in repr(result)


def test_score_without_directions_and_with_a_missed_source(
    images: np.ndarray, estimates: np.ndarray
) -> None:
    """Directions are optional; a missed source is NaN and left out of the mean."""
    result = score(images, estimates[[2, 0]], images.sum(axis=0), filter_length=TAPS)
    assert result.errors is None
    assert result.agree is None
    assert result.by_sound.missed == (1,)
    figures = stacked(result.quality)
    assert np.isnan(figures[:, 1]).all()
    np.testing.assert_allclose(result.quality.mean(), figures[:, [0, 2]].mean(axis=(1, 2)))
    assert np.isfinite(stacked(result.mixture)).all()
    assert "1 missed, 0 false" in repr(result)


def test_oracle_masks_equal_a_loop(rng: np.random.Generator) -> None:
    """Each bin belongs to the source with the largest power at both ears together."""
    spectra = rng.normal(size=(M, 2, 5, 4)) + 1j * rng.normal(size=(M, 2, 5, 4))
    masks = oracle_masks(spectra)
    for f in range(5):
        for t in range(4):
            power = [sum(abs(spectra[m, c, f, t]) ** 2 for c in range(2)) for m in range(M)]
            assert masks[:, f, t].tolist() == [float(p == max(power)) for p in power]
    np.testing.assert_array_equal(oracle_masks(np.zeros((M, 2, 5, 4))).sum(axis=0), 1.0)


def test_oracle_masks_separate_tone_clusters(small_head: ea.Head, rng: np.random.Generator) -> None:
    """For two tone clusters, oracle masks are far better than the mixture but not perfect."""
    t = np.arange(8000) / 16_000
    sounds = []
    for low in (300.0, 450.0):
        tones = [np.sin(2 * np.pi * (low + 300 * k) * t + 6 * rng.random()) for k in range(12)]
        sounds.append(np.sum(tones, axis=0) + 0.1 * rng.normal(size=len(t)))
    scene = ea.render_scene(small_head, sounds, DIRECTIONS[:2])
    n = scene.images.shape[-1]
    masks = oracle_masks(np.stack([ea.stft(s, 1024, 128) for s in scene.images]))
    spectra = ea.stft(scene.mixture.samples, 1024, 128)
    found = ea.istft(masks[:, None] * spectra, 1024, 128, n)
    np.testing.assert_allclose(found.sum(axis=0), scene.mixture.samples, atol=1e-12)
    result = score(
        scene.images,
        found,
        scene.mixture.samples,
        directions=scene.directions,
        estimated_directions=scene.directions,
        filter_length=64,
    )
    assert result.agree is True
    assert 8 < result.quality.mean().si_sdr_db < 40
    assert result.improvement.mean().si_sdr_db > 8
    assert result.quality.mean().sir_db > result.quality.mean().sdr_db


def with_nan(x: np.ndarray) -> np.ndarray:
    """Return a copy with one NaN."""
    x = x.copy()
    x[1, 0, 5] = np.nan
    return x


def with_silence(x: np.ndarray) -> np.ndarray:
    """Return a copy with one silent ear."""
    x = x.copy()
    x[2, 1] = 0
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, e: (s, e[:2]), "estimates must be as many as images, got 2 and 3."),
        (lambda s, e: (s, e[..., :-1]), "estimates must be as long as images, got 1999 and 2000"),
        (lambda s, e: (s[:, 0], e), "images must have shape (sources, 2, samples), got (3, 2000)."),
        (lambda s, e: (s, e[:, :1]), "estimates must have shape (sources, 2, samples), got (3, 1,"),
        (lambda s, e: (s, e[:0]), "estimates must have shape (sources, 2, samples), got (0, 2,"),
        (
            lambda s, e: (s, with_nan(e)),
            "estimates must be finite, got nan in source 1, channel 0,",
        ),
        (lambda s, e: (with_nan(s), e), "images must be finite, got nan in source 1, channel 0,"),
        (lambda s, e: (with_silence(s), e), "got silence for source 2 in channel 1."),
        (lambda s, e: (s[..., :9], e[..., :9]), "at least filter_length = 16 samples, got 9."),
        (lambda s, e: ([s[0], s[1, :, :9]], e), "images must be signals of one length, got "),
    ],
)
def test_invalid_signals_raise(
    images: np.ndarray,
    estimates: np.ndarray,
    change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    message: str,
) -> None:
    """Each mistake raises an InputError that names the problem and the remedy."""
    with pytest.raises(InputError) as caught:
        metrics.separation_quality(*change(images, estimates), filter_length=TAPS)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


def test_other_invalid_inputs_raise(images: np.ndarray, estimates: np.ndarray) -> None:
    """Invalid mixtures, directions, counts, assignments, filter lengths and spectra raise."""
    mixture = images.sum(axis=0)
    with pytest.raises(InputError, match=r"mixture must have shape \(2, samples\), got \(2000,\)"):
        metrics.mixture_quality(images, mixture[0], filter_length=TAPS)
    with pytest.raises(InputError, match="mixture must be as long as images, got 1999 and 2000"):
        score(images, estimates, mixture[:, 1:], filter_length=TAPS)
    with pytest.raises(InputError, match="estimated_directions must come with directions"):
        score(images, estimates, mixture, directions=DIRECTIONS, filter_length=TAPS)
    with pytest.raises(InputError, match=r"^directions must come with estimated_directions"):
        score(images, estimates, mixture, estimated_directions=DIRECTIONS, filter_length=TAPS)
    for true, found, message in (
        (DIRECTIONS[:2], DIRECTIONS, "directions must be as many as images, got 2 and 3"),
        (
            DIRECTIONS,
            DIRECTIONS[:2],
            "estimated_directions must be as many as estimates, got 2 and 3",
        ),
    ):
        with pytest.raises(InputError, match=message):
            score(images, estimates, mixture, directions=true, estimated_directions=found)
    with pytest.raises(InputError, match="estimated_directions must be finite"):
        assign_directions(DIRECTIONS, [[np.nan, 0.0]])
    with pytest.raises(InputError, match="assignment must have 3 true and 3 estimated sources"):
        direction_errors(DIRECTIONS, DIRECTIONS, Assignment(np.array([0, 1]), 2))
    for length in (0, 2.5):
        with pytest.raises(InputError, match="filter_length must be a whole number"):
            metrics.separation_quality(images, estimates, filter_length=length)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"spectra must have shape \(M, 2, F, T\)"):
        oracle_masks(np.zeros((3, 5, 4)))
    with pytest.raises(InputError, match="spectra must be finite"):
        oracle_masks(np.full((2, 2, 5, 4), np.nan))


def test_import_does_not_load_scipy_optimize() -> None:
    """`import earatlas` imports neither fast_bss_eval nor scipy.optimize."""
    code = (
        "import sys, earatlas, earatlas.evaluation.score;"
        "sys.exit(any(m in sys.modules for m in ('fast_bss_eval', 'scipy.optimize')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
