"""Every method on one mixture: the bounds, the blind ones, VESSL as printed, and ours."""

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
from earatlas.experiments.vessl_as_published import printed_vessl
from earatlas.features.cues import bin_power
from earatlas.features.layout import Threshold
from earatlas.features.stft import istft, stft
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.demixing.masking import binary_masks
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.separator import Separator
from earatlas.separation.source_model import Inference, SourceModel
from earatlas.separation.vessl import VESSL, State
from earatlas.types import Array, Spectra
from separating.figures import NOWHERE, Row, hearing_figures, masked, row

BLIND = ("AuxIVA", "ILRMA", "FastMNMF2")
RENDERINGS: tuple[Rendering, ...] = ("spatial", "soft", "binary")


def sure_bins(separator: Separator, scene: ea.SimulatedScene) -> tuple[Spectra, HeardBins]:
    """Spectra, and the bins that VESSL reads of them."""
    layout = separator.source_model.layout
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    return spectra, separator.sure_bins(spectra, floor)


def found_row(
    scene: ea.SimulatedScene, separator: Separator, vessl: VESSL, state: State, spectra: Spectra
) -> Row:
    """All figures of a state of VESSL, by its soft masks."""
    found = np.stack([source.posterior.best for source in state.sources])
    return masked(scene, spectra, separator.masks(vessl, state, spectra), found)


def ends(scene: ea.SimulatedScene) -> dict[str, Row]:
    """What is between nothing and everything: the mixture, and filters that know the truth."""
    samples = scene.mixture.samples
    mixed = mixture_quality(scene.images, samples).mean()
    as_is = np.repeat(samples[None], len(scene.images), axis=0)
    heard = hearing_figures(scene, as_is)
    figures = [mixed.sdr_db, mixed.sir_db, mixed.sar_db, mixed.si_sdr_db, *heard]
    best = oracle.separate(scene.mixture, scene.images).render()
    return {
        "mixture": [*figures, *NOWHERE, np.nan],
        "oracle binary mask": row(scene, best, None, np.nan),
        "oracle multichannel Wiener filter": row(scene, oracle_wiener(scene), None, np.nan),
    }


def oracle_wiener(scene: ea.SimulatedScene, window: int = 1024) -> Array:
    """The Wiener filter of the sources' true powers and spatial covariances."""
    hop, n = window // 8, scene.mixture.samples.shape[1]
    X = stft(scene.mixture.samples, window, hop)
    images = np.stack([stft(image, window, hop) for image in scene.images])
    v = (np.abs(images) ** 2).mean(axis=1) + 1e-12  # (M, B, T)
    R = np.einsum("maft,mbft->mfab", images / v[:, None], images.conj()) / X.shape[-1]
    total = np.einsum("mft,mfab->ftab", v, R) + 1e-12 * np.eye(2)
    y = np.linalg.solve(total, np.moveaxis(X, 0, -1)[..., None])[..., 0]
    return istft(np.einsum("mft,mfab,ftb->maft", v, R, y), window, hop, n)


def blind(scene: ea.SimulatedScene, windows: tuple[int, ...] = (1024,)) -> dict[str, Row]:
    """DUET, MESSL-G, and the blind methods of pyroomacoustics, both ears by projecting back.

    In the open a window of 1024 is their best of 1024, 2048 and 4096; in rooms two are shown.
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
            continue  # they need as many ears as sources
        label = name if len(windows) == 1 else f"{name}, window {window}"
        rows[label] = blind_row(scene, name, window)
    return rows


def blind_after_wpe(scene: ea.SimulatedScene, window: int = 4096) -> dict[str, Row]:
    """The blind methods once late reverberation was taken away from the mixture."""
    return {
        f"WPE + {name}, window {window}": blind_row(scene, name, window, after_wpe=True)
        for name in BLIND
    }


def blind_row(scene: ea.SimulatedScene, name: str, window: int, *, after_wpe: bool = False) -> Row:
    """Figures of a blind method; where it broke down nothing is gained over the mixture."""
    start = time.process_time()
    heard = scene.mixture.samples
    sounds = blind_sounds(scene, name, window, dereverberated(heard) if after_wpe else heard)
    if not np.isfinite(sounds).all():
        sounds = np.repeat(heard[None], len(scene.directions), axis=0)
    return row(scene, sounds, None, time.process_time() - start)


def dereverberated(samples: Array) -> Array:
    """A mixture (2, n) by nara_wpe as its authors do: 512, 128, ten taps after three frames."""
    spectra = stft(samples, 512, 128)
    dry = wpe(spectra.transpose(1, 0, 2), taps=10, delay=3, iterations=3).transpose(1, 0, 2)
    return istft(dry, 512, 128, samples.shape[1])


def blind_sounds(scene: ea.SimulatedScene, name: str, window: int, heard: Array) -> Array:
    """Both ears (M, 2, n) of a mixture (2, n) by a method of pyroomacoustics, 50 iterations."""
    np.random.seed(0)  # noqa: NPY002 (pyroomacoustics draws from it)
    hop, M = window // 4, len(scene.directions)
    X = stft(heard, window, hop).transpose(2, 1, 0)
    if name == "FastMNMF2":
        images = pra.bss.fastmnmf2(X, n_src=M, n_iter=50, n_components=8, mic_index="all")
        images = np.asarray(images).transpose(3, 0, 2, 1)
    else:
        method = {"AuxIVA": pra.bss.auxiva, "ILRMA": pra.bss.ilrma}[name]
        y, W = method(X, n_iter=50, proj_back=False, return_filters=True)
        images = np.einsum("fam,tfm->maft", np.linalg.inv(W), y)
    return istft(images, window, hop, scene.mixture.samples.shape[1])


def as_printed(scene: ea.SimulatedScene, sources: list[SourceModel]) -> dict[str, Row]:
    """VESSL exactly as the paper has it."""
    rows = {}
    for name, scales in (("random", sources[-1:]), ("multi-scale", sources)):
        start = time.process_time()
        sounds, found = printed_vessl(scales, scene, seed=0)
        seconds = time.process_time() - start
        rows[f"VESSL as printed, {name} start"] = row(scene, sounds, found, seconds)
    return rows


def scout_alone(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Masks from the cues that the head expects at the scout's directions."""
    M, separator = len(scene.directions), atlas.separator
    spectra, sure = sure_bins(separator, scene)
    layout = separator.source_model.layout
    start = separator.scout.look(sure).best_sets(M, 1)[0]
    cues, squares = separator.source_model.expected(start)
    f, t = np.indices((layout.n_frequencies, spectra.shape[-1])).reshape(2, -1)
    bins = HeardBins.at(spectra, layout, f, t)
    # Noise of bins in mixtures, where nothing was estimated yet: 2 dB and 0.2 rad.
    noise = np.where(layout.cue_kinds == "ild", 4.0, 0.05)
    logs = VESSL(separator.source_model, sure).log_likelihoods(cues, squares, noise, bins)
    masks = binary_masks(logs.reshape(M, layout.n_frequencies, -1))
    return {"scout alone, binary": masked(scene, spectra, masks, start)}


def ours(
    scene: ea.SimulatedScene,
    atlas: ea.Atlas,
    label: str = "ours",
    renderings: tuple[Rendering, ...] = RENDERINGS,
) -> dict[str, Row]:
    """Our separation, rendered in every way."""
    rows = {}
    for rendering in renderings:
        start = time.process_time()
        answer = atlas.separate(scene.mixture, n_sources=len(scene.directions), rendering=rendering)
        seconds = time.process_time() - start
        sounds = np.stack([source.audio.samples for source in answer.sources])
        rows[f"{label}, {rendering}"] = row(scene, sounds, answer.directions, seconds)
    return rows


def default(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Our separation as it is without being asked for more, and in rooms dry."""
    rows = ours(scene, atlas, renderings=("spatial",))
    return rows | dry(scene, atlas) if scene.is_reverberant else rows


def dry(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Our separation with less of the room."""
    start = time.process_time()
    answer = atlas.separate(scene.mixture, n_sources=len(scene.directions), dry=True)
    seconds = time.process_time() - start
    sounds = np.stack([source.audio.samples for source in answer.sources])
    return {"ours, dry": row(scene, sounds, answer.directions, seconds)}


def every_method(
    scene: ea.SimulatedScene, atlas: ea.Atlas, printed: list[SourceModel]
) -> dict[str, Row]:
    """A row of figures a method, on one mixture."""
    return (
        ends(scene)
        | as_printed(scene, printed)
        | blind(scene)
        | scout_alone(scene, atlas)
        | ours(scene, atlas)
    )


def default_row(scene: ea.SimulatedScene, atlas: ea.Atlas) -> Row:
    """Figures of our default."""
    return ours(scene, atlas, renderings=("spatial",))["ours, spatial"]


def rivals_of(
    atlas: ea.Atlas, windows: tuple[int, ...] = (1024, 4096)
) -> dict[str, Callable[[ea.SimulatedScene], Row]]:
    """Our default and the blind methods, alone and after WPE, by their names."""
    methods: dict[str, Callable[[ea.SimulatedScene], Row]] = {
        "ours, spatial": partial(default_row, atlas=atlas)
    }
    for name, window, after in product(BLIND, windows, (False, True)):
        label = f"{'WPE + ' if after else ''}{name}, window {window}"
        methods[label] = partial(blind_row, name=name, window=window, after_wpe=after)
    return methods


def room_method(scene: ea.SimulatedScene, atlases: dict[str, ea.Atlas]) -> dict[str, Row]:
    """Every method, ours with every atlas, and with a garbage class."""
    rows = ends(scene) | blind(scene, (1024, 4096)) | blind_after_wpe(scene)
    for label, atlas in atlases.items():
        rows |= ours(scene, atlas, label)
    separator = Separator(next(iter(atlases.values())), inference=Inference(garbage=0.05))
    spectra, sure = sure_bins(separator, scene)
    vessl, state = separator.find(sure, len(scene.directions))
    rows["ours with a garbage class, soft"] = found_row(scene, separator, vessl, state, spectra)
    return rows
