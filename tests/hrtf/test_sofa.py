"""Contents of SOFA files: positions, emitters, delays, ears, and invalid files."""

import warnings
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import sofar

import earatlas as ea
from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.angles import great_circle_error, to_directions, to_vectors
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.sofa import load_sofa
from earatlas.hrtf.sofa_file import read_sofa_file

Build = Callable[..., Path]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in this process; the subprocess is tested in test_hostile_sofa.py."""
    monkeypatch.setattr("earatlas.hrtf.sofa.read_in_subprocess", read_sofa_file)


@pytest.fixture
def build(tmp_path: Path, small_head: ea.Head) -> Build:
    """Return a function that writes the small head as a SOFA file, after an optional change."""

    def write(
        change: Callable[[sofar.Sofa], None] = lambda sofa: None,
        convention: str = "SimpleFreeFieldHRIR",
    ) -> Path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some conventions are old
            sofa = sofar.Sofa(convention)
        ears = small_head.responses()
        sofa.Data_IR, sofa.Data_SamplingRate = ears.samples.copy(), ears.rate
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


def assert_same(head: Head, reference: Head) -> None:
    """Assert that directions and cues agree."""
    assert great_circle_error(head.directions, reference.directions).max() < 1e-4
    np.testing.assert_allclose(head.cues(), reference.cues(), atol=1e-6)


def test_sofa_round_trip(build: Build, small_head: ea.Head) -> None:
    """A valid file gives the original head, without a warning."""
    head = ea.read_sofa(build())
    assert_same(head, small_head)
    assert (head.name, head.licence) == ("head", "CC0")
    assert "a test head" in head.provenance


def test_sofa_cartesian(build: Build, small_head: ea.Head) -> None:
    """Cartesian positions give the same directions."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.SourcePosition = 1.5 * to_vectors(small_head.directions)
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"

    assert_same(ea.read_sofa(build(change)), small_head)


def test_sofa_delay_is_applied(build: Build, small_head: ea.Head) -> None:
    """Data.Delay shifts each response by integer and fractional samples."""
    delays = np.random.default_rng(3).integers(0, 9, size=(len(small_head), 2))

    def whole(sofa: sofar.Sofa) -> None:
        sofa.Data_Delay = delays.astype(float)

    ears = small_head.responses()
    shifted = np.zeros((len(small_head), 2, 256 + 8))
    for n in range(len(small_head)):
        for ear in range(2):
            shifted[n, ear, delays[n, ear] : delays[n, ear] + 256] = ears.samples[n, ear]
    expected = Head("x", small_head.directions, ImpulseResponses(shifted, ears.rate))
    assert_same(ea.read_sofa(build(whole)), expected)

    def fraction(sofa: sofar.Sofa) -> None:
        sofa.Data_Delay = np.tile([0.25, 3.5], (len(small_head), 1))

    f = ea.CueLayout.low_ipd()  # the right ear 3.5 - 0.25 samples later
    phase = np.exp(-2j * np.pi * f.frequencies_hz[f.ipd_frequencies] * 3.25 / 48000)
    cos, sin = np.split(small_head.cues(f), 2, axis=1)
    expected_phase = (cos + 1j * sin) * phase
    cos, sin = np.split(ea.read_sofa(build(fraction)).cues(f), 2, axis=1)
    np.testing.assert_allclose(cos + 1j * sin, expected_phase, atol=1e-4)


def test_sofa_rotated_listener(build: Build, small_head: ea.Head) -> None:
    """Directions are relative to the position and the view of the listener."""

    def change(sofa: sofar.Sofa) -> None:
        v = to_vectors(small_head.directions)
        rotated = np.stack([-v[:, 1], v[:, 0], v[:, 2]], axis=-1)  # by 90 degrees to the left
        sofa.SourcePosition = rotated + np.array([0.5, 1.0, 0.2])
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"
        sofa.ListenerPosition = np.array([[0.5, 1.0, 0.2]])
        sofa.ListenerView = np.array([[0.0, 1.0, 0.0]])

    assert_same(ea.read_sofa(build(change)), small_head)


def test_sofa_emitters(build: Build, small_head: ea.Head) -> None:
    """A file whose directions are emitters (M R N E) gives the same head."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = np.moveaxis(sofa.Data_IR, 0, -1)[None]
        sofa.EmitterPosition = to_vectors(small_head.directions)
        sofa.EmitterPosition_Type, sofa.EmitterPosition_Units = "cartesian", "metre"
        sofa.SourcePosition = np.zeros((1, 3))
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"

    assert_same(ea.read_sofa(build(change, "FreeFieldHRIR")), small_head)


def test_swapped_ears_are_detected(build: Build, small_head: ea.Head) -> None:
    """Swapped ears are corrected with a warning; wrong receiver positions are ignored."""

    def swap(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = sofa.Data_IR[:, ::-1]

    def signs(sofa: sofar.Sofa) -> None:
        sofa.ReceiverPosition = np.array([[0, -0.09, 0], [0, 0.09, 0]])

    path = build(swap)
    with pytest.warns(EaratlasWarning, match="wrong way round"):
        assert_same(ea.read_sofa(path), small_head)
    assert_same(ea.read_sofa(build(signs)), small_head)


def test_duplicates_are_rejected_and_the_remedy_works(build: Build, small_head: ea.Head) -> None:
    """The error states the remedy, which keeps the first of each direction."""

    def double(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = np.concatenate([sofa.Data_IR, 0.5 * sofa.Data_IR[::-1]])
        sofa.SourcePosition = np.concatenate([sofa.SourcePosition, sofa.SourcePosition[::-1]])

    path = build(double)
    with pytest.raises(InputError, match="keep the first of each"):
        ea.read_sofa(path)
    head = ea.read_sofa(path, duplicates="first")
    assert_same(head, small_head)
    np.testing.assert_array_equal(head.responses().samples, small_head.responses().samples)


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # warning for the KU100
def test_reads_every_measured_head(data: Path) -> None:
    """The number of directions is correct, and the left ear comes first."""
    sizes = {"ku100": 2702, "cipic_021": 1250, "cipic_003": 1250, "kemar_full": 710}
    for name, n in sizes.items():
        head = ea.read_sofa(data / "heads" / f"{name}.sofa")
        ild = head.cues(ea.CueLayout(ipd_band_hz=None)).mean(axis=1)
        left = (head.directions[:, 0] > 60) & (head.directions[:, 0] < 120)
        assert (len(head), head.cues().shape) == (n, (n, 730))
        assert ild[left].mean() < -3  # right over left: quieter


def edit(path: Path, change: Callable[[netCDF4.Dataset], object]) -> Path:
    """Change a SOFA file in place, bypassing the checks of sofar."""
    with netCDF4.Dataset(path, "r+") as file:
        change(file)
    return path


def read_with_warning(path: Path) -> Head:
    """Read a file that violates the standard, which gives a warning."""
    with pytest.warns(EaratlasWarning, match="does not pass SOFA verification"):
        return ea.read_sofa(path)


def test_blanks_and_capitals_in_types_and_units(build: Build, small_head: ea.Head) -> None:
    """Type, Units and convention are compared without case, blanks and NUL characters."""

    def change(file: netCDF4.Dataset) -> None:
        file["SourcePosition"].Type = " Spherical "
        file["SourcePosition"].Units = " Degree, Degree, Metre"
        file.SOFAConventions = "simplefreefieldhrir "

    assert_same(read_with_warning(edit(build(), change)), small_head)


@pytest.mark.parametrize("units", ["radian, radian, metre", " Radian, Radian, Metre"])
def test_radians(build: Build, small_head: ea.Head, units: str) -> None:
    """Spherical positions may be in radians."""

    def change(file: netCDF4.Dataset) -> None:
        file["SourcePosition"][:, :2] = np.radians(file["SourcePosition"][:, :2])
        file["SourcePosition"].Units = units

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the standard requires degrees
        assert_same(ea.read_sofa(edit(build(), change)), small_head)


@pytest.mark.parametrize("kind", ["interaural-polar", "spherical harmonics", ""])
def test_other_types_of_positions_are_rejected(build: Build, kind: str) -> None:
    """Types other than cartesian and spherical are errors."""
    path = edit(build(), lambda f: f["SourcePosition"].setncattr("Type", kind))
    with pytest.raises(InputError, match=r"SourcePosition.*cartesian or spherical"):
        ea.read_sofa(path)


def test_missing_type(build: Build, small_head: ea.Head) -> None:
    """The default of the listener is cartesian; the source has no default."""
    listener = edit(build(), lambda f: f["ListenerView"].delncattr("Type"))
    assert_same(read_with_warning(listener), small_head)
    source = edit(build(), lambda f: f["SourcePosition"].delncattr("Type"))
    with pytest.raises(InputError, match=r"SourcePosition.*got 'none'"):
        ea.read_sofa(source)


def as_emitters(sofa: sofar.Sofa, head: Head) -> None:
    """Store the directions as emitters around a source at the position of the listener."""
    sofa.EmitterPosition = to_vectors(head.directions)
    sofa.EmitterPosition_Type, sofa.EmitterPosition_Units = "cartesian", "metre"
    sofa.SourcePosition = np.zeros((1, 3))  # spherical: distance 0 must remain 0
    sofa.Data_IR = np.moveaxis(sofa.Data_IR, 0, -1)[None]  # M R N E


def test_zero_distance_is_replaced_only_without_emitters(build: Build, small_head: ea.Head) -> None:
    """A source at distance 0 keeps its direction, unless it has emitters."""

    def plain(sofa: sofar.Sofa) -> None:
        sofa.SourcePosition[:, 2] = 0

    assert_same(ea.read_sofa(build(plain)), small_head)
    path = build(lambda sofa: as_emitters(sofa, small_head), "FreeFieldHRIR")
    assert_same(ea.read_sofa(path), small_head)


def test_listener_at_zero_distance_is_at_the_origin(build: Build, small_head: ea.Head) -> None:
    """A spherical ListenerPosition with distance 0 changes nothing."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.ListenerPosition = np.zeros((1, 3))
        sofa.ListenerPosition_Type = "spherical"
        sofa.ListenerPosition_Units = "degree, degree, metre"

    assert_same(ea.read_sofa(build(change)), small_head)


def test_source_at_the_listener_is_rejected(build: Build) -> None:
    """Such a source has no direction."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.SourcePosition[5] = 0
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"

    with pytest.raises(InputError, match=r"away from the listener.*number 5"):
        ea.read_sofa(build(change))


def test_spherical_harmonics_are_rejected(build: Build, small_head: ea.Head) -> None:
    """The error states the remedy."""
    path = build(lambda sofa: as_emitters(sofa, small_head), "FreeFieldHRIR")
    edit(path, lambda f: f["EmitterPosition"].setncattr("Type", "Spherical Harmonics"))
    with pytest.raises(InputError, match=r"EmitterPosition.*spherical harmonics.*to directions"):
        ea.read_sofa(path)


@pytest.mark.parametrize("convention", ["MultiSpeakerBRIR", "GeneralFIRE"])
def test_older_order_of_emitters(build: Build, small_head: ea.Head, convention: str) -> None:
    """Data type FIRE is M R E N: emitters before samples, delays M R E."""
    samples = small_head.responses().samples
    delays = np.random.default_rng(4).integers(0, 5, size=(len(small_head), 2))
    delays[0], delays[1] = 0, 4

    def change(file: netCDF4.Dataset) -> None:  # sofar does not write these conventions
        file.SOFAConventions, file.DataType = convention, "FIRE"
        file.renameVariable("Data.IR", "Old")
        file.renameVariable("Data.Delay", "Older")
        file.createVariable("Data.IR", "f8", ("M", "R", "E", "N"))[:] = np.swapaxes(samples, 0, 1)
        file.createVariable("Data.Delay", "f8", ("M", "R", "E"))[:] = delays.T

    path = build(lambda sofa: as_emitters(sofa, small_head), "FreeFieldHRIR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # one convention requires a room
        data = load_sofa(edit(path, change))
    for n, delay in enumerate(delays):
        expected = [np.pad(samples[n, ear], (delay[ear], 4 - delay[ear])) for ear in range(2)]
        np.testing.assert_allclose(data.responses[n], expected, atol=1e-12)
    assert great_circle_error(data.directions, small_head.directions).max() < 1e-4


def test_single_emitter(build: Build) -> None:
    """With a fourth axis of size 1, source and emitter positions add up."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = sofa.Data_IR[:1, ..., None]
        sofa.SourcePosition = np.array([[0.0, 0.0, 1.0]])  # in front
        sofa.EmitterPosition = np.array([[0.0, 1.0, 0.0]])  # and as far to the left
        sofa.EmitterPosition_Type, sofa.EmitterPosition_Units = "cartesian", "metre"

    np.testing.assert_allclose(
        load_sofa(build(change, "FreeFieldHRIR")).directions, [[45, 0]], atol=1e-9
    )


def test_moving_emitters_are_rejected(build: Build, small_head: ea.Head) -> None:
    """Emitter positions must be the same in all measurements."""

    def static(sofa: sofar.Sofa, step: float = 0.0) -> None:
        as_emitters(sofa, small_head)
        sofa.Data_IR = np.concatenate([sofa.Data_IR, sofa.Data_IR])
        v = to_vectors(small_head.directions)
        sofa.EmitterPosition = np.stack([v, v + step], axis=-1)  # E C M

    path = build(static, "FreeFieldHRIR")
    assert_same(ea.read_sofa(path, duplicates="first"), small_head)
    path = build(lambda sofa: static(sofa, 0.1), "FreeFieldHRIR")
    with pytest.raises(InputError, match="EmitterPosition must not change"):
        ea.read_sofa(path, duplicates="first")


def test_listener_up_has_the_type_of_listener_view(build: Build, small_head: ea.Head) -> None:
    """ListenerUp has no Type of its own."""

    def change(sofa: sofar.Sofa) -> None:
        v = to_vectors(small_head.directions)
        # The head lies on its back: view is up (+z), and its top points backwards (-x).
        sofa.SourcePosition = np.stack([-v[:, 2], v[:, 1], v[:, 0]], axis=-1)
        sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"
        sofa.ListenerView = np.array([[0.0, 90.0, 1.0]])
        sofa.ListenerView_Type = "spherical"
        sofa.ListenerView_Units = "degree, degree, metre"
        sofa.ListenerUp = np.array([[180.0, 0.0, 1.0]])

    assert_same(ea.read_sofa(build(change)), small_head)


@pytest.mark.parametrize("view", [(0.0, 0.0, 2.0), (0.0, 0.0, -1.0), (0.0, 0.0, 0.0)])
def test_invalid_listener_view(build: Build, view: tuple[float, float, float]) -> None:
    """ListenerView must be neither parallel to ListenerUp nor zero."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.ListenerView = np.array([view])

    with pytest.raises(InputError, match="ListenerView"):
        ea.read_sofa(build(change))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9, -1e9])
def test_invalid_delays(build: Build, small_head: ea.Head, bad: float) -> None:
    """NaN, and more than one second, are errors."""

    def change(file: netCDF4.Dataset) -> None:
        file["Data.Delay"][3, 1] = bad

    def delays(sofa: sofar.Sofa) -> None:
        sofa.Data_Delay = np.ones((len(small_head), 2))

    with pytest.raises(InputError, match=r"Data\.Delay"):
        ea.read_sofa(edit(build(delays), change))


def test_fractional_delay_keeps_both_tails(build: Build) -> None:
    """An impulse at the start, delayed by half a sample, is a sinc with both tails."""

    def change(sofa: sofar.Sofa) -> None:
        sofa.Data_IR = np.zeros_like(sofa.Data_IR)
        sofa.Data_IR[..., 0] = 1.0
        sofa.Data_Delay = np.array([[0.0, 0.5]])

    delayed = load_sofa(build(change)).responses[0, 1]
    middle = np.argmax(delayed[:-1] + delayed[1:])
    assert middle >= 32
    np.testing.assert_allclose(
        delayed[middle - 31 : middle + 1], delayed[middle + 1 : middle + 33][::-1], atol=1e-3
    )


@pytest.mark.parametrize("name", ["Data.IR", "Data.SamplingRate", "SourcePosition"])
def test_missing_variables_are_rejected(build: Build, name: str) -> None:
    """Missing rates, directions or responses are errors; defaults are not used."""
    path = edit(build(), lambda f: f.renameVariable(name, "Renamed"))
    with pytest.raises(InputError, match=f"has no {name}"):
        ea.read_sofa(path)


@pytest.mark.parametrize("bad", [netCDF4.default_fillvals["f8"], -2e30, np.inf])
def test_fill_values_in_responses_are_rejected(build: Build, bad: float) -> None:
    """Fill values of netCDF are treated as NaN."""
    path = edit(build(), lambda f: f["Data.IR"].__setitem__((7, 0, 3), bad))
    with pytest.raises(InputError, match=r"finite responses.*number 7"):
        ea.read_sofa(path)


def test_fill_values_in_directions_are_rejected(build: Build) -> None:
    """A direction that was never written is an error."""
    fill = netCDF4.default_fillvals["f8"]
    path = edit(build(), lambda f: f["SourcePosition"].__setitem__((7, 0), fill))
    with pytest.raises(InputError, match=r"finite directions.*number 7"):
        ea.read_sofa(path)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("SourcePosition", 7), ("ListenerPosition", 2), ("ListenerView", 2), ("ListenerUp", 2)],
)
def test_inconsistent_numbers_of_positions(build: Build, name: str, rows: int) -> None:
    """There must be one position per response, or one for all."""

    def change(file: netCDF4.Dataset) -> None:
        file.renameVariable(name, "Old")
        file.createDimension("X", rows)
        fresh = file.createVariable(name, "f8", ("X", "C"))
        fresh[:] = 1.0
        for attribute in file["Old"].ncattrs():
            fresh.setncattr(attribute, file["Old"].getncattr(attribute))

    with pytest.raises(InputError, match=f"one {name} per response, got {rows}"):
        ea.read_sofa(edit(build(), change))


def test_inconsistent_numbers_of_delays(build: Build) -> None:
    """There must be one delay per response, or one per ear."""

    def change(file: netCDF4.Dataset) -> None:
        file.renameVariable("Data.Delay", "Old")
        file.createDimension("X", 7)
        file.createVariable("Data.Delay", "f8", ("X", "R"))[:] = 0.0

    with pytest.raises(InputError, match=r"Data\.Delay"):
        ea.read_sofa(edit(build(), change))


def test_positions_with_two_columns_are_rejected(build: Build, small_head: ea.Head) -> None:
    """Azimuth and elevation without distance are an error."""

    def change(file: netCDF4.Dataset) -> None:
        file.renameVariable("SourcePosition", "Old")
        file.createDimension("X", 2)
        fresh = file.createVariable("SourcePosition", "f8", ("M", "X"))
        fresh[:] = small_head.directions
        fresh.Type, fresh.Units = "spherical", "degree, degree"

    with pytest.raises(InputError, match=r"SourcePosition.*three columns"):
        ea.read_sofa(edit(build(), change))


def test_latin_1_text_is_read(build: Build) -> None:
    """Text that is not UTF-8 is read as latin-1, with a warning."""

    def change(file: netCDF4.Dataset) -> None:
        file.setncattr("Title", np.bytes_("TH Köln".encode("latin-1")))
        file.setncattr("License", "© CC0")

    with pytest.warns(ea.EaratlasWarning, match=r"not UTF-8, read as latin-1: Title\)"):
        head = ea.read_sofa(edit(build(), change))
    assert head.provenance.startswith("TH Köln")
    assert head.licence == "© CC0"


def test_all_violations_are_reported(build: Build) -> None:
    """The warning mentions both the encoding and the missing attribute."""

    def change(file: netCDF4.Dataset) -> None:
        file.setncattr("Title", np.bytes_("TH Köln".encode("latin-1")))
        file.delncattr("RoomType")

    path = edit(build(), change)
    with pytest.warns(ea.EaratlasWarning, match=r"read as latin-1: Title; .*RoomType.*\)\. Its"):
        ea.read_sofa(path)


def test_upper_case_ending(build: Build, small_head: ea.Head) -> None:
    """HEAD.SOFA is read, too."""
    path = build()
    assert_same(ea.open_head(path.rename(path.with_name("HEAD.SOFA"))), small_head)


def test_mirroring_depends_on_low_elevations_only(build: Build, small_head: ea.Head) -> None:
    """Sources above 45 degrees of elevation do not swap the ears."""
    high = small_head.directions[:, 1] > 45

    def change(sofa: sofar.Sofa) -> None:
        sofa.Data_IR[high] = sofa.Data_IR[high][:, ::-1] ** 3 * 1e-3
        sofa.Data_IR[high & (small_head.directions[:, 0] > 0), 0] *= 1e-9

    path = build(change)
    with netCDF4.Dataset(path) as file:
        written = np.asarray(file["Data.IR"][:])
    np.testing.assert_allclose(ea.read_sofa(path).responses().samples, written, atol=1e-12)


def test_azimuth_of_the_back_is_plus_180() -> None:
    """Straight behind has the azimuth 180, not -180."""
    np.testing.assert_array_equal(to_directions([[-1.0, -0.0, 0.0], [-1.0, 0.0, 0.0]])[:, 0], 180)
