"""Metrics: BSS-eval as its definition says, invariances, assignments, and what is refused."""

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
    """e, or its columns, on the span of the sounds delayed by 0 … taps - 1, by least squares."""
    delayed = [np.pad(s, (k, taps - 1 - k)) for s in sounds for k in range(taps)]
    A = np.stack(delayed, axis=1)
    fitted: np.ndarray = A @ np.linalg.lstsq(A, e, rcond=None)[0]
    return fitted


def db(a: np.ndarray, b: np.ndarray) -> float:
    """Energy of a over that of b."""
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
    """All figures (4, M, 2)."""
    return np.stack([quality.sdr_db, quality.sir_db, quality.sar_db, quality.si_sdr_db])


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    """Three coloured sources at both ears, of different levels, correlated between sources."""
    white = rng.normal(size=(M, 2, N + 7))
    taps = rng.normal(size=8)
    coloured: np.ndarray = np.apply_along_axis(np.convolve, -1, white, taps, "valid")
    coloured[1] += 0.2 * coloured[0]
    coloured *= np.array([1.0, 0.3, 5.0])[:, None, None]
    return coloured


@pytest.fixture
def estimates(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The images filtered, leaking into each other and with noise, differently at each ear."""
    out = np.zeros_like(images)
    for m in range(M):
        for ear in range(2):
            taps = rng.normal(size=5) * 0.5 ** np.arange(5)
            out[m, ear] = np.convolve(images[m, ear], taps)[:N]
            out[m, ear] += 0.1 * (1 + ear) * images[(m + 1) % M, ear]
    return out + 0.05 * rng.normal(size=out.shape)


@pytest.mark.parametrize("taps", [1, TAPS])
def test_quality_is_bss_eval(images: np.ndarray, estimates: np.ndarray, taps: int) -> None:
    """Every figure is what least squares gives, source by source and ear by ear."""
    quality = metrics.separation_quality(images, estimates, filter_length=taps)
    np.testing.assert_allclose(stacked(quality), bss_eval(images, estimates, taps), rtol=1e-9)
    np.testing.assert_allclose(quality.mean(), stacked(quality).mean(axis=(1, 2)), rtol=1e-12)


def test_quality_is_bss_eval_at_its_own_length(images: np.ndarray, estimates: np.ndarray) -> None:
    """The default is 512 taps."""
    few, n = 2, 1100
    true, found = images[:few, :, :n], estimates[:few, :, :n]
    np.testing.assert_allclose(
        stacked(metrics.separation_quality(true, found)), bss_eval(true, found, 512), rtol=1e-7
    )


def test_high_and_band_limited_figures_are_right(rng: np.random.Generator) -> None:
    """80 dB to 1e-4 dB, and sounds without the upper half of the spectrum to 0.05 dB."""
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


def test_gains_change_nothing(images: np.ndarray, estimates: np.ndarray) -> None:
    """Any gain of any image or estimate, either sign, however faint."""
    quality = metrics.separation_quality(images, estimates, filter_length=TAPS)
    gains = np.array([1e-12, -3.0, 1e9])[:, None, None]
    scaled = metrics.separation_quality(images * gains[::-1], estimates * gains, filter_length=TAPS)
    np.testing.assert_allclose(stacked(scaled), stacked(quality), rtol=1e-9)


def test_a_short_filter_is_forgiven_but_not_by_si_sdr(images: np.ndarray) -> None:
    """A delay of less than the filter leaves the SDR high; SI-SDR allows none."""
    late = np.roll(images, 3, axis=-1)
    late[..., :3] = 0
    quality = metrics.separation_quality(images, late, filter_length=TAPS)
    assert quality.sdr_db.min() > 15
    assert quality.si_sdr_db.max() < 5


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 12.0])
def test_noise_at_a_known_level_is_the_sdr(rng: np.random.Generator, snr_db: float) -> None:
    """White noise at an SNR: SDR, SAR and SI-SDR are that SNR, and the SIR far above."""
    true = rng.normal(size=(2, 2, 40_000))
    noise = rng.normal(size=true.shape) * 10 ** (-snr_db / 20)
    quality = metrics.separation_quality(true, true + noise, filter_length=8)
    for figures in (quality.sdr_db, quality.sar_db, quality.si_sdr_db):
        np.testing.assert_allclose(figures, snr_db, atol=0.15)
    assert quality.sir_db.min() > snr_db + 20


def test_interference_at_a_known_level_is_the_sir(rng: np.random.Generator) -> None:
    """A leak of 20 dB less: SIR is 20 dB, SAR without limit."""
    true = rng.normal(size=(2, 2, 40_000))
    quality = metrics.separation_quality(true, true + 0.1 * true[::-1], filter_length=8)
    np.testing.assert_allclose(quality.sir_db, 20.0, atol=0.1)
    np.testing.assert_allclose(quality.sdr_db, 20.0, atol=0.1)
    assert (quality.sar_db == metrics.LIMIT_DB).all()


def test_ends_of_the_scale(images: np.ndarray) -> None:
    """Perfect is +LIMIT_DB, silence -LIMIT_DB, and a source alone has no interference."""
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


def test_equal_images_and_tones_are_no_failure(rng: np.random.Generator) -> None:
    """Where the normal equations are singular there is still an answer."""
    one = rng.normal(size=(1, 2, N))
    twice = np.concatenate([one, one])
    noisy = twice + 0.1 * rng.normal(size=twice.shape)
    quality = metrics.separation_quality(twice, noisy, filter_length=TAPS)
    np.testing.assert_allclose(quality.sdr_db, 20.0, atol=0.5)
    tones = np.sin(np.arange(N) * np.array([0.1, 0.25])[:, None, None]) * np.ones((2, 2, 1))
    leaky = tones + 0.1 * rng.normal(size=tones.shape)
    quality = metrics.separation_quality(tones, leaky, filter_length=TAPS)
    np.testing.assert_allclose(quality.sdr_db, 17.0, atol=1.0)


def test_relabelling_relabels(images: np.ndarray, estimates: np.ndarray) -> None:
    """Sources in another order: the same figures in that order."""
    order = [2, 0, 1]
    quality = metrics.separation_quality(images, estimates, filter_length=TAPS)
    other = metrics.separation_quality(images[order], estimates[order], filter_length=TAPS)
    np.testing.assert_allclose(stacked(other), stacked(quality)[:, order], rtol=1e-9)


def test_ears_are_apart(images: np.ndarray, estimates: np.ndarray) -> None:
    """What happens at one ear changes nothing at the other; swapped ears swap the figures."""
    quality = stacked(metrics.separation_quality(images, estimates, filter_length=TAPS))
    spoiled = estimates.copy()
    spoiled[:, 1] = spoiled[::-1, 1]
    left = stacked(metrics.separation_quality(images, spoiled, filter_length=TAPS))
    np.testing.assert_allclose(left[..., 0], quality[..., 0], rtol=1e-12)
    swapped = metrics.separation_quality(images[:, ::-1], estimates[:, ::-1], filter_length=TAPS)
    np.testing.assert_allclose(stacked(swapped), quality[..., ::-1], rtol=1e-12)


def test_mixture_is_every_estimate(images: np.ndarray) -> None:
    """mixture_quality is separation_quality with the mixture M times."""
    mixture = images.sum(axis=0)
    quality = metrics.mixture_quality(images, mixture, filter_length=TAPS)
    same = metrics.separation_quality(images, np.stack([mixture] * M), filter_length=TAPS)
    np.testing.assert_allclose(stacked(quality), stacked(same), rtol=1e-12)


def test_sounds_are_assigned_by_sdr(images: np.ndarray, estimates: np.ndarray) -> None:
    """Any order is undone, and with fewer or more estimates the right ones are left out."""
    order = np.array([2, 0, 1])
    assignment = metrics.assign_sounds(images, estimates[order], filter_length=TAPS)
    np.testing.assert_array_equal(order[assignment.found], np.arange(M))
    fewer = metrics.assign_sounds(images, estimates[[2, 0]], filter_length=TAPS)
    assert fewer.found.tolist() == [1, -1, 0]
    assert (fewer.missed, fewer.false) == ((1,), ())
    more = metrics.assign_sounds(images[[2, 0]], estimates, filter_length=TAPS)
    assert more.found.tolist() == [2, 0]
    assert (more.missed, more.false) == ((), (1,))


def test_sounds_are_assigned_for_both_ears_together(images: np.ndarray) -> None:
    """One ear that says otherwise, less clearly, is outvoted: an estimate is one source."""
    rough = images[:2].copy()
    rough[:, 1] = 0.9 * images[:2, 1][::-1] + 0.8 * images[:2, 1]
    found = metrics.assign_sounds(images[:2], rough, filter_length=TAPS).found
    assert found.tolist() == [0, 1]


def test_directions_are_assigned_by_the_least_total() -> None:
    """The sum counts, not the nearest first; the seam behind the head is no distance."""
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
    """Counts may differ; what was missed is NaN and in no mean."""
    true = [[0.0, 0.0], [90.0, 30.0]]
    errors = direction_errors(true, [[85.0, 33.0]])
    np.testing.assert_allclose(errors.azimuth_degrees, [np.nan, 5.0])
    assert errors.mean().elevation_degrees == pytest.approx(3.0)
    three = assign_directions(true, [[80.0, 30.0], [-90.0, 0.0], [1.0, 0.0]])
    assert (three.found.tolist(), three.missed, three.false) == ([2, 0], (), (1,))
    nothing = assign_directions(true, [])
    assert (nothing.missed, nothing.false) == ((0, 1), ())
    assert np.isnan(direction_errors(true, []).mean()).all()


PLACES = np.array([[40.0, 0.0], [-50.0, 20.0], [170.0, -30.0]])


def test_score_is_its_parts(images: np.ndarray, estimates: np.ndarray) -> None:
    """One call gives what the separate functions give, in the order of the truth."""
    order = [1, 2, 0]
    mixture = images.sum(axis=0)
    found = PLACES + np.array([[3.0, 0.0], [0.0, -4.0], [20.0, 0.0]])
    result = score(
        images,
        estimates[order],
        mixture,
        directions=PLACES,
        found_directions=found[order],
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
    assert "swapped" not in repr(result)


def test_a_swap_is_reported(images: np.ndarray, estimates: np.ndarray) -> None:
    """Right sounds and right directions, but not of the same sources: perfect, and not agreed."""
    result = score(
        images,
        estimates,
        images.sum(axis=0),
        directions=PLACES,
        found_directions=PLACES[[1, 0, 2]],
        filter_length=TAPS,
    )
    assert result.errors is not None
    assert result.errors.mean().great_circle_degrees == pytest.approx(0, abs=1e-9)
    assert result.by_sound.found.tolist() == [0, 1, 2]
    assert result.agree is False
    assert "swapped" in repr(result)


def test_score_without_directions_and_with_a_missed_source(
    images: np.ndarray, estimates: np.ndarray
) -> None:
    """Directions are optional; a missed source is NaN and the mean that of the others."""
    result = score(images, estimates[[2, 0]], images.sum(axis=0), filter_length=TAPS)
    assert result.errors is None
    assert result.agree is None
    assert result.by_sound.missed == (1,)
    figures = stacked(result.quality)
    assert np.isnan(figures[:, 1]).all()
    np.testing.assert_allclose(result.quality.mean(), figures[:, [0, 2]].mean(axis=(1, 2)))
    assert np.isfinite(stacked(result.mixture)).all()
    assert "1 missed, 0 false" in repr(result)


def test_oracle_masks_are_the_loop(rng: np.random.Generator) -> None:
    """Each bin goes to the source with the most power in both ears together."""
    spectra = rng.normal(size=(M, 2, 5, 4)) + 1j * rng.normal(size=(M, 2, 5, 4))
    masks = oracle_masks(spectra)
    for f in range(5):
        for t in range(4):
            power = [sum(abs(spectra[m, c, f, t]) ** 2 for c in range(2)) for m in range(M)]
            assert masks[:, f, t].tolist() == [float(p == max(power)) for p in power]
    np.testing.assert_array_equal(oracle_masks(np.zeros((M, 2, 5, 4))).sum(axis=0), 1.0)


def test_oracle_masks_separate(small_head: ea.Head, rng: np.random.Generator) -> None:
    """On two tone clusters around a head: far better than the mixture, not perfect."""
    t = np.arange(8000) / 16_000
    sounds = []
    for low in (300.0, 450.0):
        tones = [np.sin(2 * np.pi * (low + 300 * k) * t + 6 * rng.random()) for k in range(12)]
        sounds.append(np.sum(tones, axis=0) + 0.1 * rng.normal(size=len(t)))
    scene = ea.render_scene(small_head, sounds, PLACES[:2])
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
        found_directions=scene.directions,
        filter_length=64,
    )
    assert result.agree is True
    assert 8 < result.quality.mean().si_sdr_db < 40
    assert result.improvement.mean().si_sdr_db > 8
    assert result.quality.mean().sir_db > result.quality.mean().sdr_db


def nan_at(x: np.ndarray) -> np.ndarray:
    """The same with one NaN."""
    x = x.copy()
    x[1, 0, 5] = np.nan
    return x


def silent_at(x: np.ndarray) -> np.ndarray:
    """The same with one silent ear."""
    x = x.copy()
    x[2, 1] = 0
    return x


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s, e: (s, e[:2]), "estimates must be as many as images, got 2 and 3."),
        (lambda s, e: (s, e[..., :-1]), "estimates must be as long as images, got 1999 and 2000"),
        (lambda s, e: (s[:, 0], e), "images must have shape (sources, 2, samples), got (3, 2000)."),
        (lambda s, e: (s, e[:, :1]), "estimates must have shape (sources, 2, samples), got (3, 1,"),
        (lambda s, e: (s, e[:0]), "estimates must have shape (sources, 2, samples), got (0, 2,"),
        (lambda s, e: (s, nan_at(e)), "estimates must be finite, got nan in source 1, channel 0,"),
        (lambda s, e: (nan_at(s), e), "images must be finite, got nan in source 1, channel 0,"),
        (lambda s, e: (silent_at(s), e), "got silence for source 2 in channel 1."),
        (lambda s, e: (s[..., :9], e[..., :9]), "at least filter_length = 16 samples, got 9."),
        (lambda s, e: ([s[0], s[1, :, :9]], e), "images must be sounds of one length, got "),
    ],
)
def test_what_is_refused(
    images: np.ndarray,
    estimates: np.ndarray,
    change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    words: str,
) -> None:
    """Each mistake is named, with what to do about it."""
    with pytest.raises(InputError) as caught:
        metrics.separation_quality(*change(images, estimates), filter_length=TAPS)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


def test_other_refusals(images: np.ndarray, estimates: np.ndarray) -> None:
    """Mixture, directions, counts, assignments, filter lengths and spectra."""
    mixture = images.sum(axis=0)
    with pytest.raises(InputError, match=r"mixture must have shape \(2, samples\), got \(2000,\)"):
        metrics.mixture_quality(images, mixture[0], filter_length=TAPS)
    with pytest.raises(InputError, match="mixture must be as long as images, got 1999 and 2000"):
        score(images, estimates, mixture[:, 1:], filter_length=TAPS)
    with pytest.raises(InputError, match="found_directions must come with directions"):
        score(images, estimates, mixture, directions=PLACES, filter_length=TAPS)
    with pytest.raises(InputError, match=r"^directions must come with found_directions"):
        score(images, estimates, mixture, found_directions=PLACES, filter_length=TAPS)
    for places, found, words in (
        (PLACES[:2], PLACES, "directions must be as many as images, got 2 and 3"),
        (PLACES, PLACES[:2], "found_directions must be as many as estimates, got 2 and 3"),
    ):
        with pytest.raises(InputError, match=words):
            score(images, estimates, mixture, directions=places, found_directions=found)
    with pytest.raises(InputError, match="found_directions must be finite"):
        assign_directions(PLACES, [[np.nan, 0.0]])
    with pytest.raises(InputError, match="assignment must be of 3 true and 3 found sources"):
        direction_errors(PLACES, PLACES, Assignment(np.array([0, 1]), 2))
    for length in (0, 2.5):
        with pytest.raises(InputError, match="filter_length must be a whole number"):
            metrics.separation_quality(images, estimates, filter_length=length)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"spectra must have shape \(M, 2, F, T\)"):
        oracle_masks(np.zeros((3, 5, 4)))
    with pytest.raises(InputError, match="spectra must be finite"):
        oracle_masks(np.full((2, 2, 5, 4), np.nan))


def test_import_stays_light() -> None:
    """`import earatlas` brings neither fast_bss_eval nor scipy.optimize."""
    code = (
        "import sys, earatlas, earatlas.evaluation.score;"
        "sys.exit(any(m in sys.modules for m in ('fast_bss_eval', 'scipy.optimize')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
