"""The fuzzed formats: valid files, their mutators, and how the files are used.

A format needs a function that creates valid files in a folder, a mutator, a function that uses a
file as a command would, and an entry in `FORMATS`.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import netCDF4
import numpy as np
import soundfile
from fuzz_hdf5 import HOSTILE_CHANGES
from fuzz_mutators import (
    Format,
    concatenated,
    mixed,
    mutated_bytes,
    mutated_json,
    mutated_text,
    mutated_value,
    truncated,
)

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.batch.batch import Executor, execute_batch, existing_outputs, plan_batch
from earatlas.batch.file_arguments import expand_file_arguments
from earatlas.batch.recordings import SeparationJob
from earatlas.batch.sidecar import Sidecar, fingerprints_of, write_sidecar
from earatlas.cli.ground_truth import read_truth
from earatlas.cli.outputs import is_scene
from earatlas.container import read_container, write_container
from earatlas.features.audio_files import audio_seconds, read_all_channels, read_audio, read_mono
from earatlas.features.onset_detector import OnsetDetectorSettings
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.geometry.angles import SPHERE_SQUARE_DEGREES
from earatlas.geometry.head_yaw import check_yaw_step
from earatlas.hrtf.interaural_templates import InterauralTemplates
from earatlas.localization.learned_head import Accuracy
from earatlas.localization.onset_likelihood import N_CLASSES, N_TABLE_STEPS, DirectSoundModel
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.localization.score_calibration import BETAS, KERNEL_WIDTHS_DEGREES, ScoreCalibration
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.simulation.trajectories import parse_trajectory

__all__ = ["FORMATS"]


# --- sounds ------------------------------------------------------------------------------------


_SAMPLES = 2500  # per channel


def _sounds(*kinds: str) -> Callable[[Path], list[bytes]]:
    """Return a function that makes files; a kind is format, subtype and perhaps byte order."""

    def make(folder: Path) -> list[bytes]:
        samples = np.random.default_rng(1).uniform(-0.5, 0.5, size=(_SAMPLES, 2))
        blobs = []
        for kind in kinds:
            file_format, subtype, *order = kind.split()
            arguments = (subtype, *(order or ["FILE"]), file_format)
            soundfile.write(folder / "x", samples, 16000, *arguments)
            blobs.append((folder / "x").read_bytes())
        return blobs

    return make


def _use_sound(path: Path) -> None:
    last_error: ea.InputError | None = None
    uses = (audio_seconds, lambda file: read_audio(file, rate=16000), read_all_channels,
            lambda file: read_mono(file, rate=16000))  # fmt: skip
    for use in uses:
        try:
            use(path)
        except ea.InputError as error:
            last_error = error  # the other functions are tried, too
    if last_error is not None:
        raise last_error


def _use_whole(path: Path) -> None:
    """Use a truncated or repeated file: whoever accepts it must read all of its samples."""
    audio = read_all_channels(path)
    complete = 0.95 * _SAMPLES  # encoders may drop a few samples
    assert audio.samples.shape[1] >= complete, f"only {audio.samples.shape[1]} samples were read"
    n_copies = _copies(path.read_bytes())
    assert n_copies < 2, f"only the first of {n_copies} recordings was read"


def _copies(blob: bytes) -> int:
    """Return how often the first 12 bytes behind a tag are repeated."""
    start = 30 if blob.startswith(b"ID3") else 0
    return blob.count(blob[start : start + 12])


# --- atlases -----------------------------------------------------------------------------------

_LAYOUT = ea.CueLayout(window=64, hop=32)
_RECORDING = ea.Audio(np.random.default_rng(2).uniform(-0.3, 0.3, size=(2, 4000)), 16000)


def _atlas(space: ea.Space, directions: np.ndarray) -> Atlas:
    head = ea.simulated_head(directions)
    model = PPAM.fit(space, head.directions, head.cues(_LAYOUT), components=3, latent=2)
    noise = np.full(_LAYOUT.n_cues, 4.0)
    calibration = Calibration(4.0, (1.0, 8.0), (0.7, 0.3), 0.25, 4.0, 1e-6, noise)
    about = {"head": "small", "licence": "CC0", "provenance": "", "directions": len(head),
             "left_out": 0, "spacing_degrees": 30.0, "seed": 0}  # fmt: skip
    return Atlas(model, _LAYOUT, calibration, Accuracy(9, 5.0, 6.0, 0.1, 4.0, 3.0), about)


def _add_reverberant_localizer(atlas: Atlas, directions: np.ndarray) -> Atlas:
    """Return the atlas with a reverberant localizer of random values in the right shapes."""
    onset_settings = OnsetDetectorSettings(window=64, hop=32)
    random, F, n = np.random.default_rng(3), len(onset_settings.rows), 5
    sound = DirectSoundModel(
        space=atlas.space,
        templates=InterauralTemplates.of(
            ea.simulated_head(directions), onset_settings.frequencies_hz
        ),
        spacing_degrees=30.0,
        whitening=np.tile(np.eye(2) + 0j, (F, 1, 1)),
        log_densities=random.normal(size=(N_CLASSES, N_TABLE_STEPS)).astype(np.float32),
        onset_settings=onset_settings,
    )
    score_calibration = ScoreCalibration(
        features=random.normal(size=(n, 3)),
        scale=np.ones(3),
        mixture_weights=np.full(
            (n, len(BETAS), len(KERNEL_WIDTHS_DEGREES)), 1 / len(KERNEL_WIDTHS_DEGREES)
        ),
        weights=np.array([0.1, 0.2, 0.1, -0.3]),
    )
    return replace(
        atlas, reverberant_localizer=ReverberantLocalizer(sound, score_calibration).rounded()
    )


def _atlases(folder: Path) -> list[bytes]:
    ring = np.array([[float(a), 0.0] for a in range(-180, 180, 30)])
    ball = ea.Sphere().grid(40.0)
    plain, ready = (
        _atlas(ea.Sphere(), ball),
        _add_reverberant_localizer(_atlas(ea.Circle(), ring), ring),
    )
    answers = {}
    blobs = []
    for atlas in (plain, ready):
        blobs.append(atlas.save(folder / "x").read_bytes())
        answers[atlas.space.name] = atlas.localize(_RECORDING).to_dict()
    (folder / "answers.json").write_text(json.dumps(answers))
    return blobs


def _resealed(blob: bytes, random: np.random.Generator) -> bytes:
    """Change values and update the checksum, as an attacker would."""
    scratch = Path(f"resealed-{random.integers(1 << 60)}.atlas").absolute()
    scratch.write_bytes(blob)
    try:
        about, arrays = read_container(scratch, "atlas", 3)
        if random.integers(2):
            about = mutated_value({**about, "made": "by hand"}, random)
        else:
            name = sorted(arrays)[int(random.integers(len(arrays)))]
            arrays[name] = _mutated_array(arrays[name], random)
            about["made"] = "by hand"
        write_container(scratch, "atlas", 3, about, arrays)
        return scratch.read_bytes()
    finally:
        scratch.unlink()


def _mutated_array(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    new = array.copy()
    value = (np.nan, np.inf, 0.0, -1.0, 1e-300, 1e30, 1e11, 1e3)[int(random.integers(8))]
    match int(random.integers(5)):
        case 0:
            return new[:-1]
        case 1:
            return new[..., None]
        case 2:
            new[:] = value
        case 3:
            new.flat[int(random.integers(new.size))] = value
        case 4:
            return new * value
    return new


def _use_atlas(path: Path) -> None:
    atlas = Atlas.load(path)
    answer = atlas.localize(_RECORDING).to_dict()
    assert all(np.isfinite(answer["direction"])), answer
    assert answer["credible_90_area"] <= SPHERE_SQUARE_DEGREES, answer
    if "made" not in read_container(path, "atlas", 3)[0]:
        # A change of bytes is detected, so the result must be unchanged.
        assert answer == json.loads((path.parent / "answers.json").read_text())[atlas.space.name]


# --- heads -------------------------------------------------------------------------------------


def _sofas(folder: Path) -> list[bytes]:
    path = folder / "x"
    if not (folder / "pipe").exists():
        os.mkfifo(folder / "pipe")
    head = ea.simulated_head(ea.Sphere().grid(50.0))
    with netCDF4.Dataset(path, "w") as file:
        file.SOFAConventions, file.Conventions, file.DataType = "SimpleFreeFieldHRIR", "SOFA", "FIR"
        file.License, file.Title = "CC0", "a small head"
        ears = head.responses().samples[:, :, :16]
        for name, size in (("M", len(head)), ("R", 2), ("N", 16), ("C", 3), ("I", 1)):
            file.createDimension(name, size)
        for name, dimensions, values in (
            ("Data.IR", "MRN", ears),
            ("Data.SamplingRate", "I", [48000.0]),
            ("Data.Delay", "IR", [[0.0, 0.0]]),
            ("SourcePosition", "MC", np.column_stack([head.directions, np.ones(len(head))])),
            ("ListenerPosition", "IC", [[0.0, 0.0, 0.0]]),
        ):
            file.createVariable(name, "f8", tuple(dimensions))[:] = values
        file["SourcePosition"].Type = "spherical"
        file["SourcePosition"].Units = "degree, degree, metre"
        file["Data.SamplingRate"].Units = "hertz"
    return [path.read_bytes()]


def _relinked(blob: bytes, random: np.random.Generator) -> bytes:
    """Add links, cycles, external or virtual data to a SOFA file; damage a third of the results."""
    scratch = Path(f"linked-{random.integers(1 << 60)}.sofa").absolute()
    scratch.write_bytes(blob)
    others = (Path("/dev/zero"), Path("pipe").absolute(), Path("missing"), scratch)
    try:
        names = sorted(HOSTILE_CHANGES)
        change = HOSTILE_CHANGES[names[int(random.integers(len(names)))]]
        change(scratch, others[int(random.integers(len(others)))])
        new = scratch.read_bytes()
    finally:
        scratch.unlink()
    return new if random.integers(3) else mutated_bytes(new, random)


def _tables(folder: Path) -> list[bytes]:
    head = ea.simulated_head([[a, 0.0] for a in (-90.0, -30.0, 30.0, 90.0)])
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        ea.Audio(head.responses().samples[n], 48000).write(folder / f"{n}.wav")
        lines.append(f"{n}.wav,{azimuth},{elevation}")
    return ["\n".join(lines).encode()]


# --- scenes ------------------------------------------------------------------------------------


def _scenes(folder: Path) -> list[bytes]:
    head = ea.simulated_head([[40.0, 0.0], [-30.0, 10.0]])
    sounds = [ea.synthetic_speech(0.2, seed=seed) for seed in (1, 2)]
    scene = ea.render_scene(head, sounds, head.directions, names=["a", "b"])
    scene.write(folder)
    (folder / "seconds").write_text(str(scene.mixture.seconds))
    return [(folder / "scene.json").read_bytes()]


def _use_scene(path: Path) -> None:
    is_scene(path.parent)
    read_truth(path, float((path.parent / "seconds").read_text()))


# --- head yaw, trajectories and lists of files -------------------------------------------------


def _yaws(folder: Path) -> list[bytes]:
    rows = "".join(f"{n / 10},{30 * np.sin(n)},x\n" for n in range(12))
    return [f"time,yaw,{name}\n{rows}".encode() for name in ("pitch", "\ufeffroll")]


def _use_yaw(path: Path) -> None:
    yaw = ea.Yaw.read(path)
    assert np.isfinite(yaw.at([-1.0, 0.25, 1e9])).all()
    check_yaw_step(yaw.degrees[:2], yaw.times[:2])


def _paths(folder: Path) -> list[bytes]:
    return [b"0,60,0/6,-60,0", b"0.5,10,-5/1,12.5,80/2.25,170,0/9,-170,-40"]


def _use_path(path: Path) -> None:
    trajectory = parse_trajectory(path.read_text(encoding="utf-8", errors="replace"))
    assert np.isfinite(trajectory.directions).all()


def _lists(folder: Path) -> list[bytes]:
    (folder / "a.wav").write_bytes(b"")
    return [b"a.wav\nb c.flac\n\n../x.wav\n"]


def _use_list(path: Path) -> None:
    assert expand_file_arguments([f"@{path}"], RECORDING_SUFFIXES, "recordings").files


# --- sidecar files of a batch, used by --resume ------------------------------------------------


def _job(folder: Path) -> SeparationJob:
    return SeparationJob(folder, Atlas.load(folder / "small.atlas"))


def _sidecars(folder: Path) -> list[bytes]:
    _atlas(ea.Sphere(), ea.Sphere().grid(40.0)).save(folder / "small.atlas")
    for name in ("x.wav", "x_source1.wav"):
        _RECORDING.write(folder / name)
    source = {"direction": [30.0, 0.0], "doubts": [], "file": str(folder / "x_source1.wav")}
    answer = {"file": str(folder / "x.wav"), "sources": [source], "report": None, "rate": 16000}
    inputs = fingerprints_of([folder / "x.wav"])
    outputs = fingerprints_of([folder / "x_source1.wav"], folder)
    sidecar = Sidecar(_job(folder).recipe(), inputs, outputs, answer, ("it is short",), 0.5)
    write_sidecar(folder / "x.json", sidecar)
    return [(folder / "x.json").read_bytes()]


def _other_answer(blob: bytes, random: np.random.Generator) -> bytes:
    """Change the answer, with unchanged files and settings."""
    sidecar = json.loads(blob)
    sidecar["answer"] = mutated_value(sidecar["answer"], random)
    return json.dumps(sidecar).encode()


def _use_sidecar(path: Path) -> None:
    """Use the file as `separate --resume --json` does: skip it, or say why it is not skipped."""
    job, file = _job(path.parent), path.with_suffix(".wav")
    list(existing_outputs(job, [file, path.with_name("y.wav")]))
    batch = plan_batch(job, [file], resume=True)
    if file not in batch.skipped:
        raise ea.InputError(f"processed again: {batch.rerun.get(file, 'no sidecar')}")
    outcome = next(execute_batch(batch, Executor(), lambda number, share: None))
    assert outcome.status == "skipped", outcome
    json.dumps({**(outcome.answer or {}), "warnings": outcome.warnings}, allow_nan=False)


def _formats() -> Iterator[Format]:
    yield Format("atlas", "x.atlas", _atlases, mixed(mutated_bytes, _resealed), _use_atlas)
    yield Format("sofa", "x.sofa", _sofas, mixed(mutated_bytes, _relinked), ea.read_sofa)
    for name, *kinds in (
        ("wav", "WAV PCM_16", "WAV FLOAT", "WAV DOUBLE", "WAV IMA_ADPCM", "WAV PCM_16 BIG"),
        ("rf64", "RF64 PCM_16", "RF64 FLOAT", "W64 PCM_16", "W64 FLOAT"),
        ("flac", "FLAC PCM_16"),
        ("ogg", "OGG VORBIS", "OGG OPUS"),
        ("mp3", "MP3 MPEG_LAYER_III"),
        ("aiff", "AIFF PCM_16", "AIFF PCM_24", "AIFF FLOAT"),
        ("au", "AU PCM_16", "AU FLOAT LITTLE", "CAF PCM_16", "CAF ALAC_16"),
    ):
        yield Format(name, f"x.{name}", _sounds(*kinds), mutated_bytes, _use_sound)
        yield Format(
            f"{name}-cut", f"x.{name}", _sounds(*kinds), mixed(truncated, concatenated), _use_whole
        )
    yield Format("csv", "x.csv", _tables, mixed(mutated_bytes, mutated_text), ea.read_recordings)
    yield Format("yaw", "x.csv", _yaws, mixed(mutated_bytes, mutated_text), _use_yaw)
    yield Format("path", "path.txt", _paths, mixed(mutated_bytes, mutated_text), _use_path)
    yield Format("list", "list.txt", _lists, mixed(mutated_bytes, mutated_text), _use_list)
    changed = mixed(mutated_bytes, mutated_json, _other_answer)
    yield Format("sidecar", "x.json", _sidecars, changed, _use_sidecar)
    yield Format("scene", "scene.json", _scenes, mixed(mutated_bytes, mutated_json), _use_scene)


FORMATS = {format.name: format for format in _formats()}
