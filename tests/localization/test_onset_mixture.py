"""Several sounds by their onsets: where they are, whose bins are whose, how sure, and how many."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from made_scenes import belief_at
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.features.blocks import Block
from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.multi_source_posterior import crowded_belief, unsure
from earatlas.localization.onset_likelihood import LEVELS, Look, bin_class
from earatlas.localization.onset_mixture import Heard, Several
from earatlas.localization.source_counter import NOWHERE
from earatlas.separation.assembly import TakenApart
from earatlas.separation.separator import Arrivals, Separator
from earatlas.separation.source_directions import MasksAtOnsets, _paired, placed_sources
from earatlas.separation.source_model import SourcePosterior
from earatlas.separation.vessl import VESSL, State
from earatlas.simulation.random_reverberation import OwnRoom

RATE = 16_000
PAIR = np.array([[50.0, 10.0], [-70.0, 0.0]])
ROOM = OwnRoom(t60_seconds=0.3, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=6.0)


@pytest.fixture(scope="module")
def anywhere(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas, made ready for rooms."""
    return atlas if atlas.rooms is not None else atlas.with_rooms(atlas_head)


def in_room(
    head: ea.Head, places: np.ndarray, *, seconds: float = 2.5, seed: int = 0, snr_db: float = 50.0
) -> np.ndarray:
    """SyntheticTalkers (2, n) at places of the simulated head, in a room made from the head."""
    rng = np.random.default_rng(seed)
    h = head.responses().at_rate(RATE)
    even = np.append(np.full(len(h), 1 / len(h)), 0.0)
    n = int(seconds * RATE)
    samples = np.zeros((2, n))
    for m, place in enumerate(places):
        direct = ea.simulated_head(place[None]).responses().at_rate(RATE)
        wet = ROOM.response(np.concatenate([h, direct]), len(h), RATE, even, rng)
        heard = oaconvolve(ea.synthetic_speech(seconds, seed=10 * seed + m)[None], wet, axes=1)[
            :, :n
        ]
        samples += heard / heard.std()
    samples += rng.normal(size=samples.shape) * samples.std() * 10 ** (-snr_db / 20)
    return 0.1 * samples


def onsets_of(atlas: ea.Atlas, samples: np.ndarray, most: int = 300) -> OnsetBins:
    """The bins of a recording that rise most."""
    assert atlas.rooms is not None
    stream = OnsetStream(replace(atlas.rooms.sound.gate, most_bins=most))
    stream.push(samples)
    stream.finish()
    return stream.bins()


def test_onsets_know_their_frame() -> None:
    """A click at sample 8000 rises in the frames around 62.5 hops, wherever blocks end."""
    samples = np.random.default_rng(0).normal(size=(2, 16_000)) * 1e-4
    samples[:, 8000] = 1.0
    stream = OnsetStream(Gate())
    for start in range(0, 16_000, 777):
        stream.push(samples[:, start : start + 777])
    stream.finish()
    bins = stream.bins()
    strong = bins.rise_db > 20
    assert strong.sum() > 50
    assert set(bins.t[strong]) <= {61, 62, 63, 64}


def test_score_is_the_formula(anywhere: ea.Atlas, atlas_head: ea.Head) -> None:
    """Σ v log (Σ π g + w_0) over Σ v, bin by bin; claims are shares, and evidence is a gain."""
    assert anywhere.rooms is not None
    sound, bins = anywhere.rooms.sound, onsets_of(anywhere, in_room(atlas_head, PAIR), 60)
    several, cells = Several(sound, bins), [40, 700, 1200]
    shares = several.shares(cells)
    assert shares.sum() == pytest.approx(1 - NOWHERE)
    counts = np.bincount(bins.f)
    total = weight = 0.0
    points, seen = sound.points(sound.cells[0][cells]), sound.seen(bins)
    classes = bin_class(bins.rise_db, sound.gate.frequencies_hz[bins.f])
    for n, f in enumerate(bins.f):
        v, mixed = 1 / (1 + counts[f]), NOWHERE
        for j in range(3):
            u = float(seen[n] @ points[f, :, j])
            level = min(int((u + 1) * LEVELS / 2), LEVELS - 1)
            mixed += shares[j] * np.exp(sound.log_densities[classes[n], level])
        total, weight = total + v * np.log(mixed), weight + v
    assert several.score(cells) == pytest.approx(total / weight, abs=0.02)
    heard = several.heard(several.placed(2)[-1])
    claims = np.sum([own.claims for own in heard], axis=0)
    assert claims.min() >= 0
    assert claims.max() < 1  # some of every bin may be from nowhere
    assert min(own.evidence for own in heard) > 0.1
    assert sum(own.bins for own in heard) == pytest.approx(claims.sum())


def test_talkers_in_rooms_are_placed_and_counted(
    anywhere: ea.Atlas, atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Two at new places: found by onsets where the open-air model is lost; and one is one."""
    open_air = replace(atlas, rooms=None)
    errors: list[float] = []
    before: list[float] = []
    inside: list[bool] = []
    numbers: list[int] = []
    rng = np.random.default_rng(1)
    for n in range(6):
        places = np.array([[a, rng.uniform(-20, 40)] for a in rng.choice([20, 75, 130, -40, -100], 2, replace=False)])  # fmt: skip  # noqa: E501
        audio = ea.Audio(in_room(atlas_head, places, seed=n), RATE)
        for answers, model in ((errors, anywhere), (before, open_air)):
            found = model.separate(audio, n_sources=2, rendering="soft")
            off = great_circle_error(places[:, None], found.directions[None])
            straight, crossed = off[[0, 1], [0, 1]], off[[0, 1], [1, 0]]
            answers.extend(straight if straight.sum() <= crossed.sum() else crossed)
            if model is anywhere:
                order = (0, 1) if straight.sum() <= crossed.sum() else (1, 0)
                inside += [
                    found.sources[m].posterior.level_of(place, 300) < 0.9
                    for m, place in zip(order, places, strict=True)
                ]
                assert all(source.evidence.direct for source in found.sources)
        numbers.append(len(anywhere.separate(audio, rendering="soft").sources))
    assert np.mean(np.array(errors) > 20) <= 0.25
    assert np.mean(np.array(before) > 20) > 2 * np.mean(np.array(errors) > 20)
    assert np.mean(inside) > 0.6
    assert np.mean(np.array(numbers) == 2) > 0.6
    alone = ea.Audio(in_room(atlas_head, PAIR[:1], seed=3), RATE)
    assert len(anywhere.separate(alone, rendering="soft").sources) == 1


def test_beliefs_widen_with_noise_and_without_direction(
    anywhere: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Two talkers in ever more noise; and what comes from nowhere is nowhere."""
    radii = []
    for snr in (30.0, 0.0, -8.0):
        audio = ea.Audio(in_room(atlas_head, PAIR, snr_db=snr), RATE)
        found = anywhere.separate(audio, n_sources=2, rendering="soft")
        radii.append(np.mean([source.radius_90 for source in found.sources]))
    assert radii[0] < radii[1] < radii[2]
    voice = ea.synthetic_speech(2.5, seed=1)
    noise = np.random.default_rng(2).normal(size=(2, 40_000))
    for samples in (0.1 * noise, np.stack([voice, voice])):
        found = anywhere.separate(ea.Audio(samples, RATE), n_sources=2, rendering="soft")
        assert max(source.radius_90 for source in found.sources) > 15


def test_a_long_recording_has_the_places_of_a_short_one(
    tmp_path: Path, anywhere: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Blocks, their overlap and files: the same two places, each with its own sound."""
    audio = ea.Audio(in_room(atlas_head, PAIR, seconds=27.0), RATE)
    soundfile.write(tmp_path / "party.wav", audio.samples.T, RATE, subtype="FLOAT")
    found, _ = anywhere.separate_file(
        tmp_path / "party.wav", tmp_path / "out", n_sources=2, rendering="soft"
    )
    off = great_circle_error(PAIR[:, None], found.directions[None])
    assert min(off[0, 0] + off[1, 1], off[0, 1] + off[1, 0]) < 25
    for source in found.sources:
        shown = source.to_dict()["evidence"]
        assert shown["direct"] is True
        assert shown["onset_bins"] > 100
        assert shown["gain"] > 0.1


def test_masks_are_read_at_onsets() -> None:
    """Frames of a block count from its start; a bin is at the nearest of the mask's frequencies."""
    gate, layout = Gate(), ea.CueLayout()
    f = np.array([0, 10, 100])
    onsets = OnsetBins(
        f, np.array([3, 40, 90]), np.ones((3, 2), complex), np.ones(3), np.ones(3), 100.0
    )
    whose = MasksAtOnsets(layout, gate, onsets, 2)
    rng = np.random.default_rng(0)
    for start, frames in ((0, 50), (40 * 128, 60)):
        masks = rng.random((2, layout.n_frequencies, frames))
        block = Block(np.zeros((2, frames * 128)), start, False)
        nothing = HeardBins.at(np.zeros((2, 513, 1), complex), layout, f[:0], f[:0])
        whose.add(TakenApart(block, np.zeros((2, 513, frames), complex), masks, nothing))
        for n in range(3):
            t = onsets.t[n] - start // 128
            if 0 <= t < frames:
                row = round(gate.frequencies_hz[f[n]] / 15.625) - 1
                np.testing.assert_array_equal(whose.masks[:, n], masks[:, row, t])


def made_heard(claims: np.ndarray, bins: float = 300.0, evidence: float = 1.0) -> Heard:
    """A source with one peak of L at (30, 10) and another, lower, behind."""
    space = ea.Sphere()
    grid = space.grid(3.0)
    front, back = (space.distance(grid, np.array(p)) for p in ((30.0, 10.0), (150.0, 10.0)))
    L = 60 * np.exp(-0.5 * (front / 5) ** 2) + 54 * np.exp(-0.5 * (back / 5) ** 2)
    look = Look(grid, L, np.ones(len(grid)), np.array([2.0, 20.0, np.log2(bins)]))
    return Heard(look, np.array([30.0, 10.0]), bins, 2.0, evidence, claims)


def test_sources_are_paired_by_their_bins() -> None:
    """The source of a mask is the one whose onsets it holds, whatever the order."""
    claims = np.array([[0.9, 0.9, 0.1, 0.0], [0.0, 0.1, 0.9, 0.1], [0.1, 0.0, 0.0, 0.9]])
    masks = claims[[2, 0, 1]]
    bins = OnsetBins(
        np.arange(4), np.arange(4), np.ones((4, 2), complex), np.ones(4), np.ones(4), 9.0
    )
    assert _paired(masks, [made_heard(row) for row in claims], bins) == [2, 0, 1]


def test_beliefs_among_others_are_those_of_pairs(atlas: ea.Atlas) -> None:
    """As sure as the pairs were; an atlas of before, and a source without onsets, are less so."""
    assert atlas.rooms is not None
    assert atlas.rooms.crowd is not None
    heard = made_heard(np.ones(4))
    posterior = crowded_belief(atlas.rooms, heard)
    oracle = atlas.rooms.crowd.posterior(atlas.space, heard.look)
    points = ea.Sphere().grid(20.0)
    np.testing.assert_allclose(posterior.log_density(points), oracle.log_density(points))
    np.testing.assert_allclose(posterior.best, [30.0, 10.0], atol=2.0)
    before = crowded_belief(replace(atlas.rooms, crowd=None), heard)
    assert before.radius_90 > 40
    assert unsure(posterior).radius_90 > max(posterior.radius_90, 40)
    np.testing.assert_allclose(unsure(posterior).best, posterior.best, atol=1.0)


def test_only_who_gains_nothing_is_looked_at_alone(anywhere: ea.Atlas) -> None:
    """In a room; who gains a little stays where the onsets of the mixture say."""
    assert anywhere.rooms is not None
    bins, far = (
        onsets_of(anywhere, in_room(ea.simulated_head(ea.Sphere().grid(30.0)), place[None], seed=m))
        for m, place in enumerate(PAIR)
    )
    bins = replace(bins, snr_db=np.full(len(bins), 30.0))
    gate = anywhere.rooms.sound.gate
    nothing = SourcePosterior(
        belief_at(ea.Sphere(), (0.0, 70.0)), np.zeros(3), np.zeros(3), 0.0, np.ones(3, bool)
    )
    state = State(np.full((2, 3), 0.5), np.ones(3), np.full((2, 1), 0.5), (nothing, nothing))
    alone = anywhere.rooms.sound.look(far)
    there = alone.places[np.argmax(alone.log_likelihoods)]
    for evidence, place in ((0.1, np.array([30.0, 10.0])), (0.01, there)):
        heard = tuple(made_heard(np.ones(len(bins)), evidence=evidence) for _ in range(2))
        whose = MasksAtOnsets(anywhere.layout, gate, bins, 2)
        arrivals = Arrivals(heard, bins, (far, far))
        for own in placed_sources(anywhere, state, np.array([9.0, 9.0]), arrivals, whose):
            assert great_circle_error(own.posterior.best, place) < 4


def test_free_energy_is_asked_in_the_open_alone(
    anywhere: ea.Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two in the open are two where onsets tell of one; in a room nobody else is asked."""
    monkeypatch.setattr(Several, "counted", lambda self, most: self.placed(1)[-1])
    sounds = [ea.synthetic_speech(2.5, seed=m) for m in range(2)]
    dry = ea.render_scene(atlas_head, sounds, PAIR, settings=ea.SceneSettings(snr_db=60.0)).mixture
    assert len(anywhere.separate(dry, rendering="soft").sources) == 2
    wet = ea.Audio(in_room(atlas_head, PAIR), RATE)

    known = Separator.find

    def asked(separator: Separator, bins: HeardBins, *number: int) -> tuple[VESSL, State]:
        if len(number) != 1:
            raise AssertionError("VESSL was asked how many there are")
        return known(separator, bins, number[0])

    monkeypatch.setattr(Separator, "find", asked)
    monkeypatch.setattr(Separator, "find_more", asked)
    assert len(anywhere.separate(wet, rendering="soft").sources) == 1
    with pytest.raises(AssertionError, match="asked"):
        anywhere.separate(dry, rendering="soft")


def test_more_sources_are_found_beside_known_ones(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """From one, from two and from none: the same two, and two stay the two that they are."""
    sounds = [ea.synthetic_speech(1.5, seed=m) for m in range(2)]
    dry = ea.render_scene(atlas_head, sounds, PAIR, settings=ea.SceneSettings(snr_db=60.0)).mixture
    separator = atlas.separator
    bins = separator.sure_bins(stft(dry.samples, atlas.layout.window, atlas.layout.hop), -60.0)
    _, both = separator.find(bins)
    assert len(both.sources) == 2
    vessl, one = separator.find(bins, 1)
    grown = separator.find_more(bins, vessl, one)
    np.testing.assert_allclose(grown.directions, both.directions, atol=1e-9)
    vessl, two = separator.find_at(bins, PAIR)
    assert separator.find_more(bins, vessl, two).free_energy == two.free_energy


def test_expected_ratios_are_those_of_the_cues(atlas: ea.Atlas) -> None:
    """Level and phase of what is believed of each source, up to the highest phase learned."""
    separator, layout = atlas.separator, atlas.separator.source_model.layout
    rng = np.random.default_rng(3)
    spectra = rng.normal(size=(2, 513, 40)) + 1j * rng.normal(size=(2, 513, 40))
    state = separator.find_at(
        separator.sure_bins(spectra, -60.0), np.array([[40.0, 0.0], [-30.0, 10.0]])
    )[1]
    ratios = separator.ratios(state)
    cue = {
        (str(kind), int(f)): d
        for d, (kind, f) in enumerate(zip(layout.cue_kinds, layout.cue_frequencies, strict=True))
    }
    highest = int(atlas.layout.ipd_frequencies[-1])
    assert np.isnan(ratios[:, highest + 1 :]).all()
    for m, f in ((0, 0), (1, 7), (0, highest)):
        s = state.sources[m].cues
        level, c, i = (s[cue[kind, f]] for kind in ("ild", "ipd_cos", "ipd_sin"))
        expected = 10 ** (level / 20) * (c + 1j * i) / np.hypot(c, i)
        np.testing.assert_allclose(ratios[m, f], expected, rtol=1e-9)
