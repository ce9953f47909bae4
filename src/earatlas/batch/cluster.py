"""Run a batch on a Dask cluster.

The inputs are a `BatchJob`, files and a `dask.distributed.Client`. The outputs are pairs (index,
`Outcome`), each as soon as it is known; the results equal those of a local run. Workers read and
write through a folder that all of them see under the same path. The atlas and the settings are sent
to each worker once. If a worker dies, Dask moves its files to another worker; after the number of
deaths that Dask allows per task (3), the file is reported as failed. If the last copy of the atlas
is lost with a worker, it is sent again.

The cluster is not shut down. When the caller stops iterating, files that have not started are
cancelled, and recordings in progress are finished by their workers.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import earatlas
from earatlas.batch.job import BatchJob, Outcome, process_file
from earatlas.batch.sidecar import Recipe
from earatlas.code_hash import package_hash
from earatlas.errors import InputError, SettingHint, abbreviate, missing_extra
from earatlas.files import output_folder, scratch_folder
from earatlas.threads import single_threaded

__all__ = ["cluster_client", "run_on_cluster"]


# Evidence: docs/figures/settings/batch.md, "cluster".
@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Timeouts and repetitions of a batch on a cluster."""

    connect_seconds: float = 10  # timeout of connecting to the scheduler
    visibility_tries: int = 10  # checks whether a worker sees a file
    visibility_seconds: float = 0.5  # between two checks
    max_broadcasts: int = 4  # of the atlas: the first, and one per worker death that Dask allows


_CLUSTER = ClusterSettings()


@contextmanager
def cluster_client(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at an address such as tcp://10.0.0.5:8786."""
    try:
        from distributed import Client
    except ImportError as error:
        raise missing_extra("cluster", "dask.distributed") from error
    try:
        client = Client(address, timeout=_CLUSTER.connect_seconds)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"scheduler must be the address of a Dask scheduler, got '{address}' "
            f"({abbreviate(str(error))}). Start one with: dask scheduler."
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=_CLUSTER.connect_seconds)


def run_on_cluster(
    job: BatchJob, recipe: Recipe, files: Sequence[Path], client: Any
) -> Iterator[tuple[int, Outcome]]:
    """Yield (index, outcome) of each file in the order of completion."""
    _check_workers(client)
    if files:
        _check_shared_folders(job.folder, files, client)
    pending = dict(enumerate(files))
    for _ in range(_CLUSTER.max_broadcasts):
        for number, outcome in _submit_all(job, recipe, pending, client):
            del pending[number]
            yield number, outcome
        if not pending:
            return
    for number, file in pending.items():
        yield number, Outcome(file, "failed", error="every worker that processed it was lost.")


def _check_workers(client: Any) -> None:
    """Raise InputError if the cluster has no workers, or workers with other code of earatlas."""
    try:
        versions = client.run(_version)
    except Exception as error:  # any reason why a worker cannot import earatlas
        raise InputError(
            f"workers must have earatlas {_version()}, got one that cannot import it "
            f"({abbreviate(str(error))}). Install the same version on all workers."
        ) from error
    if not versions:
        raise InputError(
            f"cluster must have workers, got none at {client.scheduler.address}. Start one with: "
            "dask worker ADDRESS --nthreads 1."
        )
    for worker, version in versions.items():
        if version != _version():
            raise InputError(
                f"workers must have earatlas {_version()}, got {version} at {worker}. "
                "Install the same version on all workers, and restart workers that were started "
                "before."
            )


def _version() -> str:
    """Return version and hash of the code, which may change without a new version."""
    return f"{earatlas.__version__} (code {package_hash()})"


def _check_shared_folders(folder: Path, files: Sequence[Path], client: Any) -> None:
    """Raise InputError if a worker does not see the input and output folders under their paths."""
    inputs = [*{file.parent: file for file in files if file.exists()}.values()]
    with output_folder(folder), scratch_folder(folder) as probe:
        for worker, missing in client.run(_first_missing_folder, [probe, *inputs]).items():
            if missing is not None:
                raise InputError(
                    f"workers must see the folder '{missing}' under this path, got none at "
                    f"{worker}. Use a folder that all machines share."
                )


def _first_missing_folder(files: Sequence[Path]) -> Path | None:
    """Return the folder of the first file that does not exist, also after waiting, or None."""
    for file in files:
        for _ in range(_CLUSTER.visibility_tries):
            if file.exists():
                break
            time.sleep(_CLUSTER.visibility_seconds)
        else:
            return file.parent
    return None


def _submit_all(
    job: BatchJob, recipe: Recipe, files: dict[int, Path], client: Any
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of the submitted files, without those that are lost with the atlas."""
    from distributed import KilledWorker, as_completed

    try:
        payload = client.scatter((job, recipe), broadcast=True, hash=False)
    except OSError as lost:  # includes timeouts and lost connections
        raise InputError(
            f"The connection to the cluster at {client.scheduler.address} was lost "
            f"({abbreviate(str(lost))}). Finished results are kept: start the cluster again and "
            "resume.",
            hint=SettingHint("resume=True", "--resume"),
        ) from lost
    futures = {
        client.submit(_process_on_worker, payload, file, pure=False): n for n, file in files.items()
    }
    try:
        for future in as_completed(futures):
            number = futures[future]
            if future.status == "finished":
                try:
                    outcome = future.result()
                except CancelledError:  # lost with its worker before it was fetched
                    continue
                yield number, outcome
            elif future.status == "error":
                error = future.exception()
                if isinstance(error, KilledWorker):
                    reason = "its worker died, and so did the workers that tried it again."
                else:
                    reason = f"{type(error).__name__}: {abbreviate(str(error))}"
                yield number, Outcome(files[number], "failed", error=reason)
            future.release()
    finally:
        client.cancel([future for future in futures if not future.done()])


def _process_on_worker(payload: tuple[BatchJob, Recipe], file: Path) -> Outcome:
    _keep_memory()
    with single_threaded():  # Dask decides how many threads a worker has
        return process_file(*payload, file)


@cache
def _keep_memory() -> None:
    """Let a worker keep freed memory for reuse, as other processes do.

    Dask makes the C library return freed memory at once (MALLOC_TRIM_THRESHOLD_), which slows down
    code that allocates many arrays.
    """
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        library = ctypes.CDLL(None)
        library.mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD of malloc.h, bytes
        library.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, whose maximum this is
