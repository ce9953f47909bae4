"""What separation costs: real-time factors, whole and in parts, the ratio to loops, and memory."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import best_seconds, mixtures, talker, utterances

import earatlas as ea
from earatlas.experiments.models import paper_ppam
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.ppam.model import PPAM
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.spatial_filtering import separate_spatially
from earatlas.separation.source_model import Inference, SourceModel
from earatlas.separation.vessl import VESSL
from earatlas.types import Array
from separating.methods import sure_bins

LOOPED_FRAMES = 4  # of a mixture; the loops take minutes for all


def loop_step(model: PPAM, y: Array, q: Array) -> float:
    """Seconds of E-XZ as printed, a loop an index; y (D, T), q (M, D, T)."""
    start = time.perf_counter()
    M, D, T = q.shape
    K, _, L = model.A.shape
    for m in range(M):
        for k in range(K):
            precision, pull = np.linalg.inv(model.gammas[k]), np.zeros(L)
            for d in range(D):
                for t in range(T):
                    a = model.A[k, d]
                    precision = precision + q[m, d, t] / model.noise[d] * np.outer(a, a)
                    residual = y[d, t] - model.b[k, d]
                    pull = pull + q[m, d, t] / model.noise[d] * residual * a
            np.linalg.solve(precision, pull)
    return time.perf_counter() - start


def file_seconds(
    atlas: ea.Atlas, scene: ea.SimulatedScene, rendering: Rendering, n_sources: int | None
) -> float:
    """CPU seconds from file to files; the least of five."""
    with tempfile.TemporaryDirectory() as folder:
        path = scene.mixture.write(Path(folder) / "mixture.wav")
        seconds = []
        for _ in range(5):
            start = time.process_time()
            atlas.separate_file(path, folder, n_sources=n_sources, rendering=rendering)
            seconds.append(time.process_time() - start)
        return min(seconds)


def from_file_to_files(atlas: ea.Atlas, asked: ea.Head, where: str, count: int = 5) -> None:
    """Print what two talkers cost, with their number told and not."""
    K = len(atlas.model.weights)
    title = f"2 talkers, ku100 {where}, K = {K}, {count} mixtures, CPU s a second, median (most)"
    print(f"\n| {title} | 3 s | 10 s |\n|---|---|---|")
    ways: tuple[tuple[str, Rendering, int | None], ...] = (
        ("number told", "spatial", 2),
        ("number found", "spatial", None),
        ("number told, soft masks", "soft", 2),
    )
    for name, rendering, n_sources in ways:
        cells = []
        for seconds in (3.0, 10.0):
            scenes = mixtures(asked, count, 2, seconds=seconds, seed=5)
            costs = [file_seconds(atlas, s, rendering, n_sources) / seconds for s in scenes]
            cells.append(f"{np.median(costs):.3f} ({max(costs):.3f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def stages(atlas: ea.Atlas, scene: ea.SimulatedScene, seconds: float) -> None:
    """Print what two talkers cost stage by stage."""
    separator = atlas.separator
    spectra, sure = sure_bins(separator, scene)
    masks = separator.masks(*separator.find(sure, 2), spectra)
    spatial = best_seconds(lambda: separate_spatially(scene.mixture.samples, masks, atlas.layout))
    vessl, sighting = VESSL(separator.source_model, sure), separator.scout.look(sure)
    start = vessl.start_at(sighting.best_sets(2, 1)[0])
    scouting = best_seconds(lambda: separator.scout.look(sure))
    running = best_seconds(lambda: vessl.run(start))
    steps = len(vessl.run(start).free_energies)
    print(
        f"- two talkers, {seconds:g} s, K = {len(atlas.model.weights)}: real-time factor of the "
        f"spatial stage {spatial / seconds:.3f}; the scout {1000 * scouting:.0f} ms; "
        f"VESSL alone ({steps} steps) {1000 * running:.0f} ms, "
        f"factor {running / seconds:.3f}"
    )


def speed(atlas: ea.Atlas, known: ea.Head, asked: ea.Head) -> None:
    """Real-time factors, whole and in parts, and the ratio to loops."""
    print("\n### Speed")
    from_file_to_files(atlas, asked, "plane")
    print()
    for seconds in (3.0, 10.0):
        stages(atlas, next(mixtures(asked, 1, 2, seconds=seconds, seed=5)), seconds)
    layout = ea.CueLayout()
    model = paper_ppam(known.directions, known.cues(), 64)
    scene = next(mixtures(asked, 1, 2, seed=5))
    cues = ea.audio_cues(scene.mixture)
    q = np.full((2, layout.n_cues, LOOPED_FRAMES), 0.5)
    looped = loop_step(model, cues.values[:, :LOOPED_FRAMES], q) * cues.frames / LOOPED_FRAMES
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    f, t = np.indices((layout.n_frequencies, cues.frames)).reshape(2, -1)
    bins = HeardBins.at(spectra, layout, f, t)
    vessl = VESSL(SourceModel.of(model, layout, model.noise, Inference.paper()), bins)
    state = vessl.start_with(np.full((2, len(bins)), 0.5))
    ours = best_seconds(lambda: vessl.step(state, all_charts=True))
    print(
        f"- one iteration with every bin and chart: {1000 * ours:.0f} ms; E-XZ alone by loops over "
        f"m, k, d, t: {looped:.0f} s, {looped / ours:.0f} times as long ({LOOPED_FRAMES} of "
        f"{cues.frames} frames were looped over)"
    )


def memory(learned: ea.Atlas, asked: ea.Head, minutes: float) -> None:
    """Peak memory of a long recording, in a process of its own."""
    rng = np.random.default_rng(0)
    files = utterances()
    long_enough = int(60 * minutes * 16_000)
    voices = []
    for half in (files[:120], files[120:]):
        sound = np.concatenate([talker(path, 15.0, rng) for path in half])
        voices.append(np.tile(sound, -(-long_enough // len(sound)))[:long_enough])
    scene = ea.render_scene(asked, voices, [(40, 0), (-60, 20)])
    with tempfile.TemporaryDirectory() as folder:
        atlas = learned.save(Path(folder) / "plane.atlas")
        path = scene.mixture.write(Path(folder) / "long.wav")
        code = (
            "import re, time; import earatlas as ea; s = time.process_time(); "
            f"a = ea.Atlas.load({str(atlas)!r}); "
            f"scene, _ = a.separate_file({str(path)!r}, {folder!r}, n_sources=2); "
            # Not ru_maxrss: that is at least what this process had when it started the other.
            r"print(time.process_time() - s, "
            r"re.search(r'VmHWM:\s+(\d+)', open('/proc/self/status').read())[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
    seconds, kilobytes = map(float, done.stdout.split())
    print(
        f"\n### Memory\n\n- {minutes:g} minutes, two talkers: peak {kilobytes / 1000:.0f} MB, "
        f"{seconds / 60 / minutes:.3f} CPU s a second"
    )
