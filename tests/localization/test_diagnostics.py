"""What speaks against an answer: said when it is true, and not said of clean sound."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from made_scenes import belief_at
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.features.reverberation import DecayStream
from earatlas.localization.diagnostics import Doubt, strangeness, unlike
from earatlas.localization.learned_head import Judgement
from earatlas.localization.onset_mixture import Several
from earatlas.report import write_report
from earatlas.separation.result import Evidence, Placed
from earatlas.separation.source_directions import doubles_told, may_be_more, scene_doubts
from earatlas.simulation.random_reverberation import OwnRoom
from earatlas.types import Array

RATE = 16_000
PLACES = ((63.0, 11.0), (-40.0, 5.0), (130.0, -10.0), (-100.0, 30.0))


def open_scene(seed: int, *, seconds: float = 2.5) -> Array:
    """A synthetic_speech in the open, from a direction between the learned ones."""
    place = PLACES[seed % len(PLACES)]
    scene = ea.render_scene(
        ea.simulated_head([place]), [ea.synthetic_speech(seconds, seed=seed)], [place]
    )
    return scene.mixture.samples


def in_own_room(head: ea.Head) -> ea.Audio:
    """A talker in a room made from the head, T60 0.6 s."""
    h = head.responses().at_rate(RATE)
    even = np.full(len(h), 1 / len(h))
    room = OwnRoom(t60_seconds=0.6, volume_cubic_metres=80.0, distance_metres=2.0, drop_db=2.0)
    wet = room.response(h, 100, RATE, even, np.random.default_rng(1))
    return ea.Audio(oaconvolve(ea.synthetic_speech(3.0, seed=1)[None], wet, axes=1), RATE)


def words(atlas: ea.Atlas, samples: Array) -> set[str]:
    """What `localize` doubts, without the reasons."""
    return {doubt.word for doubt in atlas.localize(ea.Audio(samples, RATE)).doubts}


@pytest.mark.parametrize("seed", range(4))
def test_clean_sound_is_not_doubted(atlas: ea.Atlas, seed: int) -> None:
    """In the open, nothing."""
    assert words(atlas, open_scene(seed)) == set()


def test_noise_is_told(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """At 0 dB; not at 40 dB."""
    clean = open_scene(0)
    noise = rng.normal(size=clean.shape) * clean.std()
    assert words(atlas, clean + noise) == {"noisy"}
    assert words(atlas, clean + 0.01 * noise) == set()


def test_rooms_are_told(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """With the time in which sound dies away."""
    where = atlas.localize(in_own_room(atlas_head))
    (doubt,) = where.doubts
    assert doubt.word == "reverberant"
    assert doubt.value == pytest.approx(0.6, rel=0.4)
    assert f"{doubt.value:.2f} s" in doubt


def test_two_sounds_are_told(atlas: ea.Atlas) -> None:
    """Two talkers are no single sound."""
    both = open_scene(0)[:, :38_000] + open_scene(1)[:, :38_000]
    assert words(atlas, both) == {"several sounds at once"}


def test_a_head_that_fits_loosely_doubts_as_well(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """To an open-air model that nothing contradicts, onsets still tell two talkers and noise."""
    loose = replace(atlas, calibration=replace(atlas.calibration, misfit=1e9))
    clean, both = open_scene(0), open_scene(0)[:, :38_000] + open_scene(1)[:, :38_000]
    assert words(loose, clean) == set()
    assert words(loose, both) == {"several sounds at once"}
    assert words(loose, clean + rng.normal(size=clean.shape) * clean.std()) == {"noisy"}


def test_another_head_is_told(atlas: ea.Atlas) -> None:
    """A head larger by a tenth does not fit; nothing else is said against it."""
    other = ea.simulated_head([PLACES[0]])
    ears = other.responses()
    stretched = replace(other, ears=replace(ears, rate=ears.rate / 1.1))
    scene = ea.render_scene(stretched, [ea.synthetic_speech(3.0, seed=5)], [PLACES[0]])
    assert words(atlas, scene.mixture.samples) == {"does not fit this head"}


def test_what_does_not_fit_is_believed_less(
    atlas: ea.Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound by way of another head may be 20 degrees off; the direction stays the same."""
    ears = ea.simulated_head([PLACES[0]]).responses()
    stretched = ea.simulated_head([PLACES[0]])
    stretched = replace(stretched, ears=replace(ears, rate=ears.rate / 1.1))
    scene = ea.render_scene(stretched, [ea.synthetic_speech(3.0, seed=5)], [PLACES[0]])
    told = atlas.localize(scene.mixture)
    assert "does not fit this head" in {doubt.word for doubt in told.doubts}
    monkeypatch.setattr("earatlas.localization.result.strangeness", lambda *_: 0.0)
    before = atlas.localize(scene.mixture)
    assert told.radius_90 > before.radius_90 + 10
    np.testing.assert_allclose(told.direction, before.direction, atol=3.0)


def test_strangeness_grows_as_onsets_tell_less(atlas: ea.Atlas) -> None:
    """From nothing at the usual share to all; without onsets all."""
    assert atlas.rooms is not None
    posterior, usual = belief_at(ea.Sphere(), (10.0, 0.0)), atlas.rooms.trust.usual_nats
    onsets = replace(no_onsets(), decay_seconds=0.15)
    shares = [
        strangeness(atlas, Judgement(posterior, 9.0, share * usual), onsets)
        for share in (1.2, 0.96, 0.9, 0.8, np.nan)
    ]
    np.testing.assert_allclose(shares, [0.0, 1 / 12, 7 / 12, 1.0, 1.0], atol=1e-9)
    low = Judgement(posterior, 9.0, 0.5 * usual)
    assert strangeness(replace(atlas, rooms=None), low, None) == 1.0
    assert strangeness(atlas, low, replace(onsets, decay_seconds=0.2)) == 0.0


def no_onsets() -> OnsetBins:
    """Of a sound without any."""
    nothing = np.zeros(0, dtype=int)
    return OnsetBins(nothing, nothing, np.zeros((0, 2), complex), np.zeros(0), np.zeros(0), 9.0)


def test_what_dies_away_slowly_is_a_room_and_no_other_head() -> None:
    """Between the open and a room that is heard as such; what fits well enough is neither."""
    said = {decay: [d.word for d in unlike(9.0, 3.0, 4.0, decay)] for decay in (0.15, 0.2)}
    assert said == {0.15: ["does not fit this head"], 0.2: ["reverberant"]}
    assert not list(unlike(1.5, 3.6, 4.0, 0.2)) + list(unlike(9.0, 3.95, 4.0, 0.2))
    assert [doubt.word for doubt in unlike(1.5, 3.0, 4.0, 0.15)] == ["does not fit this head"]
    assert not list(unlike(1.5))
    assert list(unlike(2.5))


def test_two_sources_in_one_place_are_doubted() -> None:
    """The later one, which has fewer bins; what is doubted already keeps its reason."""
    told = Doubt("may not exist", "it gains nothing", 0.0)
    places = [(50.0, 0.0), (-20.0, 5.0), (56.0, 0.0), (51.0, 0.0)]
    placed = [
        Placed(belief_at(ea.Sphere(), place), Evidence(1.0), doubts)
        for place, doubts in zip(places, [(), (), (), (told,)], strict=True)
    ]
    found = doubles_told(placed)
    assert [[doubt.word for doubt in own.doubts] for own in found] == [
        [], [], ["may not exist"], ["may not exist"]
    ]  # fmt: skip
    assert found[2].doubts[0].value == pytest.approx(6.0, abs=0.3)
    assert "6.0°" in found[2].doubts[0]
    assert found[3].doubts == (told,)


def test_more_sources_are_hinted_at_in_a_room(
    atlas: ea.Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one more is nearly counted; not where it is far from it, nor where it is not asked."""
    audio = in_own_room(atlas_head)

    def said(nearly: float, n_sources: int | None = None) -> set[str]:
        monkeypatch.setattr(Several, "nearly", lambda *_: nearly)
        found = atlas.separate(audio, n_sources=n_sources, rendering="soft")
        return {doubt.word for doubt in found.doubts}

    assert "may be more" in said(0.8)
    assert "may be more" not in said(0.3)
    assert "may be more" not in said(0.8, n_sources=1)
    assert may_be_more(0.75)[0] == (
        "may be more: one further sound has 75 % of what it takes to be counted"
    )


def test_a_scene_that_does_not_fit_an_atlas_without_rooms_is_doubted(atlas: ea.Atlas) -> None:
    """Misfit alone tells; of a scene that fits, nothing is said."""
    plain = replace(atlas, rooms=None)
    for misfit, expected in ((0.5, []), (4.0, ["does not fit this head"])):
        placed = [Placed(belief_at(ea.Sphere(), (10.0, 0.0)), Evidence(misfit), ())] * 2
        doubts = scene_doubts(plain, placed, None, 3.0)
        assert [doubt.word for doubt in doubts] == expected


def test_what_has_no_direction_is_told(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """One channel twice, one channel panned, and independent noise at the ears."""
    mono = ea.synthetic_speech(2.5, seed=4)
    assert words(atlas, np.stack([mono, mono])) == {"nothing directional"}
    assert words(atlas, np.stack([mono, 0.3 * mono])) == {"nothing directional"}
    assert words(atlas, 0.1 * rng.normal(size=(2, 40_000))) == {"nothing directional"}
    where = atlas.localize(ea.Audio(np.stack([mono, mono]), 16_000))
    assert where.radius_90 > 90
    assert where.to_dict()["radius_90"] > 60
    found = atlas.separate(ea.Audio(np.stack([mono, mono]), 16_000), n_sources=2, rendering="soft")
    assert min(source.radius_90 for source in found.sources) > 60


def test_short_sound_is_told(atlas: ea.Atlas) -> None:
    """A third of a second."""
    assert "too short" in words(atlas, open_scene(2)[:, 8_000:13_000])


def test_a_source_that_may_not_exist_is_told(atlas: ea.Atlas) -> None:
    """Of one talker that is taken for two; of two that are there nothing is said."""
    alone = atlas.separate(ea.Audio(open_scene(0), RATE), n_sources=2)
    assert "may not exist" in {doubt.word for source in alone.sources for doubt in source.doubts}
    both = open_scene(0)[:, :38_000] + open_scene(1)[:, :38_000]
    found = atlas.separate(ea.Audio(both, RATE), n_sources=2)
    assert [source.doubts for source in found.sources] == [(), ()]
    assert "noisy" not in {doubt.word for doubt in found.doubts}


def test_a_noisy_scene_is_doubted_as_a_whole(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """Two talkers in noise."""
    both = open_scene(0)[:, :38_000] + open_scene(1)[:, :38_000]
    noisy = both + rng.normal(size=both.shape) * both.std()
    found = atlas.separate(ea.Audio(noisy, RATE), n_sources=2)
    assert [doubt.word for doubt in found.doubts] == ["noisy"]


def test_an_atlas_without_rooms_says_what_it_can(atlas: ea.Atlas) -> None:
    """It hears no onsets; that a sound does not fit it knows."""
    plain = replace(atlas, rooms=None)
    assert words(plain, open_scene(0)) == set()
    mono = ea.synthetic_speech(2.5, seed=4)
    assert words(plain, np.stack([mono, 0.3 * mono])) == {"does not fit this head"}


def test_doubts_reach_the_terminal_and_json(
    atlas: ea.Atlas,
    run: Callable[..., CompletedProcess[str]],
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    """The same words everywhere."""
    both = open_scene(0)[:, :38_000] + open_scene(1)[:, :38_000]
    noisy = both + rng.normal(size=both.shape) * both.std()
    path = str(atlas.save(tmp_path / "x.atlas"))
    file = str(ea.Audio(0.2 * noisy / noisy.std(), RATE).write(tmp_path / "noisy.wav"))
    said = run("localize", path, file)
    assert "doubtful: noisy: onsets are" in said.stdout
    told = json.loads(run("localize", path, file, "--json").stdout)
    assert told["doubts"][0].startswith("noisy: ")
    out = tmp_path / "out"
    said = run("separate", path, file, "-n", "2", "-o", str(out))
    assert "doubtful: noisy: onsets are" in said.stdout
    told = json.loads((out / "noisy.json").read_text())["answer"]
    assert told["doubts"][0].startswith("noisy: ")
    assert all("doubts" in source for source in told["sources"])


def test_a_report_has_doubts_of_the_scene_and_of_its_sources(
    atlas: ea.Atlas, tmp_path: Path
) -> None:
    """And no box for them where there are none."""
    scene = atlas.separate(ea.Audio(open_scene(0), RATE), n_sources=1)
    write_report(tmp_path / "plain.html", scene, title="plain")
    assert '<ul class="doubts"' not in (tmp_path / "plain.html").read_text()
    source = replace(scene.sources[0], doubts=(Doubt("may not exist", "it <gains> nothing", 0),))
    doubted = replace(scene, sources=(source,), doubts=(Doubt("noisy", "9 dB above", 9),))
    write_report(tmp_path / "doubted.html", doubted, title="doubted")
    page = (tmp_path / "doubted.html").read_text()
    assert "<li>noisy: 9 dB above</li>" in page
    assert "<li>may not exist: it &lt;gains&gt; nothing</li>" in page


def test_a_doubt_is_its_text() -> None:
    """It goes into JSON as it is, and survives a copy and a pickle."""
    doubt = Doubt("noisy", "onsets are 9 dB above the quiet", 9)
    assert json.loads(json.dumps([doubt])) == ["noisy: onsets are 9 dB above the quiet"]
    for again in (copy.deepcopy(doubt), pickle.loads(pickle.dumps(doubt))):
        assert (again, again.word, again.value) == (doubt, "noisy", 9.0)


@pytest.mark.parametrize("t60", [0.3, 0.6])
def test_decay_is_that_of_the_sound(t60: float, rng: np.random.Generator) -> None:
    """Bursts of noise that fall by 60 dB in a known time, in blocks of any size."""
    time = np.arange(int(0.8 * RATE)) / RATE
    burst = rng.normal(size=len(time)) * 10 ** (-3 * time / t60)
    samples = np.tile(burst, (2, 4)) + 1e-7 * rng.normal(size=(2, 4 * len(time)))
    found = []
    for size in (700, len(samples[0])):
        stream = OnsetStream(Gate())
        for start in range(0, samples.shape[1], size):
            stream.push(samples[:, start : start + size])
        stream.finish()
        found.append(stream.bins().decay_seconds)
    assert found[0] == found[1] == pytest.approx(t60, rel=0.35)


def test_decay_is_forgotten(rng: np.random.Generator) -> None:
    """With forgetting, what tells is how sound decays now."""
    power = rng.exponential(size=(3, 2000))
    slow, fast = (10 ** (-6 * np.tile(np.arange(100), 20) / n) for n in (90.0, 30.0))
    stream = DecayStream(np.array([200.0, 1000.0, 6000.0]), 0.008, forgetting=0.995)
    stream.push(power * slow)
    first = stream.seconds()
    stream.push(power * fast)
    assert stream.seconds() < 0.6 * first
    assert np.isnan(DecayStream(np.array([200.0]), 0.008).seconds())


def test_tracks_hold_in_rooms(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """Every window has onsets of its own; without them most are beside the mark."""
    h = atlas_head.responses().at_rate(RATE)
    even = np.full(len(h), 1 / len(h))
    room = OwnRoom(t60_seconds=0.4, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=4.0)
    rng = np.random.default_rng(2)
    halves = []
    for row in (100, 400):
        wet = room.response(h, row, RATE, even, rng)
        halves.append(
            oaconvolve(ea.synthetic_speech(1.5, seed=row)[None], wet, axes=1)[:, : int(1.5 * RATE)]
        )
    audio = ea.Audio(np.concatenate(halves, axis=1), RATE)
    errors = {}
    for name, head in (("rooms", atlas), ("open", replace(atlas, rooms=None))):
        track = head.localize_frames(audio)
        truths = atlas_head.directions[np.where(track.times < 1.5, 100, 400)]
        apart = (np.abs(track.times - 1.5) > 0.3) & np.isfinite(track.directions[:, 0])
        errors[name] = ea.great_circle_error(truths[apart], track.directions[apart])
    assert np.median(errors["rooms"]) < 8
    assert np.median(errors["rooms"]) < 0.5 * np.median(errors["open"])
