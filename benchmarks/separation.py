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
from itertools import product
from pathlib import Path

import joblib
import numpy as np
from protocol import (
    DATA,
    best_seconds,
    head_of,
    in_room,
    mixtures,
    split,
    talker,
    utterances,
    within_plane,
)
from pystoi import stoi

import earatlas as ea
from earatlas.baselines import messl
from earatlas.experiments.models import paper_ppam
from earatlas.experiments.vessl_printed import printed_vessl
from earatlas.hearing.cues import bin_power
from earatlas.hearing.heard_bins import HeardBins
from earatlas.hearing.layout import Threshold
from earatlas.hearing.transform import istft, stft
from earatlas.judging.directions import assign_directions, direction_errors
from earatlas.judging.masks import oracle_masks
from earatlas.judging.quality import assign_sounds, mixture_quality, separation_quality
from earatlas.learning.ppam import PPAM
from earatlas.separation.separator import Separator
from earatlas.separation.sound.masks import binary_masks, render
from earatlas.separation.sound.spatial import separate_spatially
from earatlas.separation.vessl import VESSL, Inference, SourceModel, multiscale
from earatlas.types import Array, Indices

LEVELS = (0.5, 0.9)
HEADER = (
    "| {} | SDR dB | SIR dB | SAR dB | SI-SDR dB | STOI | worst tenth SDR dB | azimuth ° | "
    "elevation ° | beyond 20° % | s per s |\n|---|---|---|---|---|---|---|---|---|---|---|"
)
NOWHERE = [np.nan] * 3
Row = list[float]


# --- one mixture ------------------------------------------------------------------------------


def sound_figures(scene: ea.SimulatedScene, estimates: Array) -> Row:
    """SDR, SIR, SAR, SI-SDR and STOI of the best assignment, mean over sources and ears."""
    best = assign_sounds(scene.images, estimates).take(estimates)
    quality = separation_quality(scene.images, best).mean()
    clear = [
        stoi(image, sound, scene.mixture.rate)
        for images, sounds in zip(scene.images, best, strict=True)
        for image, sound in zip(images, sounds, strict=True)
    ]
    figures = [quality.sdr_db, quality.sir_db, quality.sar_db, quality.si_sdr_db]
    return [*figures, float(np.mean(clear))]


def place_figures(scene: ea.SimulatedScene, found: Array | None) -> Row:
    """Azimuth, elevation and the share beyond 20 degrees under the best assignment."""
    if found is None:
        return NOWHERE
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
    every = HeardBins.of_spectra(spectra, layout, np.full(layout.n_frequencies, float(floor)))
    return spectra, every, separator.sure_bins(spectra, floor)


def row(scene: ea.SimulatedScene, sounds: Array, found: Array | None, seconds: float) -> Row:
    """All figures of sounds (M, 2, n); `seconds` were spent on them."""
    figures = sound_figures(scene, sounds) + place_figures(scene, found)
    return [*figures, seconds / scene.mixture.seconds]


def masked(
    scene: ea.SimulatedScene, spectra: Array, masks: Array, found: Array | None = None
) -> Row:
    """All figures of masks (M, F, T), whatever they cost."""
    sounds = render(spectra, masks, ea.CueLayout(), scene.mixture.samples.shape[1])
    return row(scene, sounds, found, np.nan)


def ends(scene: ea.SimulatedScene) -> dict[str, Row]:
    """What is between nothing and everything: the mixture, and filters that know the truth."""
    samples = scene.mixture.samples
    mixed = mixture_quality(scene.images, samples).mean()
    clear = [
        stoi(image, sound, scene.mixture.rate)
        for images in scene.images
        for image, sound in zip(images, samples, strict=True)
    ]
    spectra = stft(samples, 1024, 128)
    images = np.stack([stft(image, 1024, 128) for image in scene.images])
    figures = [mixed.sdr_db, mixed.sir_db, mixed.sar_db, mixed.si_sdr_db, float(np.mean(clear))]
    return {
        "mixture": [*figures, *NOWHERE, np.nan],
        "oracle binary mask": masked(scene, spectra, oracle_masks(images[:, :, 1:])),
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
    """MESSL-G, and the blind methods of pyroomacoustics, both ears by projecting back.

    In the open a window of 1024 is their best of 1024, 2048 and 4096; in rooms two are shown.
    """
    import pyroomacoustics as pra

    M, n, rows = len(scene.directions), scene.mixture.samples.shape[1], {}
    start = time.process_time()
    masks = messl.separate(scene.mixture, M)
    seconds = time.process_time() - start
    rows["MESSL-G, soft"] = row(scene, masks.render(), None, seconds)
    rows["MESSL-G, binary"] = row(scene, masks.render(binary=True), None, seconds)
    for name, window in product(("AuxIVA", "ILRMA", "FastMNMF2"), windows):
        if M > 2 and name != "FastMNMF2":
            continue  # they need as many ears as sources
        np.random.seed(0)  # noqa: NPY002 (pyroomacoustics draws from it)
        start = time.process_time()
        hop = window // 4
        X = stft(scene.mixture.samples, window, hop).transpose(2, 1, 0)
        if name == "FastMNMF2":
            images = pra.bss.fastmnmf2(X, n_src=M, n_iter=50, n_components=8, mic_index="all")
            images = np.asarray(images).transpose(3, 0, 2, 1)
        else:
            method = {"AuxIVA": pra.bss.auxiva, "ILRMA": pra.bss.ilrma}[name]
            y, W = method(X, n_iter=50, proj_back=False, return_filters=True)
            images = np.einsum("fam,tfm->maft", np.linalg.inv(W), y)
        sounds = istft(images, window, hop, n)
        if not np.isfinite(sounds).all():  # it broke down: nothing is gained over the mixture
            sounds = np.repeat(scene.mixture.samples[None], M, axis=0)
        label = name if len(windows) == 1 else f"{name}, window {window}"
        rows[label] = row(scene, sounds, None, time.process_time() - start)
    return rows


def of_state(separator: Separator, mixture: VESSL, state: object, spectra: Array) -> tuple:  # type: ignore[type-arg]
    """Masks of a state, and its directions."""
    found = np.stack([source.belief.best for source in state.sources])  # type: ignore[attr-defined]
    return separator.masks(mixture, state, spectra), found  # type: ignore[arg-type]


# --- models -----------------------------------------------------------------------------------


def paper_models(known: ea.Head, finest: int = 64) -> list[PPAM]:
    """PPAM as the paper has it, at all scales."""
    x, y = known.directions, known.cues()
    return [paper_ppam(x, y, 2**i) for i in range(finest.bit_length())]


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


def as_printed(scene: ea.SimulatedScene, models: list[PPAM]) -> dict[str, Row]:
    """VESSL exactly as the paper has it."""
    sources, rows = paper_sources(models), {}
    for name, scales in (("random", sources[-1:]), ("multi-scale", sources)):
        start = time.process_time()
        sounds, found = printed_vessl(scales, scene, seed=0)
        seconds = time.process_time() - start
        rows[f"VESSL as printed, {name} start"] = row(scene, sounds, found, seconds)
    return rows


def all_places(spectra: Array) -> tuple[Indices, Indices]:
    """f and t of every bin."""
    f, t = np.indices((512, spectra.shape[-1]))
    return f.ravel(), t.ravel()


def scout_alone(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Masks from the cues that the head expects at the scout's directions."""
    M, separator = len(scene.directions), atlas.separator
    spectra, _, sure = heard(separator, scene)
    start = separator.scout.look(sure).best_sets(M, 1)[0]
    cues, squares = separator.source_model.expected(start)
    bins = HeardBins.at(spectra, separator.source_model.layout, *all_places(spectra))
    mixture = VESSL(separator.source_model, sure)
    logs = mixture.log_likelihoods(cues, squares, _frames_of_mixtures(separator), bins)
    masks = binary_masks(logs.reshape(M, 512, -1))
    return {"scout alone, binary": masked(scene, spectra, masks, start)}


def ours(scene: ea.SimulatedScene, atlas: ea.Atlas, label: str = "ours") -> dict[str, Row]:
    """Our separation, rendered in every way."""
    rows = {}
    for rendering in ("spatial", "soft", "binary"):
        start = time.process_time()
        answer = atlas.separate(scene.mixture, n_sources=len(scene.directions), rendering=rendering)
        seconds = time.process_time() - start
        sounds = np.stack([s.audio.samples for s in answer.sources if s.audio is not None])
        rows[f"{label}, {rendering}"] = row(scene, sounds, answer.directions, seconds)
    return rows


def every_method(scene: ea.SimulatedScene, atlas: ea.Atlas, models: list[PPAM]) -> dict[str, Row]:
    """A row of figures a method, on one mixture."""
    return (
        ends(scene)
        | as_printed(scene, models)
        | blind(scene)
        | scout_alone(scene, atlas)
        | ours(scene, atlas)
    )


def _frames_of_mixtures(separator: Separator) -> Array:
    """Noise of bins in mixtures, where nothing was estimated yet: 2 dB and 0.2 rad."""
    return np.where(separator.source_model.layout.cue_kinds == "ild", 4.0, 0.05)


def every_start(scene: ea.SimulatedScene, atlas: ea.Atlas) -> dict[str, Row]:
    """Our VESSL from different starts, on one mixture; soft masks."""
    M, separator = len(scene.directions), atlas.separator
    spectra, _, sure = heard(separator, scene)
    scales = our_sources(atlas, separator)
    mixture = VESSL(scales[-1], sure)
    sets = separator.scout.look(sure).best_sets(M, 4)
    rng = np.random.default_rng(0)
    grid = separator.scout.grid
    scouted = mixture.start_at(sets[0])
    climbing = scouted
    for model in scales:
        coarse = VESSL(model, sure)
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


def table(title: str, rows: list[dict[str, Row]]) -> None:
    """Means over the mixtures, and the mean SDR of the worst tenth of them."""
    print("\n" + HEADER.format(title))
    for name in rows[0]:
        figures = np.array([row[name] for row in rows])
        sdr = np.sort(figures[:, 0])
        worst = float(sdr[: max(len(sdr) // 10, 1)].mean())
        *sound, clear, azimuth, elevation, beyond, seconds = figures.mean(axis=0)
        cells = [f"{v:.1f}" for v in sound] + [f"{clear:.2f}", f"{worst:.1f}"]
        cells += [f"{v:.1f}" for v in (azimuth, elevation, beyond)] + [f"{seconds:.2f}"]
        shown = ["–" if cell == "nan" else cell for cell in cells]
        print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


def on_mixtures(
    work: Callable[..., dict[str, Row]],
    scenes: Iterable[ea.SimulatedScene],
    jobs: int,
    *arguments: object,
) -> list[dict[str, Row]]:
    """`work` on every mixture, several at once."""
    return list(joblib.Parallel(n_jobs=jobs)(joblib.delayed(work)(s, *arguments) for s in scenes))


def plane_atlas() -> tuple[ea.Atlas, ea.Head, ea.Head]:
    """ku100's plane, 80 % of the directions, K = 64; and the heads of both parts."""
    known, asked = split(within_plane(head_of("ku100")), 0)
    return ea.learn(known, space=ea.Plane(), components=64), known, asked


def mixtures_part(count: int, jobs: int, talkers: list[int]) -> None:
    """Two and three talkers in the open."""
    atlas, known, asked = plane_atlas()
    models = paper_models(known)
    for M in talkers:
        rows = on_mixtures(every_method, mixtures(asked, count, M), jobs, atlas, models)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)
    known, asked = split(head_of("ku100"), 0)
    sphere = ea.learn(known)
    for M in talkers:
        rows = on_mixtures(ours, mixtures(asked, count, M), jobs, sphere)
        table(
            f"{M} talkers, whole sphere, K = {len(sphere.finest.weights)}, {count} mixtures", rows
        )


def starts_part(count: int, jobs: int) -> None:
    """Which start is best."""
    atlas, _, asked = plane_atlas()
    for M in (2, 3):
        rows = on_mixtures(every_start, mixtures(asked, count, M, seed=1), jobs, atlas)
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


def room_method(scene: ea.SimulatedScene, atlases: dict[str, ea.Atlas]) -> dict[str, Row]:
    """Every method, ours with every atlas, and with a garbage class."""
    rows = ends(scene) | blind(scene, (1024, 4096))
    for label, atlas in atlases.items():
        rows |= ours(scene, atlas, label)
    atlas = next(iter(atlases.values()))
    separator = Separator(atlas, inference=Inference(garbage=0.05))
    spectra, _, sure = heard(separator, scene)
    mixture, state = separator.find(sure, len(scene.directions))
    masks, found = of_state(separator, mixture, state, spectra)
    rows["ours with a garbage class, soft"] = masked(scene, spectra, masks, found)
    return rows


def simulated_rooms(count: int, jobs: int) -> None:
    """Learned in the open, and in them."""
    whole = head_of("ku100")
    atlas, known, asked = plane_atlas()
    for t60 in (0.3, 0.5):
        room = ea.Room(t60_seconds=t60)
        wet = ea.learn(in_room(known, room, whole), space=ea.Plane(), components=64)
        scenes = mixtures(asked, count, 2, room=room, around=whole)
        atlases = {"ours, learned in the open": atlas, "ours, learned in the room": wet}
        rows = on_mixtures(room_method, scenes, jobs, atlases)
        table(f"2 talkers, simulated room, T60 {t60} s, {count} mixtures", rows)


def measured_rooms(count: int, jobs: int) -> None:
    """Learned in them, from four fifths of their places."""
    for name in ("room_a", "room_d"):
        head = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
        known, asked = split(head, 0)
        rows = on_mixtures(room_method, mixtures(asked, count, 2), jobs, {"ours": ea.learn(known)})
        table(f"2 talkers, measured {name}, {count} mixtures, other places learned in it", rows)


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


def stage_speed(atlas: ea.Atlas, scene: ea.SimulatedScene) -> float:
    """Seconds of the spatial stage."""
    spectra, _, sure = heard(atlas.separator, scene)
    mixture, state = atlas.separator.find(sure, len(scene.directions))
    masks = atlas.separator.masks(mixture, state, spectra)
    return best_seconds(lambda: separate_spatially(scene.mixture.samples, masks, atlas.layout))


def speed_part() -> None:
    """Real-time factors, whole and in parts, and the ratio to loops."""
    atlas, known, asked = plane_atlas()
    separator = atlas.separator
    print("\n### Speed\n")
    for seconds in (3.0, 10.0):
        scene = next(mixtures(asked, 1, 2, seconds=seconds, seed=5))
        with tempfile.TemporaryDirectory() as folder:
            path = scene.mixture.write(Path(folder) / "mixture.wav")
            times = {
                rendering: best_seconds(
                    lambda p=path, f=folder, r=rendering: atlas.separate_file(  # type: ignore[misc]
                        p, f, n_sources=2, rendering=r
                    )
                )
                for rendering in ("soft", "spatial")
            }
        stage = stage_speed(atlas, scene)
        _, _, sure = heard(separator, scene)
        mixture = VESSL(separator.source_model, sure)
        sighting = separator.scout.look(sure)
        start = sighting.best_sets(2, 1)[0]
        scouting = best_seconds(lambda s=sure: separator.scout.look(s))  # type: ignore[misc]
        vessl = best_seconds(lambda x=start, m=mixture: m.run(m.start_at(x)))  # type: ignore[misc]
        steps = len(mixture.run(mixture.start_at(start)).free_energies)
        print(
            f"- two talkers, {seconds:g} s, K = 64, from file to files: real-time factor "
            f"{times['soft'] / seconds:.3f} with soft masks, {times['spatial'] / seconds:.3f} with "
            f"the spatial stage ({stage / seconds:.3f} alone); the scout {1000 * scouting:.0f} ms; "
            f"VESSL alone ({steps} steps) {1000 * vessl:.0f} ms, factor {vessl / seconds:.3f}"
        )
    frames, layout = 4, ea.CueLayout()
    model = paper_models(known)[-1]
    scene = next(mixtures(asked, 1, 2, seed=5))
    cues = ea.audio_cues(scene.mixture)
    y = cues.values[:, :frames]
    q = np.full((2, layout.n_cues, frames), 0.5)
    looped = loop_step(model, y, q) * cues.frames / frames
    bins = HeardBins.at(
        stft(scene.mixture.samples, 1024, 128),
        layout,
        *(index.ravel() for index in np.indices((512, cues.frames))),
    )
    mixture = VESSL(paper_sources([model])[0], bins)
    state = mixture.start_with(np.full((2, len(bins)), 0.5))
    ours = best_seconds(lambda: mixture.step(state, all_charts=True))
    print(
        f"- one iteration with every bin and chart: {1000 * ours:.0f} ms; E-XZ alone by loops over "
        f"m, k, d, t: {looped:.0f} s, {looped / ours:.0f} times as long ({frames} of "
        f"{cues.frames} frames were looped over)"
    )


def memory_part(minutes: float) -> None:
    """Peak memory of a long recording, in a process of its own."""
    learned, _, asked = plane_atlas()
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
            "import re, time; import earatlas as ea; s = time.perf_counter(); "
            f"a = ea.Atlas.load({str(atlas)!r}); "
            f"scene, _ = a.separate_file({str(path)!r}, {folder!r}, n_sources=2); "
            # Not ru_maxrss: that is at least what this process had when it started the other.
            r"print(time.perf_counter() - s, "
            r"re.search(r'VmHWM:\s+(\d+)', open('/proc/self/status').read())[1])"
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
    parser.add_argument("--talkers", type=int, nargs="+", default=[2, 3], help="of mixtures")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    for part in arguments.parts or names:
        match part:
            case "mixtures":
                mixtures_part(arguments.count, arguments.jobs, arguments.talkers)
            case "starts":
                starts_part(arguments.count, arguments.jobs)
            case "count":
                count_part(arguments.count, arguments.jobs)
            case "rooms":
                simulated_rooms(max(arguments.count // 2, 1), arguments.jobs)
                measured_rooms(max(arguments.count // 2, 1), arguments.jobs)
            case "speed":
                speed_part()
            case "memory":
                memory_part(30.0)
