"""Latent components for changed rooms: one PPAM that was learned in several rooms.

    python benchmarks/latent_rooms.py

The paper (section 8) proposes latent components for changes of the recording environment. PPAM is
fitted to recordings of white noise at the same directions, anechoically and in several simulated
rooms, with L_w latent coordinates w, which then describe the room (0: rooms are noise). Talkers of
2 to 5 s at other directions are recorded in other rooms. It is compared with PPAM that was learned
anechoically, with PPAM that was learned in the very room of the talkers, as in the paper, and with
`Atlas.localize` of an anechoic atlas, which uses the onsets of a reverberant recording.
"""

import argparse
import warnings

import numpy as np
from protocol import load_head, reverberant_head, single_talkers, split

import earatlas as ea
from earatlas.experiments.simulated_camil import ALL_CUES, recorded_noise_cues
from earatlas.features.cues import audio_cues
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.ppam.model import PPAM
from earatlas.types import Array

LEARNED = (  # the number of reflections, and thereby the time, grows with the cube of T60
    ea.Room((7.0, 6.0, 3.4), 0.4, (3.0, 2.5, 1.7)),
    ea.Room((5.0, 4.4, 3.2), 0.3, (2.0, 2.2, 1.6)),
    ea.Room((9.0, 5.0, 3.6), 0.35, (4.0, 2.0, 1.7)),
    ea.Room((4.6, 4.0, 3.3), 0.25, (2.5, 1.8, 1.6)),
)
OTHER = {
    "anechoic": None,
    "T60 0.3 s": ea.Room((6.0, 5.0, 3.3), 0.3, (2.4, 2.7, 1.7)),
    "T60 0.6 s": ea.Room((8.0, 6.5, 3.2), 0.6, (3.3, 3.1, 1.6)),
}


def noise_cues(head: ea.Head, seed: int) -> Array:
    """Return the mean cues (N, D) of a recording of white noise per direction."""
    layout = CueLayout()
    cues = recorded_noise_cues(head.responses().at_rate(layout.rate), seed=seed)
    return cues[:, layout.indices_in(ALL_CUES)]


def learned_in(room: ea.Room | None, training: ea.Head, head: ea.Head) -> PPAM:
    """Return PPAM that was learned in one room."""
    there = training if room is None else reverberant_head(training, room, head)
    x, y = training.directions, noise_cues(there, seed=9)
    return PPAM.fit(ea.Sphere(), x, y, components=len(x) // 10)


def noise_errors(model: PPAM, room: ea.Room, heads: dict[str, ea.Head], head: ea.Head) -> str:
    """Return the errors for other recordings of noise in the room that was learned."""
    texts = []
    for name, there in heads.items():
        y = noise_cues(reverberant_head(there, room, head), seed=77)
        errors = ea.great_circle_error(there.directions, model.inverse_map(y))
        texts.append(f"{name} {np.median(errors):.1f}°, {100 * np.mean(errors > 30):.0f} %")
    return "; ".join(texts)


def learned_models(training: ea.Head, head: ea.Head, latent: list[int]) -> dict[str, PPAM]:
    """Return the models by name."""
    rooms = [training, *(reverberant_head(training, room, head) for room in LEARNED)]
    cues = [noise_cues(room, seed) for seed, room in enumerate(rooms)]
    x, K = training.directions, len(training) // 10

    def fit(number: int, *, latent: int | None = None) -> PPAM:
        some = cues[:number]
        tiled = np.tile(x, (len(some), 1))
        return PPAM.fit(ea.Sphere(), tiled, np.concatenate(some), components=K, latent=latent)

    models = {"PPAM, anechoic": fit(1)}
    for L_w in latent:
        models[f"PPAM, anechoic and {len(LEARNED)} rooms, L_w = {L_w}"] = fit(len(cues), latent=L_w)
    return models


def main() -> None:
    """Print the errors of all models in other rooms, and of models learned in these rooms."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--head", default="cipic_021")
    parser.add_argument("--count", type=int, default=24, help="talkers per condition")
    parser.add_argument("--directions", type=int, default=250, help="learned, at most")
    parser.add_argument("--latent", type=int, nargs="+", default=[0, 5])
    parser.add_argument("--noise", action="store_true", help="only noise in the learned room")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    head = load_head(options.head)
    training, held_out = split(head, 0)
    some = np.random.default_rng(1).permutation(len(training))[: options.directions]
    training = training.subset(np.sort(some))
    if options.noise:
        for name, room in OTHER.items():
            if room is not None:
                model = learned_in(room, training, head)
                heads = {
                    "learned directions": training.subset(np.arange(0, len(training), 8)),
                    "other directions": held_out.subset(np.arange(0, len(held_out), 4)),
                }
                print(f"{name}: {noise_errors(model, room, heads, head)}", flush=True)
        return
    models, atlas = learned_models(training, head, options.latent), ea.learn(training)
    print(
        f"{options.head}, {len(training)} directions, {options.count} talkers per room: "
        "median error °, beyond 30° %\n"
    )
    print("| learned | " + " | ".join(OTHER) + " |\n" + "|---" * (len(OTHER) + 1) + "|")
    errors: dict[str, dict[str, list[float]]] = {}
    for name, room in OTHER.items():
        models["PPAM, the room of the talkers"] = learned_in(room, training, head)
        for truth, audio in single_talkers(held_out, options.count, room=room, seed=40):
            statistics = CueStatistics.from_cues(audio_cues(audio))
            answers = {label: model.posterior(statistics).best for label, model in models.items()}
            answers["`Atlas.localize`, anechoic"] = atlas.localize(audio).direction
            for label, direction in answers.items():
                error = float(ea.great_circle_error(truth, direction))
                errors.setdefault(label, {}).setdefault(name, []).append(error)
    for label, by_room in errors.items():
        cells = " | ".join(
            f"{np.median(values):.1f}, {100 * np.mean(np.array(values) > 30):.0f} %"
            for values in by_room.values()
        )
        print(f"| {label} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
