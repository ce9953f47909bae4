"""All methods on one mixture: bounds, blind methods, VESSL as published, and ours."""

import time
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pyroomacoustics as pra
from nara_wpe.wpe import wpe

import earatlas as ea
from earatlas.baselines import duet, messl, oracle
from earatlas.evaluation.quality import mixture_quality
from earatlas.experiments.vessl_as_published import separate_as_published
from earatlas.features.layout import Threshold
from earatlas.features.stft import bin_power, istft, stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.bin_assignment import CueDensities
from earatlas.separation.demixing.masks import binary_masks
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.separator import Separator
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSL, VESSLState
from earatlas.types import Array, Spectra
from separation_parts.metrics import NO_DIRECTIONS, Row, masked_row, perceptual_metrics, row

BLIND = ("AuxIVA", "ILRMA", "FastMNMF2")
RENDERINGS: tuple[Rendering, ...] = ("spatial", "soft", "binary")


def coherent_bins(separator: Separator, scene: ea.SimulatedScene) -> tuple[Spectra, ObservedBins]:
    """Return the spectra and the coherent bins that VESSL uses."""
    layout = separator.source_model.layout
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    return spectra, separator.coherent_bins(spectra, floor)


def vessl_row(
    scene: ea.SimulatedScene,
    separator: Separator,
    vessl: VESSL,
    state: VESSLState,
    spectra: Spectra,
) -> Row:
    """Return all metrics of the soft masks of a VESSL state."""
    directions = np.stack([source.posterior.best for source in state.sources])
    return masked_row(scene, spectra, vessl.masks(state, spectra), directions)


def bounds(scene: ea.SimulatedScene) -> dict[str, Row]:
    """Return the metrics of the lower and upper bounds: the mixture and oracle filters."""
    samples = scene.mixture.samples
    mixed = mixture_quality(scene.images, samples).mean()
    repeated = np.repeat(samples[None], len(scene.images), axis=0)
    perceptual = perceptual_metrics(scene, repeated)
    values = [mixed.sdr_db, mixed.sir_db, mixed.sar_db, mixed.si_sdr_db, *perceptual]
    best = oracle.separate(scene.mixture, scene.images).render()
    return {
        "mixture": [*values, *NO_DIRECTIONS, np.nan],
        "oracle binary mask": row(scene, best, None, np.nan),
        "oracle multichannel Wiener filter": row(scene, oracle_wiener(scene), None, np.nan),
    }


def oracle_wiener(scene: ea.SimulatedScene, window: int = 1024) -> Array:
    """Separate with the multichannel Wiener filter of the true powers and spatial covariances."""
    hop, n = window // 8, scene.mixture.samples.shape[1]
    X = stft(scene.mixture.samples, window, hop)
    images = np.stack([stft(image, window, hop) for image in scene.images])
    v = (np.abs(images) ** 2).mean(axis=1) + 1e-12  # (M, B, T)
    R = np.einsum("maft,mbft->mfab", images / v[:, None], images.conj()) / X.shape[-1]
    total = np.einsum("mft,mfab->ftab", v, R) + 1e-12 * np.eye(2)
    y = np.linalg.solve(total, np.moveaxis(X, 0, -1)[..., None])[..., 0]
    return istft(np.einsum("mft,mfab,ftb->maft", v, R, y), window, hop, n)


def blind(scene: ea.SimulatedScene, windows: tuple[int, ...] = (1024,)) -> dict[str, Row]:
    """Return the metrics of DUET, MESSL-G, and the blind methods of pyroomacoustics.

    Both ears are obtained by projection back. In anechoic conditions 1024 is the best window of
    1024, 2048 and 4096; in rooms two windows are evaluated.
    """
    M, rows = len(scene.directions), {}
    start = time.process_time()
    sounds = duet.separate(scene.mixture, M).render()
    rows["DUET"] = row(scene, sounds, None, time.process_time() - start)
    start = time.process_time()
    masks = messl.separate(scene.mixture, M)
    seconds = time.process_time() - start
    rows["MESSL-G, soft"] = row(scene, masks.render(), None, seconds)
    rows["MESSL-G, binary"] = row(scene, masks.render(binary=True), None, seconds)
    for name, window in product(BLIND, windows):
        if M > 2 and name != "FastMNMF2":
            continue  # determined methods need as many channels as sources
        label = name if len(windows) == 1 else f"{name}, window {window}"
        rows[label] = blind_row(scene, name, window)
    return rows


def blind_after_wpe(scene: ea.SimulatedScene, window: int = 4096) -> dict[str, Row]:
    """Return the metrics of the blind methods after dereverberation with WPE."""
    return {
        f"WPE + {name}, window {window}": blind_row(scene, name, window, after_wpe=True)
        for name in BLIND
    }


def blind_row(scene: ea.SimulatedScene, name: str, window: int, *, after_wpe: bool = False) -> Row:
    """Return the metrics of a blind method; those of the mixture if it diverged."""
    start = time.process_time()
    samples = scene.mixture.samples
    sounds = blind_separation(scene, name, window, dereverberate(samples) if after_wpe else samples)
    if not np.isfinite(sounds).all():
        sounds = np.repeat(samples[None], len(scene.directions), axis=0)
    return row(scene, sounds, None, time.process_time() - start)


def dereverberate(samples: Array) -> Array:
    """Dereverberate a mixture (2, n) with nara_wpe and its authors' settings.

    Window 512, hop 128, ten taps, delay of three frames.
    """
    spectra = stft(samples, 512, 128)
    dry = wpe(spectra.transpose(1, 0, 2), taps=10, delay=3, iterations=3).transpose(1, 0, 2)
    return istft(dry, 512, 128, samples.shape[1])


def blind_separation(scene: ea.SimulatedScene, name: str, window: int, samples: Array) -> Array:
    """Separate a mixture (2, n) into (M, 2, n) with pyroomacoustics, 50 iterations."""
    np.random.seed(0)  # noqa: NPY002 (pyroomacoustics uses the global state)
    hop, M = window // 4, len(scene.directions)
    X = stft(samples, window, hop).transpose(2, 1, 0)
    if name == "FastMNMF2":
        images = pra.bss.fastmnmf2(X, n_src=M, n_iter=50, n_components=8, mic_index="all")
        images = np.asarray(images).transpose(3, 0, 2, 1)
    else:
        method = {"AuxIVA": pra.bss.auxiva, "ILRMA": pra.bss.ilrma}[name]
        y, W = method(X, n_iter=50, proj_back=False, return_filters=True)
        images = np.einsum("fam,tfm->maft", np.linalg.inv(W), y)
    return istft(images, window, hop, scene.mixture.samples.shape[1])


def as_published(scene: ea.SimulatedScene, sources: list[SourceModel]) -> dict[str, Row]:
    """Return the metrics of VESSL exactly as published."""
    rows = {}
    for name, scales in (("random", sources[-1:]), ("multi-scale", sources)):
        start = time.process_time()
        found = separate_as_published(scales, scene, seed=0)
        seconds = time.process_time() - start
        rows[f"VESSL as printed, {name} initialization"] = row(
            scene, found.signals(), found.directions, seconds
        )
    return rows


def candidate_search_alone(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Return the metrics of masks from the expected cues at the best candidate directions."""
    M, separator = len(scene.directions), atlas.separator
    spectra, coherent = coherent_bins(separator, scene)
    layout = separator.source_model.layout
    start = separator.candidate_search.search(coherent).best_sets(M, 1)[0]
    cues, squares = separator.source_model.expected(start)
    f, t = np.indices((layout.n_frequencies, spectra.shape[-1])).reshape(2, -1)
    bins = ObservedBins.at(spectra, layout, f, t)
    # Cue noise of bins in mixtures, before it is estimated: 2 dB and 0.2 rad.
    noise = np.where(layout.cue_kinds == "ild", 4.0, 0.05)
    log_likelihoods = CueDensities.from_moments(cues, squares, noise).of_bins(bins)
    masks = binary_masks(log_likelihoods.reshape(M, layout.n_frequencies, -1))
    return {"candidate search alone, binary": masked_row(scene, spectra, masks, start)}


def ours(
    scene: ea.SimulatedScene,
    atlas: ea.Atlas,
    label: str = "ours",
    renderings: tuple[Rendering, ...] = RENDERINGS,
) -> dict[str, Row]:
    """Return the metrics of our separation with several renderings."""
    rows = {}
    for rendering in renderings:
        start = time.process_time()
        result = atlas.separate(scene.mixture, n_sources=len(scene.directions), rendering=rendering)
        seconds = time.process_time() - start
        sounds = np.stack([source.audio.samples for source in result.sources])
        rows[f"{label}, {rendering}"] = row(scene, sounds, result.directions, seconds)
    return rows


def default(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Return the metrics of our default, and in rooms also of `dry=True`."""
    rows = ours(scene, atlas, renderings=("spatial",))
    return rows | dry(scene, atlas) if scene.is_reverberant else rows


def dry(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Return the metrics of our separation with `dry=True`."""
    start = time.process_time()
    result = atlas.separate(scene.mixture, n_sources=len(scene.directions), dry=True)
    seconds = time.process_time() - start
    sounds = np.stack([source.audio.samples for source in result.sources])
    return {"ours, dry": row(scene, sounds, result.directions, seconds)}


def every_method(
    scene: ea.SimulatedScene, atlas: ea.Atlas, paper_models: list[SourceModel]
) -> dict[str, Row]:
    """Return one row of metrics per method on one mixture."""
    return (
        bounds(scene)
        | as_published(scene, paper_models)
        | blind(scene)
        | candidate_search_alone(scene, atlas)
        | ours(scene, atlas)
    )


def default_row(scene: ea.SimulatedScene, atlas: ea.Atlas) -> Row:
    """Return the metrics of our default."""
    return ours(scene, atlas, renderings=("spatial",))["ours, spatial"]


def blind_methods(
    atlas: ea.Atlas, windows: tuple[int, ...] = (1024, 4096)
) -> dict[str, Callable[[ea.SimulatedScene], Row]]:
    """Return our default and the blind methods, with and without WPE, by name."""
    methods: dict[str, Callable[[ea.SimulatedScene], Row]] = {
        "ours, spatial": partial(default_row, atlas=atlas)
    }
    for name, window, after in product(BLIND, windows, (False, True)):
        label = f"{'WPE + ' if after else ''}{name}, window {window}"
        methods[label] = partial(blind_row, name=name, window=window, after_wpe=after)
    return methods


def room_methods(scene: ea.SimulatedScene, atlases: dict[str, ea.Atlas]) -> dict[str, Row]:
    """Return the metrics of all methods, ours with every atlas."""
    rows = bounds(scene) | blind(scene, (1024, 4096)) | blind_after_wpe(scene)
    for label, atlas in atlases.items():
        rows |= ours(scene, atlas, label)
    return rows
