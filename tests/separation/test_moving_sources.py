"""Sources that move are followed: one walker is one source, and sounds still add up."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import soundfile

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.features.cues import transfer_functions
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.interaural_templates import Interpolation, Templates
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.time_varying import ratios_at, separate_along
from earatlas.separation.moving_sources import _Following
from earatlas.separation.result import Scene

RATE = 16_000
WALK = ea.Trajectory((0, 5), ((60, 5), (-40, 5)))
STAND = (-75.0, 0.0)


@pytest.fixture(scope="module")
def walkers(atlas_head: ea.Head) -> ea.SimulatedScene:
    """5 s of one who walks at 20 degrees a second, beside one who stands."""
    sounds = [ea.synthetic_speech(5.0, seed=m) for m in (4, 5)]
    return ea.render_scene(atlas_head, sounds, [WALK, STAND])


@pytest.fixture(scope="module")
def found(atlas: Atlas, walkers: ea.SimulatedScene) -> Scene:
    """What is heard of them."""
    return atlas.separate(walkers.mixture)


def sdr(true: np.ndarray, found: np.ndarray) -> float:
    """Signal to distortion of both ears, in dB."""
    return float(10 * np.log10((true**2).sum() / ((true - found) ** 2).sum()))


def test_walker_beside_a_standing_talker(found: Scene, walkers: ea.SimulatedScene) -> None:
    """Two sources: one moves along its way, one stands; each is heard by itself."""
    assert len(found.sources) == 2
    assert sorted(source.moves for source in found.sources) == [False, True]
    walker, stander = sorted(found.sources, key=lambda source: not source.moves)
    track = walker.track
    off = great_circle_error(WALK.at(track.seconds), track.directions)[track.heard]
    assert 0.1 < np.median(off) < 5.0
    assert np.mean(off <= track.radius_90[track.heard]) > 0.8
    assert np.ptp(track.directions[track.heard, 0]) > 70
    still = stander.track.directions[stander.track.heard]
    assert np.ptp(still, axis=0).max() == 0.0
    assert great_circle_error(np.array(STAND), still[0]) < 8.0
    for image, source in zip(walkers.images, (walker, stander), strict=True):
        assert 8.0 < sdr(image, source.audio.samples) < 40.0


def test_followed_sounds_add_up(found: Scene, walkers: ea.SimulatedScene) -> None:
    """Nothing is lost; masks are shares; the free energy does not fall; JSON says who moves."""
    total = sum(source.audio.samples for source in found.sources)
    np.testing.assert_allclose(total, walkers.mixture.samples, atol=1e-10)
    np.testing.assert_allclose(found.masks.sum(axis=0), 1.0, atol=1e-6)
    assert np.diff(found.free_energies).min() > 0
    plain = [source.to_dict() for source in found.sources]
    assert [row["moves"] for row in plain] == [source.moves for source in found.sources]
    assert all(source.evidence.direct for source in found.sources)


def test_one_walker_is_one_source(atlas: Atlas, walkers: ea.SimulatedScene) -> None:
    """His sound is the recording; at 48 kHz and with masks as well."""
    alone = ea.Audio(walkers.images[0], RATE)
    scene = atlas.separate(alone)
    assert len(scene.sources) == 1
    assert scene.sources[0].moves
    np.testing.assert_array_equal(scene.sources[0].audio.samples, alone.samples)
    posterior = scene.sources[0].posterior
    assert posterior.credible_area(0.9) > 600  # all of its way is where it was


@pytest.mark.parametrize("rendering", ["spatial", "soft"])
def test_followed_at_any_rate(
    atlas: Atlas, walkers: ea.SimulatedScene, rendering: Rendering
) -> None:
    """As many samples as the recording has, and they add up at its rate."""
    wide = walkers.mixture.at_rate(44_100)
    scene = atlas.separate(wide, n_sources=2, rendering=rendering)
    assert any(source.moves for source in scene.sources)
    total = sum(source.audio.samples for source in scene.sources)
    np.testing.assert_allclose(total, wide.samples, atol=1e-9)


def test_standing_sources_are_as_before(
    atlas: Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody moves: whether ways are looked for changes nothing, not a bit."""
    sounds = [ea.synthetic_speech(2.5, seed=m) for m in (1, 2)]
    scene = ea.render_scene(atlas_head, sounds, [(55.0, 10.0), (-40.0, -5.0)])
    found = atlas.separate(scene.mixture)
    monkeypatch.setattr("earatlas.separation.separator.ways_of", lambda *_: [])
    before = atlas.separate(scene.mixture)
    assert not any(source.moves for source in found.sources)
    for a, b in zip(found.sources, before.sources, strict=True):
        np.testing.assert_array_equal(a.audio.samples, b.audio.samples)
        np.testing.assert_array_equal(a.direction, b.direction)


def test_bins_are_shared_out_by_the_cues_of_each_step(
    atlas: Atlas, walkers: ea.SimulatedScene
) -> None:
    """The first assignment, bin by bin from the formula."""
    separator = atlas.separator
    layout, model = separator.layout, separator.source_model
    spectra = stft(walkers.mixture.samples[:, :RATE], layout.window, layout.hop)
    bins = separator.sure_bins(spectra, -60.0)
    bins = bins.subset(np.arange(0, len(bins), len(bins) // 150))
    starts = np.array([0, 50, 90])
    directions = np.array([[[60.0, 5], [50, 5], [40, 5]], [STAND] * 3])
    following = _Following(separator, bins, directions, starts)
    shares = np.random.default_rng(0).dirichlet((2, 3), following._vessl.n_cells).T
    q, total = following._assigned(model.noise, shares)
    np.testing.assert_allclose(q.sum(axis=0), 1.0)
    expected = 0.0
    for n in range(len(bins)):
        step = int((bins.t[n] >= starts).sum()) - 1
        logs = following._vessl.log_likelihoods(
            *model.expected(directions[:, step]), model.noise, bins.subset(np.array([n]))
        )[:, 0]
        logs += np.log(shares[:, following._vessl.cells[n]])
        expected += float(np.logaddexp(*logs))
        np.testing.assert_allclose(q[0, n], np.exp(logs[0] - np.logaddexp(*logs)), rtol=1e-9)
    assert total == pytest.approx(expected, rel=1e-9)


def test_ratios_are_those_of_the_head(atlas_head: ea.Head) -> None:
    """At measured directions and other frequencies, right over left as the responses have it."""
    hz = np.arange(150.0, 7800.0, 41.67)
    templates = Templates.of(atlas_head, hz)
    rows = np.array([3, 41, 300])
    at = Interpolation(rows[:, None], np.ones((3, 1)))
    wanted = np.array([210.0, 1005.3, 3333.0, 7000.1])
    ears = atlas_head.responses()
    left, right = np.moveaxis(transfer_functions(ears.samples[rows], ears.rate, wanted), 1, 0)
    np.testing.assert_allclose(ratios_at(templates, at, wanted), right / left, rtol=0.05)


def test_filters_follow(walkers: ea.SimulatedScene, atlas: Atlas) -> None:
    """With their ratios two sources come apart, with each other's they do not; they add up."""
    layout = atlas.layout
    x = walkers.images[:, :, : 2 * RATE]
    spectra = stft(x.sum(axis=0), layout.window, layout.hop)
    own = np.stack([stft(image, layout.window, layout.hop) for image in x])
    F, T = layout.n_frequencies, spectra.shape[-1]
    starts = np.arange(0, T, 16)
    blocks = [own[..., a : a + 16] for a in starts]
    cross = np.stack([(b[:, 1] * b[:, 0].conj()).sum(axis=-1)[:, 1:] for b in blocks], axis=1)
    power = np.stack([(np.abs(b[:, 0]) ** 2).sum(axis=-1)[:, 1:] for b in blocks], axis=1)
    ratios = cross / power
    even = np.full((2, F, T), 0.5)
    n = x.shape[-1]
    right = separate_along(spectra, even, ratios, starts, layout, n)
    wrong = separate_along(spectra, even, ratios[::-1], starts, layout, n)
    np.testing.assert_allclose(right.sum(axis=0), x.sum(axis=0), atol=1e-10)
    assert min(sdr(x[m], right[m]) for m in (0, 1)) > 8.0
    assert max(sdr(x[m], wrong[m]) for m in (0, 1)) < 3.0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("0,60,0/0.1,-60,0", "path must not jump"),
        ("0,60,0", "path must have two waypoints or more"),
        ("0,60,0/x,-60,0", "path must be SECONDS,AZIMUTH,ELEVATION"),
        ("3,60,0/1,-60,0", "path must have times"),
        ("0,0,0/9,180,0", "path must say which way it goes"),
    ],
)
def test_paths_that_nobody_can_go(
    path: str,
    said: str,
    tmp_path: Path,
    run: Callable[..., CompletedProcess[str]],
) -> None:
    """One sentence each, and exit code 2."""
    sound = tmp_path / "a.wav"
    soundfile.write(sound, ea.synthetic_speech(0.5, seed=1), RATE)
    done: Any = run(
        "simulate", "simulated", "--sound", f"{sound}:{path}", "-o", str(tmp_path / "out")
    )
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_path_beyond_the_head_is_refused() -> None:
    """Where no direction was measured nobody can walk."""
    grid = ea.Sphere().grid(12.0)
    above = ea.simulated_head(grid[grid[:, 1] > -20])
    below = ea.Trajectory((0, 1), ((0, 0), (0, -80)))
    with pytest.raises(ea.InputError, match="path must"):
        ea.render_scene(above, [ea.synthetic_speech(0.5, seed=1)], [below])
    ea.render_scene(
        above, [ea.synthetic_speech(0.5, seed=1)], [ea.Trajectory((0, 1), ((0, 0), (0, 60)))]
    )


def test_short_recordings_stand(
    walkers: ea.SimulatedScene, atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 3 s ways are not even looked for: talkers in turns would look like a walker."""

    def looked(*_: object) -> None:
        raise AssertionError("looked for ways")

    monkeypatch.setattr("earatlas.tracking.offline.Ways", looked)
    mixture = walkers.mixture
    short = ea.Audio(mixture.samples[:, : 3 * RATE], RATE)
    assert not any(source.moves for source in atlas.separate(short, rendering="soft").sources)
    with pytest.raises(AssertionError, match="looked for ways"):
        atlas.separate(mixture, rendering="soft")
