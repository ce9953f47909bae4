"""Doubts: raised in the conditions that they describe, and not for clean sound."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from made_scenes import posterior_at
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.features.reverberation import DecayEstimator, ReverberationEstimate
from earatlas.localization.diagnostics import (
    DiagnosisSettings,
    Doubt,
    DoubtKind,
    HeadFit,
    RecordingDiagnosis,
    SourceDiagnosis,
)
from earatlas.localization.onset_mixture import OnsetMixture
from earatlas.localization.result import Localization
from earatlas.report import write_report
from earatlas.separation.result import Evidence
from earatlas.separation.source_directions import (
    LocatedSource,
    diagnose_scene,
    flag_colocated_sources,
    source_count_doubts,
)
from earatlas.simulation.random_reverberation import RandomReverberation
from earatlas.types import Array
from earatlas.wording import UNKNOWN_RADIUS_DEGREES

RATE = 16_000
DIRECTIONS = ((63.0, 11.0), (-40.0, 5.0), (130.0, -10.0), (-100.0, 30.0))


def render_anechoic(seed: int, *, seconds: float = 2.5) -> Array:
    """Render anechoic speech from a direction between the learned ones."""
    direction = DIRECTIONS[seed % len(DIRECTIONS)]
    head = ea.simulated_head([direction])
    scene = ea.render_scene(head, [ea.synthetic_speech(seconds, seed=seed)], [direction])
    return scene.mixture.samples


def render_reverberant(head: ea.Head) -> ea.Audio:
    """Render a talker with random reverberation of the head, T60 0.6 s."""
    h = head.responses().at_rate(RATE)
    even = np.full(len(h), 1 / len(h))
    room = RandomReverberation(
        t60_seconds=0.6, volume_cubic_metres=80.0, distance_metres=2.0, drop_db=2.0
    )
    wet = room.response(h, 100, RATE, even, np.random.default_rng(1))
    return ea.Audio(oaconvolve(ea.synthetic_speech(3.0, seed=1)[None], wet, axes=1), RATE)


def doubt_words(atlas: ea.Atlas, samples: Array) -> set[str]:
    """Return the first words of the doubts of `localize`."""
    return {doubt.word for doubt in atlas.localize(ea.Audio(samples, RATE)).doubts}


@pytest.mark.parametrize("seed", range(4))
def test_clean_sound_has_no_doubts(atlas: ea.Atlas, seed: int) -> None:
    """Anechoic speech raises no doubt."""
    assert doubt_words(atlas, render_anechoic(seed)) == set()


def test_noise_raises_a_doubt(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """Noise raises a doubt at an SNR of 0 dB, but not at 40 dB."""
    clean = render_anechoic(0)
    noise = rng.normal(size=clean.shape) * clean.std()
    assert doubt_words(atlas, clean + noise) == {"noisy"}
    assert doubt_words(atlas, clean + 0.01 * noise) == set()


def test_reverberation_raises_a_doubt(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """The doubt states the T60."""
    where = atlas.localize(render_reverberant(atlas_head))
    (doubt,) = where.doubts
    assert doubt.word == "reverberant"
    assert doubt.value == pytest.approx(0.6, rel=0.4)
    assert f"{doubt.value:.2f} s" in doubt


def test_two_talkers_raise_a_doubt(atlas: ea.Atlas) -> None:
    """The doubt states the gain per onset and the remedy."""
    both = render_anechoic(0)[:, :38_000] + render_anechoic(1)[:, :38_000]
    (doubt,) = atlas.localize(ea.Audio(both, RATE)).doubts
    assert doubt.word == "several sounds at once"
    assert f"(+{doubt.value:.1f} nats per onset). Use separate" in doubt


def test_onsets_raise_doubts_if_the_anechoic_model_fits(
    atlas: ea.Atlas, rng: np.random.Generator
) -> None:
    """With an unlimited residual, onsets still reveal two talkers and noise."""
    loose = replace(atlas, calibration=replace(atlas.calibration, max_residual=1e9))
    clean, both = (
        render_anechoic(0),
        render_anechoic(0)[:, :38_000] + render_anechoic(1)[:, :38_000],
    )
    assert doubt_words(loose, clean) == set()
    assert doubt_words(loose, both) == {"several sounds at once"}
    assert doubt_words(loose, clean + rng.normal(size=clean.shape) * clean.std()) == {"noisy"}


def test_another_head_raises_a_doubt(atlas: ea.Atlas) -> None:
    """A head that is larger by a tenth does not fit, and is not taken for a wrong rate."""
    other = ea.simulated_head([DIRECTIONS[0]])
    ears = other.responses()
    stretched = replace(other, ears=replace(ears, rate=ears.rate / 1.1))
    scene = ea.render_scene(stretched, [ea.synthetic_speech(3.0, seed=5)], [DIRECTIONS[0]])
    doubts = atlas.localize(scene.mixture).doubts
    assert {doubt.word for doubt in doubts} == {"does not fit this head"}


def test_head_mismatch_widens_the_posterior(
    atlas: ea.Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The radius for sound of another head is much smaller if mismatch is not considered."""
    ears = ea.simulated_head([DIRECTIONS[0]]).responses()
    stretched = ea.simulated_head([DIRECTIONS[0]])
    stretched = replace(stretched, ears=replace(ears, rate=ears.rate / 1.1))
    scene = ea.render_scene(stretched, [ea.synthetic_speech(3.0, seed=5)], [DIRECTIONS[0]])
    widened = atlas.localize(scene.mixture)
    assert "does not fit this head" in {doubt.word for doubt in widened.doubts}
    monkeypatch.setitem(vars(atlas), "mismatch", None)
    monkeypatch.setattr("earatlas.localization.localizer.widen_posterior", lambda p, _: p)
    plain = atlas.localize(scene.mixture)
    assert widened.radius_90 > plain.radius_90 + 5


def test_deviation_grows_as_onsets_have_fewer_nats() -> None:
    """It grows from 0 at the typical nats per onset to 1; it is 1 without onsets, 0 in a room."""
    dry, room = ReverberationEstimate(0.15), ReverberationEstimate(0.2)
    deviations = [
        HeadFit.measure(9.0, share * 3.9, 3.9, dry).deviation
        for share in (1.2, 0.96, 0.9, 0.8, np.nan)
    ]
    np.testing.assert_allclose(deviations, [0.0, 1 / 12, 7 / 12, 1.0, 1.0], atol=1e-9)
    assert HeadFit.measure(9.0).deviation == 1.0
    assert HeadFit.measure(9.0, 0.5 * 3.9, 3.9, room).deviation == 0.0


def onsets_of(count: int, *, snr_db: float = 25.0, decay: float = 0.15) -> OnsetBins:
    """Return onsets with the given number, SNR and decay time."""
    f = np.arange(count)
    return OnsetBins(
        f, f, np.ones((count, 2), complex), np.ones(count), np.full(count, snr_db), 9.0,
        ReverberationEstimate(decay),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("onsets", "seconds", "residual_ratio", "nats", "gain", "kinds", "directional", "widened"),
    [
        (onsets_of(99), 3.0, 0.9, 3.9, 0.0, [], True, False),
        (onsets_of(99), 0.2, 0.9, 3.9, 0.0, ["too short"], True, False),
        (onsets_of(99, snr_db=9), 3.0, 0.9, 3.9, 0.0, [], True, False),  # noise, but it fits
        (onsets_of(99, snr_db=9), 3.0, 4.0, 3.9, 0.0, ["noisy"], True, False),
        (onsets_of(9), 3.0, 4.0, np.nan, 0.0, ["nothing directional"], False, False),
        (onsets_of(9), 3.0, 0.9, np.nan, 0.0, [], True, False),
        (onsets_of(99, decay=0.3), 3.0, 4.0, 3.0, 0.0, ["reverberant"], True, False),
        (onsets_of(99, decay=0.3), 3.0, 4.0, 3.0, 0.5, ["several sounds at once"], True, True),
        (onsets_of(99, decay=0.4), 3.0, 4.0, 3.0, 0.5,
         ["reverberant", "several sounds at once"], True, True),
        (onsets_of(99), 3.0, 4.0, 0.3, 0.3, ["nothing directional"], False, False),
        (onsets_of(99), 3.0, 4.0, 0.3, 0.5, ["several sounds at once"], True, True),
        (onsets_of(99), 3.0, 0.9, 2.9, 0.0, ["does not fit this head"], True, True),
        (onsets_of(99, snr_db=15), 3.0, 9.0, 2.9, 0.0, [], True, False),  # not clean
        (onsets_of(99, decay=0.19), 3.0, 9.0, 2.9, 0.0, ["reverberant"], True, False),
    ],
)  # fmt: skip
def test_flags_and_doubts_follow_from_the_same_numbers(
    onsets: OnsetBins, seconds: float, residual_ratio: float, nats: float, gain: float,
    kinds: list[str], directional: bool, widened: bool,
) -> None:  # fmt: skip
    """The flags that widen a posterior and the doubts agree, and need no text."""
    fit = HeadFit.measure(residual_ratio, nats, 3.9, onsets.reverberation)
    recording = RecordingDiagnosis.measure(onsets, seconds, fits=fit.fits)
    diagnosis = SourceDiagnosis.measure(recording, fit, gain)
    assert [doubt.word for doubt in diagnosis.doubts()] == kinds
    assert diagnosis.directional is directional
    assert (diagnosis.other_head or diagnosis.several_sources) is widened
    assert recording.only_reverberant or not gain


@pytest.mark.parametrize(
    ("decay", "residual_ratio", "variance", "gain", "kinds"),
    [
        (0.15, 96.0, 2000.0, 0.04, ["several sounds at once"]),
        (0.15, 0.7, 2000.0, 0.04, ["several sounds at once"]),
        (0.15, 96.0, 5.0, 0.04, ["does not fit this head"]),
        (0.3, 96.0, 2000.0, 0.04, ["reverberant"]),
    ],
)
def test_scattered_cues_are_those_of_several_sounds_or_of_a_room(
    decay: float, residual_ratio: float, variance: float, gain: float, kinds: list[str]
) -> None:
    """No head makes the cues of one source scatter, so another head is not blamed for it."""
    onsets = onsets_of(99, decay=decay)
    onsets = onsets.with_reverberation(cue_variance=variance)
    fit = HeadFit.measure(residual_ratio, 3.0, 3.9, onsets.reverberation)
    recording = RecordingDiagnosis.measure(onsets, 3.0, fits=fit.fits)
    doubts = list(SourceDiagnosis.measure(recording, fit, gain).doubts())
    assert [doubt.word for doubt in doubts] == kinds
    if kinds == ["several sounds at once"]:
        assert "Use separate" in doubts[0]
        assert "45 times" in doubts[0]


@pytest.mark.parametrize(("gain", "cause"), [(0.1, "channels"), (np.nan, "several sounds at once")])
def test_channels_are_suspected_only_if_several_sources_were_tested(
    gain: float, cause: str
) -> None:
    """A window is not tested for several sources, which have no common direction either."""
    fit = HeadFit.measure(4.0, 0.3, 3.9, ReverberationEstimate(0.15))
    recording = RecordingDiagnosis.measure(onsets_of(99), 3.0, fits=fit.fits)
    (doubt,) = SourceDiagnosis.measure(recording, fit, gain).doubts()
    assert doubt.word == "nothing directional"
    assert [word in doubt for word in ("channels", "several sounds at once")] == [
        word == cause for word in ("channels", "several sounds at once")
    ]


def test_slow_decay_is_attributed_to_a_room_not_to_another_head() -> None:
    """A room is named even below the T60 of reverberant recordings; a good fit has no doubt."""
    kinds = {
        decay: [
            d.word for d in HeadFit.measure(9.0, 3.0, 4.0, ReverberationEstimate(decay)).doubts()
        ]
        for decay in (0.15, 0.2)
    }
    assert kinds == {0.15: ["does not fit this head"], 0.2: ["reverberant"]}
    assert not list(HeadFit.measure(1.5, 3.6, 4.0, ReverberationEstimate(0.2)).doubts()) + list(
        HeadFit.measure(9.0, 3.95, 4.0, ReverberationEstimate(0.2)).doubts()
    )
    assert [
        doubt.word for doubt in HeadFit.measure(1.5, 3.0, 4.0, ReverberationEstimate(0.15)).doubts()
    ] == ["does not fit this head"]
    assert not list(HeadFit.measure(1.5).doubts())
    assert list(HeadFit.measure(2.5).doubts())


def test_mismatch_doubt_states_the_quantity_of_the_test_that_fired() -> None:
    """The doubt states the residual if it is too large, and otherwise the nats per onset."""
    (residual,) = HeadFit.measure(3.2, 3.0, 4.0, ReverberationEstimate(0.15)).doubts()
    assert residual.startswith(
        "does not fit this head: the cue residual is 3.2 times what is usual"
    )
    assert residual.value == 3.2
    (onsets,) = HeadFit.measure(0.2, 0.21, 0.9, ReverberationEstimate(0.15)).doubts()
    assert onsets.startswith(
        "does not fit this head: its onsets have 0.21 nats per bin where 0.9 are usual."
    )
    assert onsets.value == 0.21
    (scaled,) = HeadFit.measure(6.0, onsets_analysed=False).doubts()
    assert "the cue residual is 6.0 times" in scaled
    assert not list(HeadFit.measure(4.9, onsets_analysed=False).doubts())
    assert "far above" in next(HeadFit.measure(np.inf).doubts())


def test_settings_select_the_limit_of_the_residual() -> None:
    """Each limit of the settings applies, with and without onsets."""
    settings = DiagnosisSettings(max_residual_ratio=4.0, no_onset_residual_ratio=7.0)
    large = [
        [
            HeadFit.measure(ratio, onsets_analysed=analysed, settings=settings).large_residual
            for ratio in (3.9, 4.1, 6.9, 7.1)
        ]
        for analysed in (True, False)
    ]
    assert large == [[False, True, True, True], [False, False, False, True]]


def test_direction_is_unknown_if_the_radius_covers_most_directions(atlas: ea.Atlas) -> None:
    """Identical channels have no known direction; JSON values stay as they are."""
    mono = ea.synthetic_speech(1.0, seed=4)
    unknown = atlas.localize(ea.Audio(np.stack([mono, mono]), RATE))
    assert unknown.radius_90 > UNKNOWN_RADIUS_DEGREES
    assert not unknown.direction_known
    assert unknown.to_dict()["direction"] is not None
    assert "direction_known" not in unknown.to_dict()
    known = atlas.localize(ea.Audio(render_anechoic(0), RATE))
    assert known.direction_known
    plane = ea.Plane(((0, 640), (0, 480)))
    assert Localization(posterior_at(plane, (100.0, 50.0), width=200.0), 0.5, 1.0).direction_known


def test_doubts_hold_for_unknown_directions(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """No doubt mentions the error of a direction, because the direction may be unknown."""
    mono = ea.synthetic_speech(1.0, seed=4)
    noise = 0.1 * rng.normal(size=(2, RATE))
    sounds = [
        np.stack([mono, mono]),
        noise,
        noise[:, : RATE // 5],
        render_anechoic(0) + noise[0, 0],
    ]
    texts = [doubt for x in sounds for doubt in atlas.localize(ea.Audio(x, RATE)).doubts]
    texts += [
        *HeadFit.measure(3.2, 3.0, 4.0, ReverberationEstimate(0.15)).doubts(),
        *HeadFit.measure(3.2, 3.0, 4.0, ReverberationEstimate(0.3)).doubts(),
    ]
    assert len({doubt.word for doubt in texts}) >= 4
    for text in texts:
        for words in ("larger errors", "unreliable", "may be wrong"):
            assert words not in text


def test_two_sources_in_one_direction_raise_a_doubt() -> None:
    """The later one, which has fewer bins, is doubted; an earlier doubt is kept."""
    earlier = Doubt(DoubtKind.MAY_NOT_EXIST, "it gains nothing", 0.0)
    directions = [(50.0, 0.0), (-20.0, 5.0), (56.0, 0.0), (51.0, 0.0)]
    placed = [
        LocatedSource.static(posterior_at(ea.Sphere(), direction), Evidence(1.0), doubts)
        for direction, doubts in zip(directions, [(), (), (), (earlier,)], strict=True)
    ]
    found = flag_colocated_sources(placed)
    assert [[doubt.word for doubt in own.doubts] for own in found] == [
        [], [], ["may not exist"], ["may not exist"]
    ]  # fmt: skip
    assert found[2].doubts[0].value == pytest.approx(6.0, abs=0.3)
    assert "6.0°" in found[2].doubts[0]
    assert found[3].doubts == (earlier,)


def test_reverberation_of_a_stream_raises_a_doubt_after_a_pause() -> None:
    """The stream is still reverberant, although its decay time is unknown."""
    estimate = ReverberationEstimate(was_reverberant=True)
    onsets = replace(onsets_of(99), reverberation=estimate)
    (doubt,) = RecordingDiagnosis.measure(onsets, 9.0, fits=False).doubts()
    assert doubt.word is DoubtKind.REVERBERANT
    assert "nan" not in doubt


def test_further_source_raises_a_doubt_in_a_room(
    atlas: ea.Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another source that nearly reaches the required gain raises a doubt, without a number."""
    audio = render_reverberant(atlas_head)

    def kinds(next_source_ratio: float, n_sources: int | None = None) -> set[str]:
        monkeypatch.setattr(OnsetMixture, "next_source_ratio", lambda *_: next_source_ratio)
        found = atlas.separate(audio, n_sources=n_sources, rendering="soft")
        return {doubt.word for doubt in found.doubts}

    assert "may be more" in kinds(0.8)
    assert "may be more" not in kinds(0.3)
    assert "may be more" not in kinds(0.8, n_sources=1)
    assert source_count_doubts(0.75)[0] == (
        "may be more: the evidence for one more source is 75 % of what is required. "
        "A source may be missing. If you know the number of sources, give it."
    )


def test_large_residual_of_a_scene_raises_a_doubt_without_onsets(atlas: ea.Atlas) -> None:
    """A scene with a small residual has no doubt."""
    plain = replace(atlas, reverberant_localizer=None)
    for residual_ratio, expected in ((0.5, []), (4.0, ["does not fit this head"])):
        placed = [
            LocatedSource.static(posterior_at(ea.Sphere(), (10.0, 0.0)), Evidence(residual_ratio))
        ] * 2
        doubts = diagnose_scene(plain, placed, None, 3.0).doubts()
        assert [doubt.word for doubt in doubts] == expected


def test_sound_without_direction_raises_a_doubt(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """Identical channels, a panned channel and independent noise at the ears raise a doubt."""
    mono = ea.synthetic_speech(2.5, seed=4)
    assert doubt_words(atlas, np.stack([mono, mono])) == {"nothing directional"}
    assert doubt_words(atlas, np.stack([mono, 0.3 * mono])) == {"nothing directional"}
    assert doubt_words(atlas, 0.1 * rng.normal(size=(2, 40_000))) == {"nothing directional"}
    where = atlas.localize(ea.Audio(np.stack([mono, mono]), 16_000))
    assert where.radius_90 > 90
    assert where.to_dict()["radius_90"] > 60
    found = atlas.separate(ea.Audio(np.stack([mono, mono]), 16_000), n_sources=2, rendering="soft")
    assert min(source.radius_90 for source in found.sources) > 60


def test_short_sound_raises_a_doubt(atlas: ea.Atlas) -> None:
    """A third of a second of speech raises a doubt."""
    assert "too short" in doubt_words(atlas, render_anechoic(2)[:, 8_000:13_000])


def test_source_without_evidence_raises_a_doubt(atlas: ea.Atlas) -> None:
    """One talker that is separated into two sources raises a doubt; two talkers raise none."""
    alone = atlas.separate(ea.Audio(render_anechoic(0), RATE), n_sources=2)
    assert "may not exist" in {doubt.word for source in alone.sources for doubt in source.doubts}
    both = render_anechoic(0)[:, :38_000] + render_anechoic(1)[:, :38_000]
    found = atlas.separate(ea.Audio(both, RATE), n_sources=2)
    assert [source.doubts for source in found.sources] == [(), ()]
    assert "noisy" not in {doubt.word for doubt in found.doubts}


def test_noise_raises_a_doubt_about_the_scene(atlas: ea.Atlas, rng: np.random.Generator) -> None:
    """Noise beside two talkers raises a doubt about the scene."""
    both = render_anechoic(0)[:, :38_000] + render_anechoic(1)[:, :38_000]
    noisy = both + rng.normal(size=both.shape) * both.std()
    found = atlas.separate(ea.Audio(noisy, RATE), n_sources=2)
    assert [doubt.word for doubt in found.doubts] == ["noisy"]


def test_atlas_without_reverberant_localizer_tests_the_residual(atlas: ea.Atlas) -> None:
    """Such an atlas has no onsets, but detects sounds that do not fit its head."""
    plain = replace(atlas, reverberant_localizer=None)
    assert doubt_words(plain, render_anechoic(0)) == set()
    mono = ea.synthetic_speech(2.5, seed=4)
    assert doubt_words(plain, np.stack([mono, 0.3 * mono])) == {"does not fit this head"}


def test_doubts_reach_the_terminal_and_json(
    atlas: ea.Atlas,
    run: Callable[..., CompletedProcess[str]],
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    """Doubts have the same words in the terminal and in JSON."""
    both = render_anechoic(0)[:, :38_000] + render_anechoic(1)[:, :38_000]
    noisy = both + rng.normal(size=both.shape) * both.std()
    path = str(atlas.save(tmp_path / "x.atlas"))
    file = str(ea.Audio(0.2 * noisy / noisy.std(), RATE).write(tmp_path / "noisy.wav"))
    process = run("localize", path, file)
    assert "doubtful: noisy: onsets are" in process.stdout
    answer = json.loads(run("localize", path, file, "--json").stdout)
    assert answer["doubts"][0].startswith("noisy: ")
    out = tmp_path / "out"
    process = run("separate", path, file, "-n", "2", "-o", str(out))
    assert "doubtful: noisy: onsets are" in process.stdout
    answer = json.loads((out / "noisy.json").read_text())["answer"]
    assert answer["doubts"][0].startswith("noisy: ")
    assert all("doubts" in source for source in answer["sources"])


def test_report_shows_doubts_of_the_scene_and_of_its_sources(
    atlas: ea.Atlas, tmp_path: Path
) -> None:
    """A scene without doubts has no list of doubts."""
    scene = atlas.separate(ea.Audio(render_anechoic(0), RATE), n_sources=1)
    write_report(tmp_path / "plain.html", scene, title="plain")
    assert '<ul class="doubts"' not in (tmp_path / "plain.html").read_text()
    source = replace(
        scene.sources[0], doubts=(Doubt(DoubtKind.MAY_NOT_EXIST, "it <gains> nothing", 0),)
    )
    doubted = replace(scene, sources=(source,), doubts=(Doubt(DoubtKind.NOISY, "9 dB above", 9),))
    write_report(tmp_path / "doubted.html", doubted, title="doubted")
    page = (tmp_path / "doubted.html").read_text()
    assert "<li>noisy: 9 dB above</li>" in page
    assert "<li>may not exist: it &lt;gains&gt; nothing</li>" in page


def test_doubt_is_a_string() -> None:
    """A doubt is a JSON string, and survives a copy and a pickle."""
    doubt = Doubt(DoubtKind.NOISY, "onsets are 9 dB above the quiet", 9)
    assert json.loads(json.dumps([doubt])) == ["noisy: onsets are 9 dB above the quiet"]
    for again in (copy.deepcopy(doubt), pickle.loads(pickle.dumps(doubt))):
        assert (again, again.word, again.value) == (doubt, "noisy", 9.0)
        assert again.word is DoubtKind.NOISY
    with pytest.raises(ValueError, match="not a valid DoubtKind"):
        Doubt("loud", "onsets are 90 dB above the quiet", 90)  # type: ignore[arg-type]


@pytest.mark.parametrize("t60", [0.3, 0.6])
def test_decay_estimate_equals_the_decay_of_the_sound(t60: float, rng: np.random.Generator) -> None:
    """The estimate is the T60 of decaying noise bursts, in blocks of any size."""
    time = np.arange(int(0.8 * RATE)) / RATE
    burst = rng.normal(size=len(time)) * 10 ** (-3 * time / t60)
    samples = np.tile(burst, (2, 4)) + 1e-7 * rng.normal(size=(2, 4 * len(time)))
    found = []
    for size in (700, len(samples[0])):
        stream = OnsetDetector(OnsetDetectorSettings())
        for start in range(0, samples.shape[1], size):
            stream.push(samples[:, start : start + size])
        stream.finish()
        found.append(stream.bins().reverberation.decay_seconds)
    assert found[0] == found[1] == pytest.approx(t60, rel=0.35)


def test_decay_estimate_forgets(rng: np.random.Generator) -> None:
    """With forgetting, the estimate follows the present decay."""
    power = rng.exponential(size=(3, 2000))
    slow, fast = (10 ** (-6 * np.tile(np.arange(100), 20) / n) for n in (90.0, 30.0))
    stream = DecayEstimator(np.array([200.0, 1000.0, 6000.0]), 0.008, forgetting=0.995)
    stream.push(power * slow)
    first = stream.seconds()
    stream.push(power * fast)
    assert stream.seconds() < 0.6 * first
    assert np.isnan(DecayEstimator(np.array([200.0]), 0.008).seconds())


def test_tracks_are_accurate_in_reverberant_rooms(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """Every window has its own onsets; without them, errors are more than twice as large."""
    h = atlas_head.responses().at_rate(RATE)
    even = np.full(len(h), 1 / len(h))
    room = RandomReverberation(
        t60_seconds=0.4, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=4.0
    )
    rng = np.random.default_rng(2)
    halves = []
    for row in (100, 400):
        wet = room.response(h, row, RATE, even, rng)
        halves.append(
            oaconvolve(ea.synthetic_speech(1.5, seed=row)[None], wet, axes=1)[:, : int(1.5 * RATE)]
        )
    audio = ea.Audio(np.concatenate(halves, axis=1), RATE)
    errors = {}
    for name, head in (("onsets", atlas), ("anechoic", replace(atlas, reverberant_localizer=None))):
        track = head.localize_frames(audio)
        truths = atlas_head.directions[np.where(track.times < 1.5, 100, 400)]
        valid = (np.abs(track.times - 1.5) > 0.3) & np.isfinite(track.directions[:, 0])
        errors[name] = ea.great_circle_error(truths[valid], track.directions[valid])
    assert np.median(errors["onsets"]) < 8
    assert np.median(errors["onsets"]) < 0.5 * np.median(errors["anechoic"])
