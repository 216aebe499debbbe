"""Run a job: the same worker in this process, in a pool of processes, or in processes of Ray.

A job's files are the same in all three, byte for byte: results depend on the number of threads, so that the threads are
divided among the workers, and a single process with that number of workers takes the same part.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache, partial
from itertools import cycle, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Literal

import numpy as np

from legenda.compute import count_cuda_devices
from legenda.errors import ConfigError, LegendaError, import_extra
from legenda.images.shards import ImageTask, Job, JobStats, process_shard, process_shards
from legenda.registry import load_plugin, plugin_files
from legenda.runtime.captioner import get_num_threads, set_num_threads

EngineName = Literal["local", "pool", "ray"]
"""This process; a pool of processes of this machine; processes that Ray runs on this machine or on a cluster."""
_MAX_RESTARTS = 20
"""Times that a pool is started again without completing a shard."""
_MAX_CHUNKS = 256
_CHUNKS_PER_WORKER = 8
"""Ray gets the shards in at most this many chunks, so that the memory of its driver does not grow with the images."""
_MAX_START_ATTEMPTS = 3
"""On a busy machine the first start may exceed Ray's time limit of half a minute."""
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_LOG_LEVEL": "ERROR"}
"""Set for Ray unless the user's environment sets them."""


Load = Callable[[str], ImageTask]
"""Returns a task with its models on a device; picklable for a pool and for Ray, with absolute paths."""


def run_job(
    job: Job,
    load: Load,
    engine: EngineName = "local",
    workers: int = 1,
    progress: Callable[[int, int], object] = lambda *_: None,
    device: str = "cpu",
) -> JobStats:
    """Process all shards; those of earlier calls are not repeated.

    workers: processes of a pool and of Ray; each of them, or this process, computes with the threads divided by it.
    progress: gets the images done and in total. device: auto, cpu, cuda, cuda:N or mps, or several with commas between,
    for the processes of a pool.
    Raise LegendaError for one of a worker, for a cluster that is too small, and where shards are missing at the end.
    """
    threads = max(1, get_num_threads() // workers)

    def run(advance: Callable[[], object]) -> Iterator[JobStats]:
        if engine == "local":
            return _run_here(job, load, device, threads, advance)
        return (_run_in_pool if engine == "pool" else _run_with_ray)(job, load, device, threads, workers)

    return process_shards(job, run, progress)


_Worker = Callable[[int], JobStats]
"""Processes a shard; see `process_shard`."""


def _start_worker(
    job: Job,
    load: Load,
    device: str,
    threads: int,
    plugins: Sequence[Path] = (),
    advance: Callable[[], object] = lambda: None,
) -> _Worker:
    """Load plugins and models, and return what processes shards with them, with a number of threads."""
    set_num_threads(threads)
    for file in plugins:
        load_plugin(file)
    task = load(device)
    set_num_threads(threads)  # of PyTorch too, which loading may have imported
    return partial(process_shard, job, task, advance=advance)


def _run_here(job: Job, load: Load, device: str, threads: int, advance: Callable[[], object]) -> Iterator[JobStats]:
    before = get_num_threads()
    try:
        yield from map(_start_worker(job, load, device, threads, advance=advance), range(job.shards))
    finally:
        set_num_threads(before)


def _run_in_pool(job: Job, load: Load, device: str, threads: int, workers: int) -> Iterator[JobStats]:
    """Yield the results of shards from processes; where one of them is killed, they are started again."""
    remaining, restarts = deque(range(job.shards)), 0
    while remaining:
        try:
            with _start_pool(job, load, device, threads, workers) as pool:
                shards = iter(tuple(remaining))
                pending = deque(pool.submit(_process_in_pool, number) for number in islice(shards, 2 * workers))
                while pending:
                    result = pending.popleft().result()
                    pending.extend(pool.submit(_process_in_pool, number) for number in islice(shards, 1))
                    remaining.popleft()
                    restarts = 0
                    yield result
        except BrokenProcessPool as error:
            restarts += 1
            if restarts > _MAX_RESTARTS:
                raise LegendaError(
                    f"the processes were killed {restarts} times at shard {remaining[0]} of {job.folder}; check the "
                    "memory of this machine and call the same command again to resume"
                ) from error


@contextmanager
def _start_pool(job: Job, load: Load, device: str, threads: int, workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes that end when this one does, however it ends, or leaves the block by an error.

    They take turns at the devices that are named, or at all CUDA devices.
    """
    context = get_context("spawn")
    devices = context.SimpleQueue()
    names = device.split(",")
    if device in ("auto", "cuda") and (count := count_cuda_devices()):
        names = [f"cuda:{number}" for number in range(count)]
    for assigned in islice(cycle(names), workers):
        devices.put(assigned)
    alive, here = context.Pipe(duplex=False)
    arguments = (alive, devices, job, load, threads, plugin_files())
    pool = ProcessPoolExecutor(workers, context, _start_process, arguments)
    try:
        yield pool
    except BaseException:
        here.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        here.close()
        alive.close()


_get_worker: Callable[[], _Worker]
"""Returns the worker of this process of a pool, made by the first shard so that its errors reach the caller."""


def _start_process(
    alive: Connection, devices: SimpleQueue[str], job: Job, load: Load, threads: int, plugins: Sequence[Path]
) -> None:
    global _get_worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the processes
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, args=(alive,), daemon=True).start()
    device = devices.get()
    _get_worker = cache(lambda: _start_worker(job, load, device, threads, plugins))


def _exit_with_parent(alive: Connection) -> None:
    """End this process when its parent closes the other end or is killed, which would leave it on the device."""
    alive.poll(None)
    os._exit(1)


def _process_in_pool(shard: int) -> JobStats:
    return _get_worker()(shard)


def require_ray() -> None:
    """Import Ray with its settings; raise ConfigError where the extra is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import_extra("ray.data", "ray")


@contextmanager
def ray_cluster(workers: int) -> Iterator[None]:
    """Use the cluster of this process or that of RAY_ADDRESS, else run one on this machine.

    Raise ConfigError where it does not start.
    """
    require_ray()
    import ray

    if ray.is_initialized():
        yield
        return
    local: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}
    for attempt in range(1, _MAX_START_ATTEMPTS + 1):
        try:
            ray.init(logging_level=logging.ERROR, log_to_driver=False, **local)
            break
        except Exception as error:  # Ray raises errors of many classes
            ray.shutdown()
            if attempt == _MAX_START_ATTEMPTS:
                raise ConfigError(
                    f"Ray does not start ({error}); check RAY_ADDRESS and the load of the machine"
                ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _run_with_ray(job: Job, load: Load, device: str, threads: int, workers: int) -> Iterator[JobStats]:
    """Yield the results of shards from Ray's processes.

    A worker that dies is restarted and repeats its chunk without the complete shards.
    """
    with ray_cluster(workers):
        import ray
        from ray.data import ActorPoolStrategy, DataContext

        resources = ray.cluster_resources()
        if resources.get("CPU", 0) < workers:
            raise ConfigError(f"--workers is {workers}, but Ray has {resources.get('CPU', 0):.0f} CPUs; ask for fewer")
        gpus = 0 if device in ("cpu", "mps") else int(resources.get("GPU", 0))
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        chunks = min(job.shards, max(_MAX_CHUNKS, _CHUNKS_PER_WORKER * workers))
        workers = min(workers, chunks)
        results = ray.data.from_numpy(np.array_split(np.arange(job.shards), chunks)).map_batches(
            _RayWorker,
            batch_size=1,
            compute=ActorPoolStrategy(size=workers),
            fn_constructor_args=(job, load, device, threads, plugin_files()),
            num_cpus=1,
            num_gpus=1 / -(-workers // gpus) if gpus else None,
        )
        try:
            for row in results.iter_rows():
                if isinstance(row["result"], LegendaError):
                    raise row["result"]
                yield row["result"]
        except ray.exceptions.RayError as error:
            raise LegendaError(f"Ray stopped ({error}); call the same command again to resume") from error


class _RayWorker:
    """A worker of Ray, by default on the GPU that Ray assigns.

    Returns a LegendaError as a result, as Ray prints tracebacks of those that are raised.
    """

    def __init__(self, *arguments: Any) -> None:
        self._get_worker = cache(lambda: _start_worker(*arguments))

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[JobStats | LegendaError]]:
        results: list[JobStats | LegendaError] = []
        try:
            results.extend(self._get_worker()(int(shard)) for shard in batch["data"])
        except LegendaError as error:
            results.append(error)
        return {"result": results}
