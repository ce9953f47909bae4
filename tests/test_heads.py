"""Heads: SOFA files as they come, calibration recordings, KEMAR, and the order of the ears."""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sofar
import soundfile
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.directions import great_circle_error, to_vectors
from earatlas.errors import EaratlasWarning, InputError
from earatlas.heads import Head, ImpulseResponses, MeasuredCues

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path, small_head: ea.Head) -> Build:
    """Write the small head as a SOFA file, after a change to it."""

    def write(
        change: Callable[[sofar.Sofa], None] = lambda sofa: None,
        convention: str = "SimpleFreeFieldHRIR",
    ) -> Path:
        sofa = sofar.Sofa(convention)
        ears = small_head.responses()
        sofa.Data_IR, sofa.Data_SamplingRate = ears.samples, ears.rate
        sofa.SourcePosition = np.column_stack(
            [small_head.directions % 360 * [1, 0] + small_head.directions * [0, 1],
             np.full(len(small_head), 1.5)]
        )  # fmt: skip
        sofa.SourcePosition_Type = "spherical"
        sofa.SourcePosition_Units = "degree, degree, metre"
        sofa.GLOBAL_License, sofa.GLOBAL_Title = "CC0", "a test head"
        sofa.ReceiverPosition = np.array([[0, 0.09, 0], [0, -0.09, 0]])
        change(sofa)
        path = tmp_path / "head.sofa"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sofar.write_sofa(str(path), sofa)
        return path

    return write


def same(head: Head, reference: Head) -> None:
    """Directions and cues agree."""
    assert great_circle_error(head.directions, reference.directions).max() < 1e-4
    np.testing.assert_allclose(head.cues(), reference.cues(), atol=1e-6)


def test_sofa_round_trip(build: Build, small_head: ea.Head) -> None:
    """A plain file gives the head that it was written from, without a warning."""
    head = ea.read_sofa(build())
    same(head, small_head)
    assert (head.name, head.licence) == ("head", "CC0")
    assert "a test head" in head.provenance


def test_sofa_cartesian(build: Build, small_head: ea.Head) -> None:
    """Cartesian positions give the same directions."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.SourcePosition = 1.5 * to_vectors(small_head.directions)
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"

    same(ea.read_sofa(build(change)), small_head)


def test_sofa_delay_is_put_in(build: Build, small_head: ea.Head) -> None:
    """Data.Delay shifts each response, by whole samples and by fractions of one."""
    delays = np.random.default_rng(3).integers(0, 9, size=(len(small_head), 2))

    def whole(sofa: sofar.Sofa) -> None:
        sofa.Data_Delay = delays.astype(float)

    ears = small_head.responses()
    shifted = np.zeros((len(small_head), 2, 256 + 8))
    for n in range(len(small_head)):
        for ear in range(2):
            shifted[n, ear, delays[n, ear] : delays[n, ear] + 256] = ears.samples[n, ear]
    expected = Head("x", small_head.directions, ImpulseResponses(shifted, ears.rate))
    same(ea.read_sofa(build(whole)), expected)

    def fraction(sofa: sofar.Sofa) -> None:
        sofa.Data_Delay = np.tile([0.25, 3.5], (len(small_head), 1))

    f = ea.CueLayout.low_ipd()  # the right ear 3.5 - 0.25 samples later
    turn = np.exp(-2j * np.pi * f.frequencies_hz[f.ipd_bins] * 3.25 / 48000)
    cos, sin = np.split(small_head.cues(f), 2, axis=1)
    expected_phase = (cos + 1j * sin) * turn
    cos, sin = np.split(ea.read_sofa(build(fraction)).cues(f), 2, axis=1)
    np.testing.assert_allclose(cos + 1j * sin, expected_phase, atol=1e-4)


def test_sofa_turned_listener(build: Build, small_head: ea.Head) -> None:
    """A head that looks left and stands aside hears what it would hear looking ahead."""

    def change(sofa: sofar.Sofa) -> None:
        v = to_vectors(small_head.directions)
        turned = np.stack([-v[:, 1], v[:, 0], v[:, 2]], axis=-1)  # by 90 degrees to the left
        sofa.SourcePosition = turned + np.array([0.5, 1.0, 0.2])
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"
        sofa.ListenerPosition = np.array([[0.5, 1.0, 0.2]])
        sofa.ListenerView = np.array([[0.0, 1.0, 0.0]])

    same(ea.read_sofa(build(change)), small_head)


def test_sofa_emitters(build: Build, small_head: ea.Head) -> None:
    """A file with its directions as emitters (M R N E) gives the same head."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = np.moveaxis(sofa.Data_IR, 0, -1)[None]
        sofa.EmitterPosition = to_vectors(small_head.directions)
        sofa.EmitterPosition_Type, sofa.EmitterPosition_Units = "cartesian", "metre"
        sofa.SourcePosition = np.zeros((1, 3))
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"

    same(ea.read_sofa(build(change, "FreeFieldHRIR")), small_head)


def test_swapped_ears_are_heard(build: Build, small_head: ea.Head) -> None:
    """Ears the wrong way round are put right with a warning; wrong receiver positions are not."""

    def swap(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = sofa.Data_IR[:, ::-1]

    def signs(sofa: sofar.Sofa) -> None:
        sofa.ReceiverPosition = np.array([[0, -0.09, 0], [0, 0.09, 0]])

    path = build(swap)
    with pytest.warns(EaratlasWarning, match="wrong way round"):
        same(ea.read_sofa(path), small_head)
    same(ea.read_sofa(build(signs)), small_head)


def test_duplicates_are_refused_and_the_remedy_works(build: Build, small_head: ea.Head) -> None:
    """The error names the remedy, and the remedy keeps the first of each."""

    def double(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = np.concatenate([sofa.Data_IR, 0.5 * sofa.Data_IR[::-1]])
        sofa.SourcePosition = np.concatenate([sofa.SourcePosition, sofa.SourcePosition[::-1]])

    path = build(double)
    with pytest.raises(InputError, match="duplicates='first'"):
        ea.read_sofa(path)
    head = ea.read_sofa(path, duplicates="first")
    same(head, small_head)
    np.testing.assert_array_equal(head.responses().samples, small_head.responses().samples)


def test_reads_every_measured_head(data: Path) -> None:
    """All four, with their number of directions and the left ear first."""
    sizes = {"ku100": 2702, "cipic_021": 1250, "cipic_003": 1250, "kemar_full": 710}
    for name, n in sizes.items():
        head = ea.read_sofa(data / "heads" / f"{name}.sofa")
        ild = head.cues(ea.CueLayout(ipd_band_hz=None)).mean(axis=1)
        left = (head.directions[:, 0] > 60) & (head.directions[:, 0] < 120)
        assert (len(head), head.cues().shape) == (n, (n, 730))
        assert ild[left].mean() < -3  # right over left: quieter


def test_reads_room_responses(data: Path) -> None:
    """A room's table of impulse responses: the horizontal circle, rendered with noise."""
    head = ea.read_recordings(data / "rooms" / "room_a" / "positions.csv")
    assert (len(head), head.name, head.space) == (37, "room_a", ea.Circle())
    assert isinstance(head.ears, ImpulseResponses)
    assert np.corrcoef(head.directions[:, 0], head.cues().mean(axis=1))[0, 1] < -0.8


def write_table(folder: Path, head: Head, noise: bool) -> Path:
    """Calibration recordings of a few directions of a head, with their table."""
    rng = np.random.default_rng(5)
    lines = ["file,azimuth,elevation"]
    ears = head.responses()
    for n in range(0, len(head), 23):
        sound = ears.samples[n]
        if noise:
            sound = oaconvolve(0.1 * rng.normal(size=(1, 48_000)), sound, axes=1)
        soundfile.write(folder / f"{n}.wav", sound.T, int(ears.rate), "DOUBLE")
        lines.append(f"{n}.wav,{head.directions[n, 0]},{head.directions[n, 1]}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder / "table.csv"


@pytest.mark.parametrize("noise", [True, False])
def test_recordings_give_the_head(tmp_path: Path, small_head: ea.Head, noise: bool) -> None:
    """Noise and impulse responses are told apart, and both give the cues they were made from."""
    seen = []
    head = ea.read_recordings(
        write_table(tmp_path, small_head, noise), progress=lambda done, total: seen.append(done)
    )
    assert isinstance(head.ears, MeasuredCues if noise else ImpulseResponses)
    assert seen == list(range(1, len(head) + 1))
    expected = small_head.subset(np.arange(0, len(small_head), 23))
    assert great_circle_error(head.directions, expected.directions).max() < 1e-9
    difference = (head.cues() - expected.cues())[:, :480]
    assert np.sqrt(np.mean(difference**2)) < (0.6 if noise else 1e-6)


def test_noise_head_renders_nothing(tmp_path: Path, small_head: ea.Head) -> None:
    """A head known by noise only says so when asked for responses, and gives narrower cues."""
    head = ea.read_recordings(write_table(tmp_path, small_head, True), kind="noise")
    with pytest.raises(InputError, match="measured with noise"):
        head.responses()
    assert head.cues(ea.CueLayout.low_ild()).shape == (len(head), 128)


def test_subset_and_space(small_head: ea.Head) -> None:
    """A subset takes indices or a mask; a head at one elevation lives on the circle."""
    chosen = small_head.subset(small_head.directions[:, 1] > 0)
    assert 0 < len(chosen) < len(small_head)
    np.testing.assert_array_equal(small_head.subset([5, 2]).directions[1], chosen.directions[2])
    assert small_head.space == ea.Sphere()
    ring = ea.simulated_head([[a, 0.0] for a in range(-180, 180, 10)])
    assert ring.space == ea.Circle()
    assert ring.spacing_degrees == pytest.approx(10)


def test_kemar_warns_of_its_mirror() -> None:
    """slab's KEMAR is there, and says what it cannot teach."""
    if importlib.util.find_spec("slab") is None:
        pytest.skip("slab is not installed: pip install 'earatlas[kemar]'")
    with pytest.warns(EaratlasWarning, match="mirrored"):
        head = ea.kemar()
    assert len(head) == 710
    assert ea.diagnose(head).mirror_ild_db < 1e-9
    assert ea.diagnose(head).median_plane_ild_db < 1e-9


def test_head_checks_its_directions() -> None:
    """As many as responses, elevations within the sphere, azimuths wrapped."""
    ears = ImpulseResponses(np.ones((2, 2, 4)), 16000.0)
    np.testing.assert_array_equal(Head("x", [[270.0, 0], [0, 90]], ears).directions[0], [-90, 0])
    with pytest.raises(InputError, match="as many"):
        Head("x", np.zeros((3, 2)), ears)
    with pytest.raises(InputError, match="azimuth first"):
        Head("x", np.array([[0.0, 0.0], [0.0, 120.0]]), ears)


def test_at_rate_keeps_cues(small_head: ea.Head) -> None:
    """Responses resampled for rendering have the cues of the originals below 7 kHz."""
    low = ea.CueLayout(ild_band_hz=(0, 7000))
    ears = ImpulseResponses(small_head.responses().at_rate(16000), 16000.0)
    np.testing.assert_allclose(ears.cues(low), small_head.cues(low), atol=0.05)
