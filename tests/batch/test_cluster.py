"""Batches on a real Dask cluster of two processes, also with dying workers and clients."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import default_signals
from learned_heads import LearnedHeads
from tests_support import refused

import earatlas as ea
from earatlas.batch.cluster import ClusterSettings, _check_shared_folders, cluster_client
from earatlas.batch.sidecar import read_sidecar
from earatlas.files import recover_scratch

Run = Callable[..., subprocess.CompletedProcess[str]]
# Dask warns when its event loops and connections are closed.
pytestmark = pytest.mark.filterwarnings("default")


def start_cluster(workers: int) -> Any:
    """Return a local cluster of single-threaded processes; skip without Dask.

    The processes are forked from one that has imported Dask and earatlas, which takes a second.
    """
    distributed = pytest.importorskip("distributed", reason="dask.distributed is an extra: cluster")
    import dask
    from distributed.utils import get_mp_context

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(["distributed", "earatlas.batch.recordings"])
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    )


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two workers."""
    with start_cluster(2) as cluster, cluster_client(cluster.scheduler_address) as client:
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learned_heads: LearnedHeads) -> Path:
    """An atlas of 24 directions, eight recordings, and their results from one process."""
    folder = tmp_path_factory.mktemp("cluster")
    head = ea.simulated_head([[azimuth, 0.0] for azimuth in np.arange(-180.0, 180.0, 15.0)])
    atlas = learned_heads.learn(head, components=2, rooms=False)
    atlas.save(folder / "ring.atlas")
    (folder / "r").mkdir()
    for n in range(8):
        voices = [ea.synthetic_speech(1.0, seed=2 * n), ea.synthetic_speech(1.0, seed=2 * n + 1)]
        scene = ea.render_scene(head, voices, [(15.0 * (n % 5), 0.0), (-60.0, 0.0)])
        scene.mixture.write(folder / "r" / f"{n}.wav")
    assert {o.status for o in separate_all(folder, folder / "whole", None)} == {"done"}
    return folder


def separate_all(folder: Path, out: Path, client: Any) -> Iterator[ea.Outcome]:
    """Separate each recording into two sources."""
    atlas = ea.Atlas.load(folder / "ring.atlas")
    settings = {"n_sources": 2}
    return ea.map_recordings(
        atlas, folder / "r", out, task="separate", settings=settings, client=client
    )


def sounds(folder: Path) -> dict[str, bytes]:
    """Return the sound files of a folder."""
    return {file.name: file.read_bytes() for file in folder.glob("*.wav")}


def test_cluster_gives_the_same_results_as_one_process(
    client: Any, folder: Path, tmp_path: Path, run: Run
) -> None:
    """Bytes and answers are equal, results are skipped by either, and bad files are reported."""
    (folder / "r" / "bad.wav").write_bytes(b"RIFF")
    try:
        found = {o.file.name: o for o in separate_all(folder, tmp_path, client)}
        assert len(found) == 9
        assert "bad.wav" in str(found.pop("bad.wav").error)
    finally:
        (folder / "r" / "bad.wav").unlink()
    assert sounds(tmp_path) == sounds(folder / "whole")
    for n in range(8):
        contents = [
            json.loads((output / f"{n}.json").read_text())
            for output in (tmp_path, folder / "whole")
        ]
        assert contents[0]["inputs"] == contents[1]["inputs"]
        for name in ("settings", "atlas", "versions"):
            assert contents[0][name] == contents[1][name]
        a, b = ([s["direction"] for s in t["answer"]["sources"]] for t in contents)
        assert a == b
    assert {o.status for o in separate_all(folder, tmp_path, None)} == {"skipped"}
    call = ["separate", folder / "ring.atlas", folder / "r", "-n", 2, "--resume", "--scheduler",
            client.scheduler.address]  # fmt: skip
    first = run(*call, "-o", "deep/out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert sounds(tmp_path / "deep" / "out") == sounds(folder / "whole")
    assert "8 of 8 are done already." in run(*call, "-o", tmp_path / "deep" / "out").stderr


@pytest.mark.parametrize("workers", [2, 1])
def test_files_of_a_dead_worker_are_processed_again(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    """The files of a killed worker are processed by another one or by its successor."""
    with start_cluster(workers) as cluster, cluster_client(cluster.scheduler_address) as client:
        pids = client.run(os.getpid)
        found = []
        for outcome in separate_all(folder, tmp_path, client):
            found.append(outcome)
            if len(found) == 2:
                os.kill(next(iter(pids.values())), signal.SIGKILL)
    assert [o.error for o in found] == [None] * 8
    assert sounds(tmp_path) == sounds(folder / "whole")
    assert list(tmp_path.glob(".earatlas-*")) == []


@pytest.mark.parametrize("lost_part", ["scheduler", "workers"])
def test_lost_cluster_raises_and_can_be_resumed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_part: str
) -> None:
    """The error says how to resume, and resuming without the cluster processes the rest."""
    monkeypatch.setattr("earatlas.batch.cluster._CLUSTER", ClusterSettings(connect_seconds=2))
    with start_cluster(1) as cluster, cluster_client(cluster.scheduler_address) as client:
        outcomes = separate_all(folder, tmp_path, client)
        found = [next(outcomes).status]
        if lost_part == "scheduler":
            cluster.close()
        else:
            cluster.scale(0)
        lost = r"connection to the cluster at tcp:.* was lost.*resume=True.*--resume"
        with pytest.raises(ea.InputError, match=lost):
            found += [outcome.status for outcome in outcomes]
    assert set(found) == {"done"}
    resumed = [outcome.status for outcome in separate_all(folder, tmp_path, None)]
    assert resumed.count("skipped") >= len(found)
    assert sounds(tmp_path) == sounds(folder / "whole")


def test_workers_must_see_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that would write to another disk raise an InputError before the batch starts."""
    monkeypatch.setattr("earatlas.batch.cluster._CLUSTER", ClusterSettings(visibility_tries=1))
    for name in ("here", "there", "there/in"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "in" / "a.wav").touch()

    class Client:
        """A client whose second worker has another disk in place of a folder."""

        def __init__(self, hidden: str) -> None:
            self.hidden = tmp_path / hidden

        def run(self, function: Callable[..., Any], files: list[Path]) -> dict[str, Any]:
            other = [f.parent / "hidden" / f.name if f.parent == self.hidden else f for f in files]
            return {"tcp://a": function(files), "tcp://b": function(other)}

    files = [tmp_path / "there" / "in" / name for name in ("a.wav", "missing.wav")]
    _check_shared_folders(tmp_path / "here", files, Client("elsewhere"))
    for hidden in ("here", "there/in"):
        with pytest.raises(ea.InputError, match="got none at tcp://b"):
            _check_shared_folders(tmp_path / "here", files, Client(hidden))
    assert list((tmp_path / "here").iterdir()) == []


def test_probe_files_are_cleared_after_a_kill(tmp_path: Path) -> None:
    """A probe file that a killed process left is removed by the next writer."""
    killed = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from earatlas.batch.cluster import _check_shared_folders\n"
        "class Client:\n"
        "    def run(self, look, files):\n"
        "        assert look(files) is None\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "_check_shared_folders(Path(sys.argv[1]), [], Client())\n"
    )
    ended = subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    recover_scratch(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_ended_client_cancels_pending_files(
    client: Any, folder: Path, tmp_path: Path, run: Run, name: str
) -> None:
    """The cluster drops pending files and is available for the next batch."""
    call = ["separate", folder / "ring.atlas", folder / "r", "-n", 2, "-o", tmp_path, "--json",
            "--scheduler", client.scheduler.address]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "earatlas", *map(str, call)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, preexec_fn=default_signals,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert "sources" in json.loads(process.stdout.readline())
        process.send_signal(getattr(signal, name))
        process.wait(timeout=60)
        contents = process.stderr.read()
    if name == "SIGTERM":
        assert process.returncode == 128 + signal.SIGTERM
        assert "of 8 recordings are done. Continue with: earatlas separate" in contents
    for sidecar in tmp_path.glob("[0-9].json"):
        read = read_sidecar(sidecar)
        assert read is not None
        assert all(entry.matches(tmp_path / entry.file) for entry in read.outputs)
    resumed = run(*call, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    done = re.search(r"(\d) of 8 are done already\.", resumed.stderr)
    assert done is not None
    assert 1 <= int(done[1]) < 8
    assert sounds(tmp_path) == sounds(folder / "whole")
    assert list(tmp_path.glob(".earatlas-*")) == []


def test_unsuitable_clusters_raise(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No workers, another version or no scheduler raise an InputError before the batch starts."""
    call = ["localize", folder / "ring.atlas", folder / "r", "-o", tmp_path / "o", "--scheduler"]
    with start_cluster(0) as cluster, cluster_client(cluster.scheduler_address) as client:
        with pytest.raises(ea.InputError, match="cluster must have workers, got none"):
            next(separate_all(folder, tmp_path, client))
        cluster.scale(1)
        client.wait_for_workers(1)
        with monkeypatch.context() as patched:
            patched.setattr(ea, "__version__", "9.9")
            with pytest.raises(ea.InputError, match=r"workers must have earatlas 9\.9 .*, got 0"):
                next(separate_all(folder, tmp_path, client))
        # The workers are other processes.
        monkeypatch.setattr("earatlas.batch.cluster.package_hash", lambda: "1234")
        with pytest.raises(ea.InputError, match=r"\(code 1234\), got 0.*restart workers"):
            next(separate_all(folder, tmp_path, client))
    monkeypatch.setattr("earatlas.batch.cluster._CLUSTER", ClusterSettings(connect_seconds=1))
    refused(run(*call, "tcp://127.0.0.1:9"), "scheduler must be the address")
    refused(run(*call, "nonsense://"), "scheduler must be the address")
    assert not (tmp_path / "o").exists()


def test_missing_dask_raises(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("localize", folder / "ring.atlas", folder / "r", "-o", tmp_path / "o",
                 "--scheduler", "tcp://127.0.0.1:9")  # fmt: skip
    refused(result, "dask.distributed", "earatlas[cluster]")
