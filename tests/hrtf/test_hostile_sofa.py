"""Malicious and damaged SOFA files give an InputError, and the next file is read."""

import base64
import os
import resource
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import netCDF4
import numpy as np
import pytest
from fuzz_hdf5 import HOSTILE_CHANGES

from earatlas import fork_server
from earatlas.errors import InputError
from earatlas.hrtf import sofa_subprocess
from earatlas.hrtf.sofa import load_sofa, read_sofa
from earatlas.hrtf.sofa_file import read_sofa_file

Edit = Callable[[netCDF4.Dataset], object]

# A scalar DIMENSION_LIST of integers, on which netCDF-C 4.9 reads out of bounds.
_CRASHING_FILE = zlib.decompress(
    base64.b85decode(
        "c-rk)O-$2J9RIg<P(~RONBD?|)p#&Sma$F4L4?_LY;kO+BOW|BiY=jW>&RBPXyQRGB%Zh#qE`utH{w~3+%)mxUE<e)3y"
        "H=H_VvBDFSY|J=%K%CYx~~&fBydOHT$n6<B1;cu$Sd|pg16SHH4o-Wc<mdN6IGS3M*{07n~99RFg<Eyeu$i-tR}hlN??"
        "hr<OXZHbEG76oMaku(js0iI`L}S9H@dN@fMl*pukX+TWZ}Tq@{^vaTl#y`UwPl+qDE(hPM6n3+9#TOHdU%x*aD_lz@)v"
        "z}!bh9$G~$_0?er_Y}wf+7s?F!0E}^Ek0^UK|Sy;`Qr9uK%nfU}vOVE`-ZC!VVmvl#b<cPE3AcKAxJ9Gr3eYlg~-9v<$"
        ")>I}lsIg9S3N8QEDsMb^(Q8Wqw0sG_M`QamAQMo~8_cD}^<WlJ<mR&8oUEgR~5K@W-)VL%SCwtgQ7NPj+~TlchuXxu0o"
        "8u)prW`M1-lwSSt6z35BLJrrDKZn@RV^VmFwAhXkxl_PCID}8TpSQA7@+S3~ZR<65;ybCtYjrw4K8z?x$8l5r_1)a{!@"
        "O~nuOsqyap;72i+KKkH?|FLG4pj2<s6%MLC&BX^hhEn39V%&^Np*?URs{-Iexw((06xutIAi@;frgr&zhdu)_jVSfDiX"
        "6h;~Etz@GN_96m>ChyL?voR2RZt-0mebDP3812!pv8Yxn#RMrerwe(6OH7yDc$To8V=x*L;_jk5yd_CyIqeaTsFy@P@>"
        "Wr(F8cZo0o|=ZWuKatXf$wvSGSu@qT2@hHnt@(B0=}*k)2ZAnG&oNkMQ{v+;kU55|DzvyM5~SJWRwUYQIK(k`EZ5hGt#"
        "YcX-O|zhK}Ec7f8NV^fIceiSVfDBz__q918`<Mi;e(D-+>hI2d}_ziYK~WLnCm@f*645n32~O>a>;PTll0jn{7$gw0-X"
        ";lhOr7cN}5aN)v*3l}b2{A09gi_rh_LIL#yIOv5CYV0U-LRRFAB;&rwRTei5G}Tfox&<&m+5pv77w~>)?E6&P9OPQxq("
        "Qhn`0UO9;Sqh_8R^nmc_f^;N3^;3^KEMM7nyOvvH"
    )
)


@pytest.fixture(scope="module")
def valid_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid file with twelve directions and eight samples per response."""
    path = tmp_path_factory.mktemp("sofa") / "head.sofa"
    places = np.column_stack([np.arange(12) * 30.0, np.zeros(12), np.ones(12)])
    ears = np.random.default_rng(3).normal(size=(12, 2, 8))
    with netCDF4.Dataset(path, "w") as file:
        file.SOFAConventions, file.DataType = "SimpleFreeFieldHRIR", "FIR"
        for name, size in (("M", 12), ("R", 2), ("N", 8), ("C", 3), ("I", 1)):
            file.createDimension(name, size)
        for name, dimensions, values in (
            ("Data.IR", "MRN", ears),
            ("Data.SamplingRate", "I", [48000.0]),
            ("Data.Delay", "IR", [[0.0, 0.0]]),
            ("SourcePosition", "MC", places),
        ):
            file.createVariable(name, "f8", tuple(dimensions))[:] = values
        file["SourcePosition"].Type, file["SourcePosition"].Units = "spherical", "degree"
    return path


@pytest.fixture
def change(valid_file: Path, tmp_path: Path) -> Callable[[Edit], Path]:
    """Return a function that edits a copy of the valid file."""

    def changed(edit: Edit) -> Path:
        path = shutil.copy(valid_file, tmp_path / "x.SOFA")  # sofar does not verify this ending
        with netCDF4.Dataset(path, "a") as file:
            edit(file)
        return Path(path)

    return changed


@pytest.fixture
def new_reader() -> Iterator[None]:
    """Use a new reading process during the test."""
    sofa_subprocess.SERVER.end()
    yield
    sofa_subprocess.SERVER.end()


def test_subprocess_returns_the_contents_of_the_file(valid_file: Path) -> None:
    """All arrays, the rate and the attributes are equal."""
    remote, local = (
        load_sofa(shutil.copy(valid_file, valid_file.with_suffix(".SOFA"))),
        read_sofa_file(valid_file),
    )
    np.testing.assert_array_equal(remote.directions, local.directions)
    np.testing.assert_array_equal(remote.responses, local.responses)
    assert (remote.rate, remote.attributes) == (local.rate, local.attributes)
    assert local.violation  # verified in both processes: attributes are missing


def test_crash_of_the_library_is_an_input_error(tmp_path: Path, valid_file: Path) -> None:
    """The reading process dies and is restarted for the next file."""
    (tmp_path / "x.SOFA").write_bytes(_CRASHING_FILE)
    for _ in range(2):
        with pytest.raises(InputError, match="crashes the library that reads such files"):
            load_sofa(tmp_path / "x.SOFA")
    assert len(load_sofa(shutil.copy(valid_file, tmp_path / "y.SOFA")).directions) == 12


@pytest.mark.usefixtures("new_reader")
def test_timeout_is_an_input_error(valid_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor time of the reading process is limited."""
    endless = "def read(path):\n while True: pass\ns.read_sofa_file = read\n" + (
        "s.LIMITS = dataclasses.replace(s.LIMITS, seconds=0)"
    )
    monkeypatch.setattr(fork_server, "_START", _patched_reader(endless))
    with pytest.raises(InputError, match="takes more than 10 s"):
        load_sofa(valid_file)


def _patched_reader(change: str) -> str:
    """Return the code of a reader whose module `s` is changed."""
    modules = "import time, dataclasses, earatlas.hrtf.sofa_subprocess as s"
    return fork_server._START.replace("serve(*", f"\n{modules}\n{change}\nserve(*")


@pytest.mark.usefixtures("new_reader")
def test_waiting_reader_is_killed(valid_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the clock is limited, too, for files that wait without computing."""
    change = "s.read_sofa_file = lambda path: time.sleep(600); " + (
        "s.LIMITS = dataclasses.replace(s.LIMITS, seconds=0, wall_factor=1)"
    )
    monkeypatch.setattr(fork_server, "_START", _patched_reader(change))
    with pytest.raises(InputError, match="takes more than 10 s"):
        load_sofa(valid_file)


@pytest.mark.usefixtures("new_reader")
def test_reader_keeps_no_memory(
    valid_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that a file has left behind does not add up over files."""
    path = shutil.copy(valid_file, tmp_path / "y.SOFA")
    change = "read = s.read_sofa_file; kept = []; " + (
        "s.read_sofa_file = lambda path: (kept.append(b'x' * (40 << 20)), read(path))[1]"
    )
    monkeypatch.setattr(fork_server, "_START", _patched_reader(change))
    sizes = []
    for _ in range(3):
        assert len(load_sofa(path).directions) == 12
        reader = sofa_subprocess.SERVER.process
        assert reader is not None
        pages = int(Path(f"/proc/{reader.pid}/statm").read_text().split()[1])
        sizes.append(pages * resource.getpagesize())
    assert sizes[-1] - sizes[0] < 20 << 20


def test_file_that_was_repaired_in_place(valid_file: Path, tmp_path: Path) -> None:
    """The library may keep a refused file open; the next reading must not see its old contents."""
    path, blob = tmp_path / "x.SOFA", valid_file.read_bytes()
    for change in HOSTILE_CHANGES.values():
        change(Path(shutil.copy(valid_file, path)), tmp_path / "missing")
        with pytest.raises(InputError):
            load_sofa(path)
        path.write_bytes(blob)
        assert len(load_sofa(path).directions) == 12


@pytest.mark.parametrize("name", HOSTILE_CHANGES)
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_references_to_other_files_are_refused(
    valid_file: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Neither another file nor a pipe, which would block, becomes the responses of a head."""
    path, other = tmp_path / "x.SOFA", tmp_path / "other"
    if kind == "file":
        shutil.copy(valid_file, other)
    else:
        os.mkfifo(other)
    shutil.copy(valid_file, path)
    HOSTILE_CHANGES[name](path, other)
    with pytest.raises(InputError, match="must contain its own data and nothing else, got"):
        load_sofa(path)


@pytest.mark.usefixtures("new_reader")
def test_reader_under_a_memory_limit(valid_file: Path, tmp_path: Path) -> None:
    """A limit that the user has set (`ulimit`) is not raised, and does not stop the reader."""
    path = shutil.copy(valid_file, tmp_path / "y.SOFA")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (100, 100)); "
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); "
        "from earatlas.hrtf.sofa_subprocess import _limit_resources; "
        "_limit_resources(10**9); print(resource.getrlimit(resource.RLIMIT_AS))"
    )
    limits = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert limits.stdout == f"({3 << 30}, {3 << 30})\n", limits.stderr
    assert len(load_sofa(path).directions) == 12


def test_interrupted_request(
    valid_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partial response is not read as the response to the next request."""
    path = shutil.copy(valid_file, tmp_path / "y.SOFA")
    with monkeypatch.context() as patch:
        interrupt = Mock(side_effect=KeyboardInterrupt)
        patch.setattr(fork_server.Connection, "_receive_array", interrupt)
        with pytest.raises(KeyboardInterrupt):
            load_sofa(path)
    assert len(load_sofa(path).directions) == 12


@pytest.mark.usefixtures("new_reader")
def test_killed_reader_is_restarted(valid_file: Path, tmp_path: Path) -> None:
    """A process that was killed between two files is replaced, and no file is lost."""
    path = shutil.copy(valid_file, tmp_path / "y.SOFA")
    load_sofa(path)
    assert sofa_subprocess.SERVER.process is not None
    os.kill(sofa_subprocess.SERVER.process.pid, signal.SIGKILL)
    with ThreadPoolExecutor(4) as threads:
        heads = list(threads.map(load_sofa, [path] * 4))
    assert [len(head.directions) for head in heads] == [12] * 4


def _typed(make: Callable[[netCDF4.Dataset], Any]) -> Edit:
    """Return an edit that gives SourcePosition another type."""

    def edit(file: netCDF4.Dataset) -> None:
        file.renameVariable("SourcePosition", "old")
        new = file.createVariable("SourcePosition", make(file), ("M", "C"))
        new.Type = "spherical"

    return edit


def _huge(file: netCDF4.Dataset) -> None:
    file.createDimension("huge", 1 << 31)
    file.createVariable("more", "f8", ("huge",), zlib=True)


def _delay(file: netCDF4.Dataset) -> None:
    file["Data.Delay"][:] = [[0.0, 48000.0]]
    file.renameVariable("Data.IR", "old")
    file.createDimension("many", 200)
    file.renameVariable("SourcePosition", "places")
    file.createVariable("Data.IR", "f8", ("many", "R", "N"))[:] = 1.0
    file.createVariable("SourcePosition", "f8", ("many", "C"))[:] = 1.0
    file["SourcePosition"].Type = "cartesian"


def _rate(value: float) -> Edit:
    return lambda file: file["Data.SamplingRate"].__setitem__(slice(None), value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_typed(lambda file: "S1"), "SourcePosition must contain numbers, got"),
        (_typed(lambda file: str), "SourcePosition must contain numbers, got"),
        (_typed(lambda file: file.createCompoundType(np.dtype([("x", "f8")]), "pair")),
         "SourcePosition must contain numbers, got"),
        (_typed(lambda file: file.createVLType(np.float64, "ragged")), "cannot be"),
        (lambda file: file["Data.IR"].setncattr("valid_max", -1e9), "missing values in 12 of 12"),
        (_rate(1e12), r"from 1000 Hz to 1 MHz, got 1e\+12 Hz"),
        (_rate(3.0), "from 1000 Hz to 1 MHz, got 3 Hz"),
        (_huge, "need much more memory"),
        (_delay, "need much more memory"),
    ],
)  # fmt: skip
def test_inconsistent_files_are_rejected(
    change: Callable[[Edit], Path], edit: Edit, words: str
) -> None:
    """Wrong types, valid ranges, sampling rates and sizes are detected."""
    with pytest.raises(InputError, match=words):
        load_sofa(change(edit))


def test_damaged_attributes_raise_only_input_errors(valid_file: Path, tmp_path: Path) -> None:
    """netCDF4 raises errors of many types for damaged names and values."""
    blob, path = valid_file.read_bytes(), tmp_path / "x.SOFA"
    start = blob.index(b"SOFAConventions")
    for place in range(start - 16, start + 48):
        path.write_bytes(blob[:place] + bytes([blob[place] ^ 0x80]) + blob[place + 1 :])
        with suppress(InputError):
            load_sofa(path)


def test_file_names_that_are_not_utf8(valid_file: Path, tmp_path: Path) -> None:
    """The name of the head contains the escaped bytes."""
    path = Path(shutil.copy(valid_file, tmp_path / os.fsdecode(b"caf\xe9.sofa")))
    head = read_sofa(path)
    assert len(head) == 12
    assert head.name == "caf\\xe9"
