"""SOFA files in the frequency domain, with more than two receivers, and written by this package."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sofar
from head_files import write_responses

import earatlas as ea
from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.angles import great_circle_error, to_vectors
from earatlas.hrtf.head import MeasuredCues
from earatlas.hrtf.sofa_file import read_sofa_file
from earatlas.hrtf.sofa_transfer_functions import responses_from_transfer_functions


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in this process; the subprocess is tested in test_hostile_sofa.py."""
    monkeypatch.setattr("earatlas.hrtf.sofa.read_in_subprocess", read_sofa_file)


def write(path: Path, sofa: sofar.Sofa) -> Path:
    """Write a SOFA file with sofar."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sofar.write_sofa(str(path), sofa)
    return path


def spectral_file(
    path: Path, head: ea.Head, *, first: int = 0, advance_seconds: float = 0.0, points: int = 300
) -> Path:
    """Write the transfer functions of a head, from bin `first` on, as SimpleFreeFieldHRTF.

    With `advance_seconds` the responses start before time 0, as those of simulations do.
    """
    ears = head.responses()
    frequencies = np.arange(points // 2 + 1) * ears.rate / points
    spectra = np.fft.rfft(ears.samples, points)
    spectra *= np.exp(2j * np.pi * frequencies * advance_seconds)
    sofa = sofar.Sofa("SimpleFreeFieldHRTF")
    sofa.N = frequencies[first:]
    sofa.Data_Real, sofa.Data_Imag = spectra.real[..., first:], spectra.imag[..., first:]
    sofa.SourcePosition = np.column_stack([head.directions, np.ones(len(head))])
    return write(path, sofa)


def assert_same_head(found: ea.Head, expected: ea.Head, atol: float = 1e-6) -> None:
    """Assert that directions and cues agree."""
    assert great_circle_error(found.directions, expected.directions).max() < 1e-4
    np.testing.assert_allclose(found.cues(), expected.cues(), atol=atol)


def test_transfer_functions_give_the_responses(tmp_path: Path, small_head: ea.Head) -> None:
    """Transfer functions of all frequencies give the responses, up to a common rotation."""
    path = spectral_file(tmp_path / "x.sofa", small_head)
    found = ea.read_sofa(path).responses()
    assert found.rate == small_head.responses().rate
    padded = np.pad(small_head.responses().samples, ((0, 0), (0, 0), (0, 44)))
    shifts = [np.roll(padded, s, axis=2) for s in range(300)]
    errors = [np.abs(found.samples - shifted).max() for shifted in shifts]
    assert min(errors) < 1e-12


def test_responses_before_time_zero(tmp_path: Path, small_head: ea.Head) -> None:
    """Responses that begin before time 0 have the same cues; none begins at the end."""
    path = spectral_file(tmp_path / "x.sofa", small_head, advance_seconds=0.0006)
    assert_same_head(ea.read_sofa(path), small_head, atol=0.02)


def test_missing_low_frequencies_are_extrapolated(tmp_path: Path, small_head: ea.Head) -> None:
    """A file that begins above 0 Hz has the same cues above the missing bins."""
    path = spectral_file(tmp_path / "x.sofa", small_head, first=1)  # 160 Hz
    layout = ea.CueLayout(ild_band_hz=(400.0, 8000.0), ipd_band_hz=(400.0, 2000.0))
    difference = np.abs(ea.read_sofa(path).cues(layout) - small_head.cues(layout))
    assert np.median(difference) < 0.05
    assert np.quantile(difference, 0.99) < 0.6


def test_extrapolation_is_exact_for_a_delay() -> None:
    """A pure delay is restored from the third bin on, for any delay."""
    frequencies = np.linspace(0.0, 24_000.0, 101)
    delay = 2.5e-4 * np.arange(1, 5)[:, None]
    spectra = np.exp(-2j * np.pi * frequencies * delay)
    spectra[:, -1] = spectra[:, -1].real
    full, rate = responses_from_transfer_functions(frequencies, spectra)
    part, _ = responses_from_transfer_functions(frequencies[2:], spectra[:, 2:])
    assert rate == 48_000
    np.testing.assert_allclose(part, full, atol=1e-12)


@pytest.mark.parametrize(
    ("frequencies", "message"),
    [
        (np.geomspace(100, 20_000, 64), "multiples of one distance"),
        (np.arange(64)[::-1] * 100.0, "must increase"),
        (10_000 + np.arange(64) * 100.0, "begin near 0 Hz"),
        (np.array([50.0, 150.0, 250.0]), "multiples of one distance"),
        (np.array([100.0]), "must increase"),
    ],
)
def test_unusable_frequencies(frequencies: np.ndarray, message: str) -> None:
    """Frequencies without a common distance, or far from 0 Hz, are refused."""
    with pytest.raises(InputError, match=message):
        responses_from_transfer_functions(frequencies, np.ones((2, len(frequencies)), complex))


def test_inconsistent_transfer_functions(tmp_path: Path, small_head: ea.Head) -> None:
    """The error names the file and says what to do."""
    path = tmp_path / "x.sofa"
    sofa = sofar.read_sofa(str(spectral_file(path, small_head)), verbose=False)
    sofa.N = np.geomspace(100, 20_000, len(sofa.N))
    with pytest.raises(InputError, match=r"x\.sofa' cannot be used: The frequencies .* Export"):
        ea.read_sofa(write(path, sofa))


def test_free_field_hrtf_with_emitters(tmp_path: Path, small_head: ea.Head) -> None:
    """FreeFieldHRTF (TF-E) has one emitter per direction."""
    ears = small_head.responses()
    spectra = np.fft.rfft(ears.samples, 256)  # (directions, ears, frequencies)
    sofa = sofar.Sofa("FreeFieldHRTF")
    sofa.N = np.arange(129) * ears.rate / 256
    sofa.Data_Real = np.moveaxis(spectra.real, 0, 2)[None]
    sofa.Data_Imag = np.moveaxis(spectra.imag, 0, 2)[None]
    sofa.EmitterPosition = 1.5 * to_vectors(small_head.directions)
    sofa.EmitterPosition_Type, sofa.EmitterPosition_Units = "cartesian", "metre"
    sofa.SourcePosition = np.zeros((1, 3))
    sofa.SourcePosition_Type, sofa.SourcePosition_Units = "cartesian", "metre"
    assert_same_head(ea.read_sofa(write(tmp_path / "x.sofa", sofa)), small_head, atol=0.02)


@pytest.fixture
def four_receivers(tmp_path: Path, small_head: ea.Head) -> Path:
    """Return a file whose receivers 2 and 3 are the ears; 0 and 1 are nearly the same."""
    ears = small_head.responses()
    sofa = sofar.Sofa("SimpleFreeFieldHRIR")
    other = ears.samples.mean(axis=1, keepdims=True) * [[[1.0], [0.9]]]
    sofa.Data_IR = np.concatenate([other, ears.samples], axis=1)
    sofa.Data_SamplingRate, sofa.Data_Delay = ears.rate, np.zeros((1, 4))
    sofa.ReceiverPosition = np.array([[0.1, 0, 0], [0.1, 0, 0], [0, 0.09, 0], [0, -0.09, 0]])
    sofa.SourcePosition = np.column_stack([small_head.directions, np.ones(len(small_head))])
    return write(tmp_path / "four.sofa", sofa)


def test_receivers_are_chosen(four_receivers: Path, small_head: ea.Head) -> None:
    """Two receivers are chosen as ears; without a choice there is a warning that says how."""
    assert_same_head(ea.read_sofa(four_receivers, receivers=(2, 3)), small_head)
    assert_same_head(ea.open_head(four_receivers, channels=(2, 3)), small_head)
    with pytest.warns(EaratlasWarning, match=r"4 receivers.*receivers=\(2, 3\)"):
        ea.read_sofa(four_receivers)


@pytest.mark.parametrize("receivers", [(0, 0), (2, 4), (-1, 1)])
def test_unknown_receivers(four_receivers: Path, receivers: tuple[int, int]) -> None:
    """Receivers that the file does not have, or the same one twice, are refused."""
    with pytest.raises(InputError, match="two different ones from 0 to 3"):
        ea.read_sofa(four_receivers, receivers=receivers)


def test_written_file_is_valid(tmp_path: Path, small_head: ea.Head) -> None:
    """sofar accepts the file without complaint, and reading it returns the head."""
    path = ea.write_sofa(
        small_head, tmp_path / "out.sofa", distance_metres=1.4, organization="a laboratory"
    )
    sofa = sofar.read_sofa(str(path), verify=True, verbose=False)
    sofa.verify(mode="write")
    assert sofa.GLOBAL_SOFAConventions == "SimpleFreeFieldHRIR"
    assert sofa.GLOBAL_Organization == "a laboratory"
    np.testing.assert_allclose(sofa.SourcePosition[:, 2], 1.4)
    assert sofa.SourcePosition[:, 0].min() >= 0
    head = ea.read_sofa(path)
    np.testing.assert_allclose(head.responses().samples, small_head.responses().samples)
    np.testing.assert_allclose(head.directions, small_head.directions, atol=1e-12)
    assert (head.licence, head.responses().rate) == (small_head.licence, 48_000)
    assert small_head.provenance in head.provenance


def test_calibration_recordings_become_a_sofa_file(
    tmp_path: Path, small_head: ea.Head, run: Callable[..., object]
) -> None:
    """`info --sofa` writes the responses of a table of recordings, and refuses to overwrite."""
    part = small_head.subset(np.arange(0, len(small_head), 20))
    table = write_responses(tmp_path / "head.csv", part)
    out = tmp_path / "head.sofa"
    done = run("info", str(table), "--sofa", str(out), "--json")
    assert json.loads(done.stdout)["sofa"] == str(out)  # type: ignore[attr-defined]
    np.testing.assert_allclose(ea.read_sofa(out).cues(), part.cues(), atol=1e-3)
    assert run("info", str(table), "--sofa", str(out)).returncode == 2  # type: ignore[attr-defined]
    assert run("info", "people", "--sofa", str(out)).returncode == 2  # type: ignore[attr-defined]


def test_interpolated_head(tmp_path: Path) -> None:
    """A head on a coarse grid is close to the simulated one at directions in between."""
    coarse = ea.simulated_head(ea.Sphere().grid(8.0))
    between = np.array([[33.3, 12.0], [-71.0, -20.5], [140.0, 41.0]])
    found = ea.interpolated_head(coarse, between)
    true = ea.simulated_head(between)
    layout = ea.CueLayout(ild_band_hz=(200.0, 3000.0), ipd_band_hz=(200.0, 1000.0))
    nearest = coarse.subset(ea.Sphere().nearest(coarse.directions, between))
    error = np.abs(found.cues(layout) - true.cues(layout)).mean()
    assert 1e-6 < error < 0.5 * np.abs(nearest.cues(layout) - true.cues(layout)).mean()
    assert "interpolated from" in found.provenance
    assert len(ea.read_sofa(ea.write_sofa(found, tmp_path / "x.sofa"))) == 3
    with pytest.raises(InputError, match="near measured ones"):
        ea.interpolated_head(coarse.subset(coarse.directions[:, 1] > 0), [[0.0, -60.0]])


def test_invalid_output(tmp_path: Path, small_head: ea.Head) -> None:
    """Another ending, a distance of zero, and a head without responses are refused."""
    with pytest.raises(InputError, match=r"end in \.sofa"):
        ea.write_sofa(small_head, tmp_path / "x.h5")
    with pytest.raises(InputError, match="must be positive"):
        ea.write_sofa(small_head, tmp_path / "x.sofa", distance_metres=0.0)
    layout = ea.CueLayout()
    noise = ea.Head("n", small_head.directions, MeasuredCues(small_head.cues(layout), layout))
    with pytest.raises(InputError, match="impulse responses"):
        ea.write_sofa(noise, tmp_path / "x.sofa")
    assert list(tmp_path.iterdir()) == []
