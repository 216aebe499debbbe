"""Process the shards of a job with processes that Ray runs on this machine or on a cluster."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from legenda.compute import Precision
from legenda.errors import ConfigError, LegendaError, import_extra
from legenda.jobs.job import Job, ShardResult
from legenda.jobs.shards import ShardTask, process_shard
from legenda.plugins import load_plugin

MAX_CHUNKS = 256
CHUNKS_PER_WORKER = 8
"""Ray gets the shards in at most this many chunks, so that the memory of its driver does not grow with the images."""
MAX_START_ATTEMPTS = 3
"""On a busy machine the first start may exceed Ray's time limit of half a minute."""
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_LOG_LEVEL": "ERROR"}
"""Set for Ray unless the user's environment sets them."""


@dataclass(frozen=True, kw_only=True)
class Work(ABC):
    """What a worker needs to process shards of a job; paths are absolute, those of `plugins` included."""

    job: Job
    device: str
    precision: Precision
    batch_size: int
    plugins: tuple[Path, ...] = ()

    @abstractmethod
    def load(self) -> ShardTask:
        """Load the models; called once in each worker."""


def require_ray() -> None:
    """Import Ray with its settings; raise ConfigError where the extra is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import_extra("ray.data", "ray")


@contextmanager
def ray_cluster(workers: int) -> Iterator[None]:
    """Use the cluster of this process or of RAY_ADDRESS, else run one on this machine."""
    import ray

    start = not ray.is_initialized()
    if start:
        start_ray(workers)
    try:
        yield
    finally:
        if start:
            ray.shutdown()


def start_ray(workers: int) -> None:
    """Connect to the cluster that RAY_ADDRESS names, else start one on this machine; raise ConfigError on failure."""
    import ray

    local: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}
    for attempt in range(1, MAX_START_ATTEMPTS + 1):
        try:
            ray.init(logging_level=logging.ERROR, log_to_driver=False, **local)
            return
        except Exception as error:  # Ray raises errors of many classes
            ray.shutdown()
            if attempt == MAX_START_ATTEMPTS:
                raise ConfigError(
                    f"Ray does not start ({error}); check RAY_ADDRESS and the load of the machine"
                ) from error


def process_shards(work: Work, workers: int) -> Iterator[ShardResult]:
    """Yield the results of all shards of the job, each when it is complete.

    A worker that dies is restarted and repeats its chunk without the complete shards. Raise LegendaError when the
    cluster is too small, for a worker's LegendaError, and when Ray stops.
    """
    import ray
    from ray.data import ActorPoolStrategy, DataContext

    resources = ray.cluster_resources()
    if resources.get("CPU", 0) < workers:
        raise ConfigError(f"--workers is {workers}, but Ray has {resources.get('CPU', 0):.0f} CPUs; ask for fewer")
    gpus = 0 if work.device in ("cpu", "mps") else int(resources.get("GPU", 0))
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    chunks = min(work.job.shards, max(MAX_CHUNKS, CHUNKS_PER_WORKER * workers))
    workers = min(workers, chunks)
    results = ray.data.from_numpy(np.array_split(np.arange(work.job.shards), chunks)).map_batches(
        _Worker,
        batch_size=1,
        compute=ActorPoolStrategy(size=workers),
        fn_constructor_args=(work,),
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


class _Worker:
    """Loads the models once and processes shards, with one thread, and by default on the GPU where Ray assigns one.

    Returns a LegendaError as a result, as Ray prints tracebacks of those that are raised.
    """

    def __init__(self, work: Work) -> None:
        import torch

        torch.set_num_threads(1)
        self._job, self._batch_size = work.job, work.batch_size
        try:
            for file in work.plugins:
                load_plugin(file)
            self._task: ShardTask | LegendaError = work.load()
        except LegendaError as error:
            self._task = error

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[ShardResult | LegendaError]]:
        results = []
        for shard in batch["data"]:
            results.append(self._process(int(shard)))
            if isinstance(results[-1], LegendaError):
                break
        return {"result": results}

    def _process(self, shard: int) -> ShardResult | LegendaError:
        if isinstance(self._task, LegendaError):
            return self._task
        try:
            return process_shard(self._job, shard, self._task, self._batch_size)
        except LegendaError as error:
            return error
