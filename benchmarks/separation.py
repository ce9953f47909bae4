"""Separation figures on the measured heads; run as `python benchmarks/separation.py PART …`.

Parts: mixtures (two and three talkers, every method in one table), starts (which start VESSL
should have), count (how many sources), rooms (simulated and measured), speed, memory. Without a
part: all of them. The heads, rooms and speech come from EARATLAS_DATA. Seeds are fixed. `--jobs`
mixtures are worked on at once; speed and memory always run alone.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import joblib
import numpy as np
from numpy.typing import NDArray
from protocol import DATA, best_seconds, head_of, mixtures, split, talker, utterances, within_plane

import earatlas as ea
from earatlas.audio import stft
from earatlas.baselines import messl
from earatlas.bins import HeardBins, wide_layout
from earatlas.cues import Threshold, bin_power
from earatlas.metrics import (
    assign_directions,
    assign_sounds,
    direction_errors,
    mixture_quality,
    oracle_masks,
    separation_quality,
)
from earatlas.ppam import PPAM, Learning
from earatlas.rendering import binary_masks, render
from earatlas.separation import Separator
from earatlas.vessl import Inference, Mixture, SourceModel, multiscale

Array = NDArray[np.float64]
LEVELS = (0.5, 0.9)
HEADER = (
    "| {} | SDR dB | SIR dB | SAR dB | SI-SDR dB | worst tenth SDR dB | azimuth ° | elevation ° "
    "| beyond 20° % |\n|---|---|---|---|---|---|---|---|---|"
)


# --- one mixture ------------------------------------------------------------------------------


def sound_figures(scene: ea.SimulatedScene, estimates: Array) -> list[float]:
    """SDR, SIR, SAR, SI-SDR of the best assignment, mean over sources and ears."""
    best = assign_sounds(scene.images, estimates)
    quality = separation_quality(scene.images, best.take(estimates)).mean()
    return [quality.sdr_db, quality.sir_db, quality.sar_db, quality.si_sdr_db]


def place_figures(scene: ea.SimulatedScene, found: Array | None) -> list[float]:
    """Azimuth, elevation and the share beyond 20 degrees under the best assignment."""
    if found is None:
        return [np.nan] * 3
    on_sphere = np.clip(found, (-180, -90), (180, 90))  # on the plane, elevations may be anything
    errors = direction_errors(scene.directions, on_sphere)
    beyond = float(np.mean(errors.great_circle_degrees > 20))
    return [
        float(np.mean(errors.azimuth_degrees)),
        float(np.mean(errors.elevation_degrees)),
        100 * beyond,
    ]


def heard(separator: Separator, scene: ea.SimulatedScene) -> tuple[Array, HeardBins, HeardBins]:
    """Spectra, all heard bins, and the sure ones."""
    layout = separator.source_model.layout
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    every = HeardBins.of_spectra(spectra, layout, np.full(layout.bins, float(floor)))
    return spectra, every, separator.sure_bins(spectra, floor)


def masked(
    scene: ea.SimulatedScene, spectra: Array, masks: Array, found: Array | None
) -> list[float]:
    """All figures of masks (M, F, T)."""
    layout = ea.CueLayout()
    sounds = render(spectra, masks, layout, scene.mixture.samples.shape[1])
    return sound_figures(scene, sounds) + place_figures(scene, found)


def of_state(separator: Separator, mixture: Mixture, state: object, spectra: Array) -> tuple:  # type: ignore[type-arg]
    """Masks of a state, and its directions."""
    found = np.stack([source.belief.best for source in state.sources])  # type: ignore[attr-defined]
    return separator.masks(mixture, state, spectra), found  # type: ignore[arg-type]


# --- models -----------------------------------------------------------------------------------


def paper_models(known: ea.Head, finest: int = 64) -> list[PPAM]:
    """PPAM as the paper has it, at all scales."""
    how = Learning(spread_prior=None, temperature=1.0)
    return [
        PPAM.fit(
            ea.Plane(), known.directions, known.cues(), components=2**i, latent=0, learning=how
        )
        for i in range(finest.bit_length())
    ]


def paper_sources(models: Iterable[PPAM]) -> list[SourceModel]:
    """Their sources: noise as learned, no adaptation."""
    return [SourceModel.of(m, ea.CueLayout(), m.noise, Inference.paper()) for m in models]


def our_sources(atlas: ea.Atlas, separator: Separator) -> list[SourceModel]:
    """Our sources at all scales of an atlas."""
    noise = atlas.calibration.frame_noise
    assert noise is not None
    return [
        SourceModel.of(m, atlas.layout, noise, separator.source_model.how) for m in atlas.scales
    ]


# --- parts ------------------------------------------------------------------------------------


def every_method(
    scene: ea.SimulatedScene, atlas: ea.Atlas, models: list[PPAM]
) -> dict[str, list[float]]:
    """A row of figures a method, on one mixture."""
    M, separator = len(scene.directions), atlas.separator
    spectra, every, sure = heard(separator, scene)
    images = np.stack([stft(image, 1024, 128) for image in scene.images])
    mixed = mixture_quality(scene.images, scene.mixture.samples).mean()
    rows = {
        "mixture": [mixed.sdr_db, mixed.sir_db, mixed.sar_db, mixed.si_sdr_db, *[np.nan] * 3],
        "oracle binary mask": masked(scene, spectra, oracle_masks(images[:, :, 1:]), None),
    }
    sources = paper_sources(models)
    narrow = every.narrowed(ea.CueLayout())
    all_bins = HeardBins.at(
        spectra, ea.CueLayout(), *(i.ravel() for i in np.indices((512, spectra.shape[-1])))
    )
    for name, scales in (("random", sources[-1:]), ("multi-scale", sources)):
        state = multiscale(scales, narrow, M, seed=0)
        found = np.stack([s.belief.best for s in state.sources])
        # Soft: with binary masks, a source that gets no bin at all has no SDR.
        masks = Mixture(scales[-1], narrow).posterior_masks(state, all_bins).reshape(M, 512, -1)
        rows[f"VESSL as printed, {name} start"] = masked(scene, spectra, masks, found)
    blind = messl.separate(scene.mixture, M)
    rows["MESSL-G, soft"] = sound_figures(scene, blind.render()) + [np.nan] * 3
    rows["MESSL-G, binary"] = sound_figures(scene, blind.render(binary=True)) + [np.nan] * 3
    start = separator.scout.look(sure).best_sets(M, 1)[0]
    mixture = Mixture(separator.source_model, sure)
    cues, squares = separator.source_model.expected(start)
    wide_bins = HeardBins.at(spectra, wide_layout(atlas.layout), all_bins.f, all_bins.t)
    logs = mixture.log_likelihoods(cues, squares, _frames_of_mixtures(separator), wide_bins)
    masks = binary_masks(logs.reshape(M, 512, -1))
    rows["scout alone, binary"] = masked(scene, spectra, masks, start)
    mixture, state = separator.find(sure, M)
    masks, found = of_state(separator, mixture, state, spectra)
    rows["**ours, soft**"] = masked(scene, spectra, masks, found)
    rows["ours, binary"] = masked(scene, spectra, binary_masks(masks), found)
    return rows


def _frames_of_mixtures(separator: Separator) -> Array:
    """Noise of bins in mixtures, where nothing was estimated yet: 2 dB and 0.2 rad."""
    return np.where(separator.source_model.layout.channel_kinds == "ild", 4.0, 0.05)


def every_start(
    scene: ea.SimulatedScene, atlas: ea.Atlas, models: list[PPAM]
) -> dict[str, list[float]]:
    """Our VESSL from different starts, on one mixture; soft masks."""
    M, separator = len(scene.directions), atlas.separator
    spectra, _, sure = heard(separator, scene)
    scales = our_sources(atlas, separator)
    mixture = Mixture(scales[-1], sure)
    sets = separator.scout.look(sure).best_sets(M, 4)
    rng = np.random.default_rng(0)
    grid = separator.scout.grid
    scouted = mixture.start_at(sets[0])
    climbing = scouted
    for model in scales:
        coarse = Mixture(model, sure)
        climbing = coarse.run(coarse.start_with(climbing.assignments))
    guesses = [mixture.start_at(grid[rng.choice(len(grid), M, replace=False)]) for _ in range(4)]
    states = {
        "random masks": multiscale(scales[-1:], sure, M, seed=0),
        "random directions": mixture.run(guesses[0]),
        "best of 4 random directions": max(
            (mixture.run(g) for g in guesses), key=lambda s: s.free_energy
        ),
        "multi-scale": multiscale(scales, sure, M, seed=0),
        "scout": mixture.run(scouted),
        "scout + multi-scale": climbing,
        "best of 2 scouted": max(
            (mixture.run(mixture.start_at(x)) for x in sets[:2]), key=lambda s: s.free_energy
        ),
        "best of 4 scouted": max(
            (mixture.run(mixture.start_at(x)) for x in sets), key=lambda s: s.free_energy
        ),
        "true directions": mixture.run(mixture.start_at(scene.directions)),
    }
    return {
        name: masked(scene, spectra, *of_state(separator, mixture, state, spectra))
        for name, state in states.items()
    }


def table(title: str, rows: list[dict[str, list[float]]]) -> None:
    """Means over the mixtures, and the mean SDR of the worst tenth of them."""
    print("\n" + HEADER.format(title))
    for name in rows[0]:
        figures = np.array([row[name] for row in rows])
        sdr = np.sort(figures[:, 0])
        worst = float(sdr[: max(len(sdr) // 10, 1)].mean())
        sdr_, sir, sar, si, az, el, beyond = figures.mean(axis=0)
        places = ["–"] * 3 if np.isnan(az) else [f"{az:.1f}", f"{el:.1f}", f"{beyond:.1f}"]
        sir_text = f"{sir:.1f}" if sir < 90 else "–"
        print(
            f"| {name} | {sdr_:.1f} | {sir_text} | {sar:.1f} | {si:.1f} | {worst:.1f} | "
            + " | ".join(places) + " |",
            flush=True,
        )  # fmt: skip


def on_mixtures(
    work: Callable[..., dict[str, list[float]]],
    scenes: Iterable[ea.SimulatedScene],
    jobs: int,
    *arguments: object,
) -> list[dict[str, list[float]]]:
    """`work` on every mixture, several at once."""
    return list(joblib.Parallel(n_jobs=jobs)(joblib.delayed(work)(s, *arguments) for s in scenes))


def plane_atlas() -> tuple[ea.Atlas, ea.Head, ea.Head]:
    """ku100's plane, 80 % of the directions, K = 64; and the heads of both parts."""
    known, asked = split(within_plane(head_of("ku100")), 0)
    return ea.learn(known, space=ea.Plane(), components=64), known, asked


def sphere_method(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, list[float]]:
    """Our default on one mixture."""
    separator = atlas.separator
    spectra, _, sure = heard(separator, scene)
    mixture, state = separator.find(sure, len(scene.directions))
    masks, found = of_state(separator, mixture, state, spectra)
    return {
        "ours, soft": masked(scene, spectra, masks, found),
        "ours, binary": masked(scene, spectra, binary_masks(masks), found),
    }


def mixtures_part(count: int, jobs: int) -> None:
    """Two and three talkers in the open."""
    atlas, known, asked = plane_atlas()
    models = paper_models(known)
    for M in (2, 3):
        rows = on_mixtures(every_method, mixtures(asked, count, M), jobs, atlas, models)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)
    known, asked = split(head_of("ku100"), 0)
    sphere = ea.learn(known)
    for M in (2, 3):
        rows = on_mixtures(sphere_method, mixtures(asked, count, M), jobs, sphere)
        table(f"{M} talkers, whole sphere, K = {len(sphere.finest.weights)}", rows)


def starts_part(count: int, jobs: int) -> None:
    """Which start is best."""
    atlas, _, asked = plane_atlas()
    for M in (2, 3):
        rows = on_mixtures(every_start, mixtures(asked, count, M, seed=1), jobs, atlas, [])
        table(f"start, {M} talkers, {count} mixtures", rows)


def counted(scene: ea.SimulatedScene, atlas: ea.Atlas) -> tuple[int, list[float]]:
    """How many sources are found, and the levels of the truths in their beliefs."""
    found = atlas.separate(scene.mixture)
    known = atlas.separate(scene.mixture, n_sources=len(scene.directions))
    best = assign_directions(scene.directions, known.directions)
    levels = [
        known.sources[int(j)].belief.level_of(truth)
        for j, truth in zip(best.found, scene.directions, strict=True)
    ]
    return len(found.sources), levels


def count_part(count: int, jobs: int) -> None:
    """Number of sources found, and how honest the beliefs are."""
    atlas, _, asked = plane_atlas()
    print(f"\n| true sources, {count} mixtures each | found 1 | 2 | 3 | 4 or more | truth in the "
          "50 % region, % | 90 % region, % |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for M in (1, 2, 3):
        answers = joblib.Parallel(n_jobs=jobs)(
            joblib.delayed(counted)(scene, atlas) for scene in mixtures(asked, count, M)
        )
        numbers = np.array([n for n, _ in answers])
        levels = np.concatenate([level for _, level in answers])
        cells = [int((numbers == n).sum()) for n in (1, 2, 3)] + [int((numbers > 3).sum())]
        inside = [f"{100 * float(np.mean(levels <= level)):.0f}" for level in LEVELS]
        print(f"| {M} | " + " | ".join([*map(str, cells), *inside]) + " |", flush=True)


def room_method(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, list[float]]:
    """Ours, with and without the garbage class, and MESSL-G, on one mixture."""
    images = np.stack([stft(image, 1024, 128) for image in scene.images])
    spectra = stft(scene.mixture.samples, 1024, 128)
    blind = messl.separate(scene.mixture, len(scene.directions))
    mixed = mixture_quality(scene.images, scene.mixture.samples).mean()
    rows = {
        "mixture": [mixed.sdr_db, mixed.sir_db, mixed.sar_db, mixed.si_sdr_db, *[np.nan] * 3],
        "oracle binary mask": masked(scene, spectra, oracle_masks(images[:, :, 1:]), None),
        "MESSL-G, soft": sound_figures(scene, blind.render()) + [np.nan] * 3,
    }
    for name, garbage in (("ours, soft", 0.0), ("ours with a garbage class, soft", 0.05)):
        separator = Separator(atlas.listener, inference=Inference(garbage=garbage))
        spectra, _, sure = heard(separator, scene)
        mixture, state = separator.find(sure, len(scene.directions))
        rows[name] = masked(scene, spectra, *of_state(separator, mixture, state, spectra))
    return rows


def rooms_part(count: int, jobs: int) -> None:
    """Simulated rooms, learned in the open; measured rooms, learned there on the circle."""
    atlas, _, asked = plane_atlas()
    for t60 in (0.3, 0.6):
        scenes = mixtures(asked, count, 2, room=ea.Room(t60_seconds=t60))
        rows = on_mixtures(room_method, scenes, jobs, atlas)
        table(f"2 talkers, simulated room, T60 {t60} s, learned in the open", rows)
    for room in ("room_a", "room_d"):
        head = ea.read_recordings(DATA / "rooms" / room / "positions.csv", kind="responses")
        rows = on_mixtures(room_method, mixtures(head, count, 2), jobs, ea.learn(head))
        table(f"2 talkers, measured {room}, learned in it on the circle", rows)


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


def speed_part() -> None:
    """Real-time factors, whole and in parts, and the ratio to loops."""
    atlas, known, asked = plane_atlas()
    separator = atlas.separator
    print("\n### Speed\n")
    for seconds in (3.0, 10.0):
        scene = next(mixtures(asked, 1, 2, seconds=seconds, seed=5))
        with tempfile.TemporaryDirectory() as folder:
            path = scene.mixture.write(Path(folder) / "mixture.wav")
            whole = best_seconds(lambda p=path, f=folder: atlas.separate_file(p, f, n_sources=2))  # type: ignore[misc]
        _, _, sure = heard(separator, scene)
        mixture = Mixture(separator.source_model, sure)
        sighting = separator.scout.look(sure)
        start = sighting.best_sets(2, 1)[0]
        scouting = best_seconds(lambda s=sure: separator.scout.look(s))  # type: ignore[misc]
        vessl = best_seconds(lambda x=start, m=mixture: m.run(m.start_at(x)))  # type: ignore[misc]
        steps = len(mixture.run(mixture.start_at(start)).free_energies)
        print(
            f"- two talkers, {seconds:g} s, K = 64, from file to files: {1000 * whole:.0f} ms, "
            f"real-time factor {whole / seconds:.3f}; of it the scout {1000 * scouting:.0f} ms; "
            f"VESSL alone ({steps} steps) {1000 * vessl:.0f} ms, factor {vessl / seconds:.3f}"
        )
    frames, layout = 4, ea.CueLayout()
    model = paper_models(known)[-1]
    scene = next(mixtures(asked, 1, 2, seed=5))
    cues = ea.audio_cues(scene.mixture)
    y = cues.values[:, :frames]
    q = np.full((2, layout.channels, frames), 0.5)
    looped = loop_step(model, y, q) * cues.frames / frames
    bins = HeardBins.at(
        stft(scene.mixture.samples, 1024, 128),
        layout,
        *(index.ravel() for index in np.indices((512, cues.frames))),
    )
    mixture = Mixture(paper_sources([model])[0], bins)
    state = mixture.start_with(np.full((2, len(bins)), 0.5))
    ours = best_seconds(lambda: mixture.step(state, all_charts=True))
    print(
        f"- one iteration with every bin and chart: {1000 * ours:.0f} ms; E-XZ alone by loops over "
        f"m, k, d, t: {looped:.0f} s, {looped / ours:.0f} times as long ({frames} of "
        f"{cues.frames} frames were looped over)"
    )


def memory_part(minutes: float) -> None:
    """Peak memory of a long recording, in a process of its own."""
    _, _, asked = plane_atlas()
    rng = np.random.default_rng(0)
    files = utterances()
    long_enough = int(60 * minutes * 16_000)
    voices = []
    for half in (files[:120], files[120:]):
        sound = np.concatenate([talker(path, 15.0, rng) for path in half])
        voices.append(np.tile(sound, -(-long_enough // len(sound)))[:long_enough])
    scene = ea.render_scene(asked, voices, [(40, 0), (-60, 20)])
    with tempfile.TemporaryDirectory() as folder:
        atlas = plane_atlas()[0].save(Path(folder) / "plane.atlas")
        path = scene.mixture.write(Path(folder) / "long.wav")
        code = (
            "import resource, sys, time; import earatlas as ea; s = time.perf_counter(); "
            f"a = ea.Atlas.load({str(atlas)!r}); "
            f"scene, _ = a.separate_file({str(path)!r}, {folder!r}, n_sources=2); "
            "print(time.perf_counter() - s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
    seconds, kilobytes = map(float, done.stdout.split())
    print(
        f"\n### Memory\n\n- {minutes:g} minutes, two talkers: peak {kilobytes / 1000:.0f} MB, "
        f"real-time factor {seconds / 60 / minutes:.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("mixtures", "starts", "count", "rooms", "speed", "memory")
    parser.add_argument("parts", nargs="*", choices=[[], *names])
    parser.add_argument("--count", type=int, default=100, help="mixtures a table")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    for part in arguments.parts or names:
        match part:
            case "mixtures":
                mixtures_part(arguments.count, arguments.jobs)
            case "starts":
                starts_part(arguments.count, arguments.jobs)
            case "count":
                count_part(arguments.count, arguments.jobs)
            case "rooms":
                rooms_part(max(arguments.count // 3, 1), arguments.jobs)
            case "speed":
                speed_part()
            case "memory":
                memory_part(30.0)
