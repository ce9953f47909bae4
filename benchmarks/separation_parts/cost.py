"""Cost of separation: real-time factors of the whole and of its parts, and memory."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import min_seconds, mixtures, speech_excerpt, utterances

import earatlas as ea
from earatlas.experiments.models import paper_ppam
from earatlas.features.stft import stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.ppam.model import PPAM
from earatlas.separation.demixing.rendering import Rendering, separate_spatially
from earatlas.separation.initialization import Initialization
from earatlas.separation.source_model import SourceModel, VESSLSettings
from earatlas.separation.vessl import VESSL
from earatlas.types import Array
from separation_parts.methods import coherent_bins

LOOPED_FRAMES = 4  # frames that the loops process; all frames take minutes


def loop_step(model: PPAM, y: Array, q: Array) -> float:
    """Return the seconds of the paper's E-XZ step with one loop per index.

    Shapes: y (D, T), q (M, D, T).
    """
    start = time.perf_counter()
    M, D, T = q.shape
    K, _, L = model.A.shape
    for m in range(M):
        for k in range(K):
            precision, linear_term = np.linalg.inv(model.gammas[k]), np.zeros(L)
            for d in range(D):
                for t in range(T):
                    a = model.A[k, d]
                    precision = precision + q[m, d, t] / model.noise[d] * np.outer(a, a)
                    residual = y[d, t] - model.b[k, d]
                    linear_term = linear_term + q[m, d, t] / model.noise[d] * residual * a
            np.linalg.solve(precision, linear_term)
    return time.perf_counter() - start


def file_seconds(
    atlas: ea.Atlas, scene: ea.SimulatedScene, rendering: Rendering, n_sources: int | None
) -> float:
    """Return the CPU seconds from file to files, the minimum of five runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = scene.mixture.write(Path(folder) / "mixture.wav")
        seconds = []
        for _ in range(5):
            start = time.process_time()
            atlas.separate_file(path, folder, n_sources=n_sources, rendering=rendering)
            seconds.append(time.process_time() - start)
        return min(seconds)


def from_file_to_files(atlas: ea.Atlas, held_out: ea.Head, space: str, count: int = 5) -> None:
    """Print the cost of two talkers, with the number of sources given and estimated."""
    K = len(atlas.model.weights)
    title = (
        f"2 talkers, ku100 {space}, K = {K}, {count} mixtures, CPU s per second, median (maximum)"
    )
    print(f"\n| {title} | 3 s | 10 s |\n|---|---|---|")
    options: tuple[tuple[str, Rendering, int | None], ...] = (
        ("number given", "spatial", 2),
        ("number estimated", "spatial", None),
        ("number given, soft masks", "soft", 2),
    )
    for name, rendering, n_sources in options:
        cells = []
        for seconds in (3.0, 10.0):
            scenes = mixtures(held_out, count, 2, seconds=seconds, seed=5)
            costs = [file_seconds(atlas, s, rendering, n_sources) / seconds for s in scenes]
            cells.append(f"{np.median(costs):.3f} ({max(costs):.3f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def stages(atlas: ea.Atlas, scene: ea.SimulatedScene, seconds: float) -> None:
    """Print the cost of two talkers by stage."""
    separator = atlas.separator
    spectra, coherent = coherent_bins(separator, scene)
    start = Initialization(separator, coherent)
    masks = start.vessl.masks(start.at_candidates(2), spectra)
    spatial_seconds = min_seconds(
        lambda: separate_spatially(scene.mixture.samples, masks, atlas.layout)
    )
    vessl = VESSL(separator.source_model, coherent)
    candidates = separator.candidate_search.search(coherent)
    first = vessl.initialize_at(candidates.best_sets(2, 1)[0])
    search_seconds = min_seconds(lambda: separator.candidate_search.search(coherent))
    vessl_seconds = min_seconds(lambda: vessl.run(first))
    iterations = len(vessl.run(first).free_energies)
    print(
        f"- two talkers, {seconds:g} s, K = {len(atlas.model.weights)}: real-time factor of the "
        f"spatial stage {spatial_seconds / seconds:.3f}; "
        f"candidate search {1000 * search_seconds:.0f} ms; "
        f"VESSL alone ({iterations} iterations) {1000 * vessl_seconds:.0f} ms, "
        f"factor {vessl_seconds / seconds:.3f}"
    )


def speed(atlas: ea.Atlas, training: ea.Head, held_out: ea.Head) -> None:
    """Print real-time factors of the whole and of its parts, and the ratio to loops."""
    print("\n### Speed")
    from_file_to_files(atlas, held_out, "plane")
    print()
    for seconds in (3.0, 10.0):
        stages(atlas, next(mixtures(held_out, 1, 2, seconds=seconds, seed=5)), seconds)
    layout = ea.CueLayout()
    model = paper_ppam(training.directions, training.cues(), 64)
    scene = next(mixtures(held_out, 1, 2, seed=5))
    cues = ea.audio_cues(scene.mixture)
    q = np.full((2, layout.n_cues, LOOPED_FRAMES), 0.5)
    looped = loop_step(model, cues.values[:, :LOOPED_FRAMES], q) * cues.frames / LOOPED_FRAMES
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    f, t = np.indices((layout.n_frequencies, cues.frames)).reshape(2, -1)
    bins = ObservedBins.at(spectra, layout, f, t)
    vessl = VESSL(SourceModel.from_ppam(model, layout, model.noise, VESSLSettings.paper()), bins)
    state = vessl.initialize_with(np.full((2, len(bins)), 0.5))
    ours = min_seconds(lambda: vessl.step(state, all_charts=True))
    print(
        f"- one iteration with every bin and chart: {1000 * ours:.0f} ms; E-XZ alone "
        f"with loops over m, k, d, t: {looped:.0f} s, {looped / ours:.0f} times as long "
        f"(extrapolated from {LOOPED_FRAMES} of {cues.frames} frames)"
    )


def memory(trained_atlas: ea.Atlas, held_out: ea.Head, minutes: float) -> None:
    """Print peak memory and cost of a long recording, in a separate process."""
    rng = np.random.default_rng(0)
    files = utterances()
    n = int(60 * minutes * 16_000)
    signals = []
    for speaker_files in (files[:120], files[120:]):
        sound = np.concatenate([speech_excerpt(path, 15.0, rng) for path in speaker_files])
        signals.append(np.tile(sound, -(-n // len(sound)))[:n])
    scene = ea.render_scene(held_out, signals, [(40, 0), (-60, 20)])
    with tempfile.TemporaryDirectory() as folder:
        atlas = trained_atlas.save(Path(folder) / "plane.atlas")
        path = scene.mixture.write(Path(folder) / "long.wav")
        code = (
            "import re, time; import earatlas as ea; s = time.process_time(); "
            f"a = ea.Atlas.load({str(atlas)!r}); "
            f"scene, _ = a.separate_file({str(path)!r}, {folder!r}, n_sources=2); "
            # Not ru_maxrss, which includes the memory of the parent process.
            r"print(time.process_time() - s, "
            r"re.search(r'VmHWM:\s+(\d+)', open('/proc/self/status').read())[1])"
        )
        completed = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
    seconds, kilobytes = map(float, completed.stdout.split())
    print(
        f"\n### Memory\n\n- {minutes:g} minutes, two talkers: peak {kilobytes / 1000:.0f} MB, "
        f"{seconds / 60 / minutes:.3f} CPU s per second"
    )
