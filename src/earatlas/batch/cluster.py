"""A batch on a Dask cluster: the same work, the same results, on other machines.

In: a `Work`, files, and a `dask.distributed.Client`. Out: (number, `Outcome`) of each, as soon as
it is known. Workers read and write through a folder that all of them see under the same name; the
atlas and the settings are sent to each of them once. What a worker that dies had begun is done by
another: Dask sees to that, up to the number of deaths that it allows a task (3), after which the
file is taken for the cause, and fails alone. If with a worker the last copy of the atlas goes, it
is sent again.

A cluster is not ours to end: who stops asking for outcomes cancels what was not begun; a recording
that a worker is at is finished there.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import earatlas
from earatlas.batch.job import Outcome, Work, done
from earatlas.batch.sidecar import Recipe
from earatlas.errors import InputError, brief, missing_extra
from earatlas.files import output_folder, scratch_folder
from earatlas.threads import one_thread

__all__ = ["connected", "on_cluster"]

_CONNECT_SECONDS = 10
_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_LOOKS, _LOOK_SECONDS = 10, 0.5  # for a file that another machine has just made
_MOST_SENDINGS = 4  # of the atlas: as many deaths as Dask allows a task, and the first


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, such as tcp://10.0.0.5:8786."""
    try:
        from distributed import Client
    except ImportError as error:
        raise missing_extra("cluster", "dask.distributed") from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"scheduler must be the address of a Dask scheduler, got '{address}' "
            f"({brief(str(error))}). Start one with: dask scheduler."
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=_CONNECT_SECONDS)


def on_cluster(
    work: Work, recipe: Recipe, files: Sequence[Path], client: Any
) -> Iterator[tuple[int, Outcome]]:
    """The outcomes in the order in which they are known."""
    _check_workers(client)
    if files:
        _check_sight(work.folder, files, client)
    left = dict(enumerate(files))
    for _ in range(_MOST_SENDINGS):
        for number, outcome in _sent(work, recipe, left, client):
            del left[number]
            yield number, outcome
        if not left:
            return
    for number, file in left.items():
        yield number, Outcome(file, "failed", error="every worker that had it was lost.")


def _check_workers(client: Any) -> None:
    """Refuse a cluster that cannot do it."""
    try:
        versions = client.run(_version)
    except Exception as error:  # whatever keeps a worker from importing this
        raise InputError(
            f"workers must have earatlas {earatlas.__version__}, got one that cannot import it "
            f"({brief(str(error))}). Install the same version for all of them."
        ) from error
    if not versions:
        raise InputError(
            f"cluster must have workers, got none at {client.scheduler.address}. Start one with: "
            "dask worker ADDRESS --nthreads 1."
        )
    for worker, version in versions.items():
        if version != earatlas.__version__:
            raise InputError(
                f"workers must have earatlas {earatlas.__version__}, got {version} at {worker}. "
                "Install the same version for all of them."
            )


def _version() -> str:
    return earatlas.__version__


def _check_sight(folder: Path, files: Sequence[Path], client: Any) -> None:
    """Refuse workers that do not see the folders: one would write its results where it is."""
    there = [*{file.parent: file for file in files if file.exists()}.values()]
    with output_folder(folder), scratch_folder(folder) as mark:
        for worker, unseen in client.run(_unseen, [mark, *there]).items():
            if unseen is not None:
                raise InputError(
                    f"workers must see the folder '{unseen}' under that name, got none at {worker}."
                    " Take a folder that all machines share."
                )


def _unseen(files: Sequence[Path]) -> Path | None:
    """The folder of the first file that is not there, also after a while, as shared disks are."""
    for file in files:
        for _ in range(_LOOKS):
            if file.exists():
                break
            time.sleep(_LOOK_SECONDS)
        else:
            return file.parent
    return None


def _sent(
    work: Work, recipe: Recipe, files: dict[int, Path], client: Any
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of what was sent; those that are lost with the atlas are left out."""
    from distributed import KilledWorker, as_completed

    try:
        sent = client.scatter((work, recipe), broadcast=True, hash=False)
    except OSError as lost:  # also of time, and of connections
        raise InputError(
            f"cluster must be there until the end, got none at {client.scheduler.address} "
            f"({brief(str(lost))}). What is done is kept: start it again, and go on with --resume "
            "(resume=True)."
        ) from lost
    given = {client.submit(_ordered, sent, file, pure=False): n for n, file in files.items()}
    try:
        for future in as_completed(given):
            number = given[future]
            if future.status == "finished":
                try:
                    outcome = future.result()
                except CancelledError:  # lost with its worker before it was fetched: sent again
                    continue
                yield number, outcome
            elif future.status == "error":
                error = future.exception()
                if isinstance(error, KilledWorker):
                    reason = "its worker died, and so did those that tried it again."
                else:
                    reason = f"{type(error).__name__}: {brief(str(error))}"
                yield number, Outcome(files[number], "failed", error=reason)
            future.release()
    finally:
        client.cancel([future for future in given if not future.done()])


def _ordered(order: tuple[Work, Recipe], file: Path) -> Outcome:
    _keep_memory()
    with one_thread():  # a worker has as many as it was given
        return done(*order, file)


@cache
def _keep_memory() -> None:
    """Let a worker keep some of the memory that it is done with, as every other process does.

    Dask has the C library give it back at once (MALLOC_TRIM_THRESHOLD_), and whoever works on many
    arrays asks for it again: 0.87 CPU seconds instead of 0.49 for a recording of a second.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM, 256 << 20)
        library.mallopt(_MMAP, 32 << 20)  # the most that there can be
