"""Methods of other packages on the same data in the same run, with accuracy beside the time.

Two talkers of 10 s: AuxIVA, ILRMA and FastMNMF2 (pyroomacoustics, 50 iterations, the better of the
windows 1024 and 4096), and T-ISS with NMF (`separation_parts.joint_dereverberation`). One talker:
SRP-PHAT and MUSIC of pyroomacoustics with two microphones in the free field, which find the angle
from the median plane only, at a grid of one degree. Mapping of cues to directions: Gaussian mixture
regression with scikit-learn's GaussianMixture on 20 principal components. Manifold: LTSA of
scikit-learn with its dense solver, because ARPACK fails on these data ("Factor is exactly
singular").
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pyroomacoustics as pra
from protocol import mixtures, split, utterances
from separation_parts.joint_dereverberation import JointSettings
from separation_parts.joint_dereverberation import separate as joint_separation
from separation_parts.methods import BLIND, blind_separation
from separation_parts.metrics import signal_metrics
from sklearn.decomposition import PCA
from sklearn.manifold import LocallyLinearEmbedding
from sklearn.mixture import GaussianMixture
from tracks import RATE, minute

import earatlas as ea
from earatlas.features.stft import stft
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.manifold.faithfulness import faithfulness
from earatlas.manifold.ltsa import ltsa
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices
from speed_parts.tasks import CONDITIONS, SECONDS, Setting, per_second, separate_row
from speed_parts.timing import Row, cpu_seconds

EARS_METRES = 0.2  # effective distance of two microphones in the free field with a head's delays
FREQUENCIES_HZ = (300.0, 3500.0)  # beyond, one grid point has many delays
ARRAY_METHODS = {"SRP-PHAT": pra.doa.SRP, "MUSIC": pra.doa.MUSIC}
TALKERS = 6  # of the rows with one talker


def two_talkers(setting: Setting) -> list[Row]:
    """Measure blind separation of two talkers, and ours without and with their number."""
    rows = []
    for condition, room in CONDITIONS.items():
        (scene,) = mixtures(setting.head, 1, 2, seconds=SECONDS, room=room, seed=31)
        rows += [separate_row(setting, 2, condition, given=given) for given in (True, False)]
        for name in BLIND:
            trials = []
            for window in (1024, 4096):
                separate = partial(blind_separation, scene, name, window, scene.mixture.samples)
                seconds = cpu_seconds(separate, 1)
                sounds = separate()
                if np.isfinite(sounds).all():
                    trials.append((signal_metrics(scene, sounds)[0], window, seconds))
            sdr, window, seconds = max(trials)
            rows.append(
                Row(f"{name}, window {window}, {condition}", seconds, per_second(seconds),
                    f"SDR {sdr:.1f} dB")
            )  # fmt: skip
        separate = partial(joint_separation, scene.mixture.samples, JointSettings())
        seconds = cpu_seconds(separate, 1)
        sdr = signal_metrics(scene, separate())[0]
        rows.append(
            Row(f"T-ISS-NMF, {condition}", seconds, per_second(seconds), f"SDR {sdr:.1f} dB")
        )
    return rows


def one_talker(setting: Setting) -> list[Row]:
    """Measure localization of one talker; the error is that of the angle from the median plane."""
    rows = []
    for condition, room in CONDITIONS.items():
        talkers = [minute(setting.head, utterances(), n, room) for n in range(TALKERS)]
        sounds = [samples[:, : int(SECONDS * RATE)] for samples, _ in talkers]
        truths = np.array([_lateral(direction) for _, direction in talkers])
        methods: dict[str, Callable[[Array], float]] = {"`localize`": partial(_localize, setting)}
        methods |= {name: partial(_free_field, method) for name, method in ARRAY_METHODS.items()}
        for name, method in methods.items():
            found = [method(sound) for sound in sounds]
            seconds = cpu_seconds(partial(list, map(method, sounds)), 1)
            error = float(np.median(np.abs(np.array(found) - truths)))
            rows.append(
                Row(
                    f"{name}, {TALKERS} talkers of {SECONDS:g} s, {condition}",
                    seconds,
                    per_second(seconds / TALKERS),
                    f"lateral error: median {error:.1f}°",
                )
            )
    return rows


def _lateral(direction: Array) -> float:
    """Return the angle of a direction from the median plane in degrees, positive to the left."""
    return float(np.degrees(np.arcsin(np.clip(to_vectors(direction)[1], -1, 1))))


def _localize(setting: Setting, samples: Array) -> float:
    """Return the lateral angle by our localization, in degrees."""
    return _lateral(setting.atlas.localize(ea.Audio(samples, RATE)).direction)


def _free_field(method: type[pra.doa.DOA], samples: Array) -> float:
    """Return the lateral angle by a method for microphone arrays, in degrees."""
    positions = np.array([[0.0, 0.0], [EARS_METRES / 2, -EARS_METRES / 2]])
    azimuths = np.radians(np.arange(-90.0, 91.0))
    doa = method(positions, RATE, 512, num_src=1, azimuth=azimuths)
    doa.locate_sources(stft(samples, 512, 256), freq_range=list(FREQUENCIES_HZ))
    azimuth = float(np.atleast_1d(doa.azimuth_recon)[0])
    return float(np.degrees(np.arcsin(np.sin(azimuth))))


def mapping(setting: Setting) -> list[Row]:
    """Measure learning of the mapping from 80 % of the directions, judged on the others."""
    training, held_out = split(setting.head, 31)
    x, y, y_new = training.directions, training.cues(), held_out.cues()
    K = len(training) // 10
    found: list[Array] = []

    def ours() -> None:
        found.append(PPAM.fit(ea.Sphere(), x, y, components=K).inverse_map(y_new))

    def regression() -> None:
        found.append(_gaussian_mixture_regression(x, y, y_new, K // 4))

    rows = []
    for name, task in (
        (f"`PPAM.fit`, K = {K}, D = {y.shape[1]}", ours),
        (f"GaussianMixture, K = {K // 4}, full covariances, 20 principal components", regression),
    ):
        seconds = cpu_seconds(task, 1)
        errors = ea.great_circle_error(held_out.directions, found[-1])
        rows.append(
            Row(name, seconds, "", f"median {np.median(errors):.2f}°, mean {errors.mean():.2f}°")
        )
    return rows


def _gaussian_mixture_regression(x: Array, y: Array, y_new: Array, K: int) -> Array:
    """Return E[direction | cues] under a Gaussian mixture of both."""
    pca = PCA(20).fit(y)
    t, t_new, v = pca.transform(y), pca.transform(y_new), to_vectors(x)
    scale = t.std()
    joint = GaussianMixture(K, reg_covar=1e-5, random_state=0).fit(np.hstack([v, t / scale]))
    mean_v, mean_t = np.split(joint.means_, [3], axis=1)
    cov_vt, cov_tt = joint.covariances_[:, :3, 3:], joint.covariances_[:, 3:, 3:]
    residuals = t_new[:, None] / scale - mean_t  # (N, K, 20)
    solved = np.linalg.solve(cov_tt, residuals.transpose(1, 2, 0))  # (K, 20, N)
    squared = np.einsum("nkd,kdn->nk", residuals, solved)
    logs = np.log(joint.weights_) - 0.5 * (squared + np.linalg.slogdet(cov_tt)[1])
    w = np.exp(logs - logs.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    estimates = mean_v + (cov_vt @ solved).transpose(2, 0, 1)  # (N, K, 3)
    total = np.einsum("nk,nkc->nc", w, estimates)
    return to_directions(total / np.linalg.norm(total, axis=1, keepdims=True))


def manifold(setting: Setting) -> list[Row]:
    """Measure LTSA of the low-frequency ILD and IPD of all directions."""
    head = setting.head
    y = head.cues()
    found: list[tuple[Indices, Array]] = []

    def ours() -> None:
        embedding = ltsa(y, neighbours=20)
        found.append((embedding.kept, embedding.coordinates))

    def theirs() -> None:
        embedding = LocallyLinearEmbedding(
            n_neighbors=20, n_components=3, method="ltsa", eigen_solver="dense"
        )
        found.append((np.arange(len(y)), embedding.fit_transform(y)))

    rows = []
    for name, task in (("`earatlas.ltsa`", ours), ("scikit-learn LTSA", theirs)):
        seconds = cpu_seconds(task, 1)
        kept, t = found[-1]
        s = faithfulness(ea.Sphere(), head.directions[kept], t)
        rows.append(
            Row(f"{name}, N = {len(y)}, D = {y.shape[1]}", seconds, "",
                f"trustworthiness {s.trustworthiness:.3f}, continuity {s.continuity:.3f}")
        )  # fmt: skip
    return rows
