"""`legenda caption --engine ray`: the shards of a job, captioned by processes that Ray runs here or on a cluster."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.errors import UserError
from legenda.scale.shards import Done, Job, caption_shard, fingerprint, open_job, watch

if TYPE_CHECKING:
    from legenda.cli.caption import Options

_BLOCKS = 256
_BLOCKS_OF_A_WORKER = 8
"""Ray gets the shards in so many pieces, of which its driver remembers each: none of these grows with the pictures."""


_STARTS = 3
"""Ray gives a busy machine half a minute to start, which may be too little once."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_DATA_LOG_LEVEL": "ERROR",
}
"""What Ray is told where the user's environment does not say."""


@dataclass(frozen=True)
class Work:
    """What a worker needs to caption shards of a job."""

    job: Job
    run: Path
    extractor: str | None
    beam_size: int
    captions: int
    batch_size: int


def caption_with_ray(options: "Options") -> None:
    """Captions into the shards of the folder `options.out`; see `legenda.scale.shards` for what it holds.

    Raises UserError for options that do not go together, and at the end when some pictures are broken.
    """
    if options.out is None:
        raise UserError("--engine ray writes many files; name a folder for them with --out")
    if options.out.is_file():
        raise UserError(f"{options.out} is a file; --engine ray needs a folder for --out")
    if options.form != "text" or options.attention is not None:
        raise UserError("--engine ray writes JSON lines and nothing else; leave out --format and --attention")
    if options.workers < 1 or options.shard_size < 1:
        raise UserError("--workers and --shard-size must be 1 or more")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray.data  # noqa: F401 - whether the extra is there
    except ImportError as error:
        raise UserError(f"{error.name} is missing; install it with pip install 'legenda[ray]'") from error
    from legenda.cli.progress import progress_bar
    from legenda.evaluation.runs import load_captioner_run

    extractor = _absolute(options.extractor)
    settings = {
        "model": fingerprint(options.model),
        "extractor": load_captioner_run(options.model).extractor(extractor).name,
        "beam_size": options.beam_size,
        "captions": options.captions,
    }
    with progress_bar("listing pictures"):
        job = open_job(
            options.out,
            options.pictures,
            settings,
            shard_size=options.shard_size,
            allow_urls=options.allow_urls,
        )
    run = options.model.resolve()
    work = Work(job, run, extractor, options.beam_size, options.captions, options.batch_size)
    with _cluster(options.workers), progress_bar("captioning pictures") as show:
        began = time.perf_counter()
        totals = watch(job, caption_shards(work, options.workers), show)
        seconds = time.perf_counter() - began
    new = totals.pictures - totals.earlier
    print(
        f"{totals.pictures} pictures in {totals.shards} shards of {options.out}, {totals.broken} of them broken; "
        f"{new} by this call in {seconds:.0f} s, {new / seconds:.1f} a second"
    )
    if totals.broken:
        raise UserError(
            f"{totals.broken} of {totals.pictures} pictures could not be captioned; the lines with an error in "
            f"{options.out} say why"
        )


def _absolute(extractor: str | None) -> str | None:
    """An extractor's file as workers in other folders find it; other names as they are."""
    return str(Path(extractor).resolve()) if extractor is not None and Path(extractor).is_file() else extractor


@contextmanager
def _cluster(workers: int) -> Iterator[None]:
    """The cluster that is there (that of this process, or the one RAY_ADDRESS names), else one on this machine."""
    import ray

    own = not ray.is_initialized()
    if own:
        start_ray(workers)
    try:
        yield
    finally:
        if own:
            ray.shutdown()


def start_ray(workers: int) -> None:
    """Joins the cluster that RAY_ADDRESS names, else starts one on this machine; UserError when that fails."""
    import ray

    here: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}
    for attempt in range(1, _STARTS + 1):
        try:
            ray.init(logging_level=logging.ERROR, log_to_driver=False, **here)
            return
        except Exception as error:  # Ray has no class of its own for this
            ray.shutdown()
            if attempt == _STARTS:
                raise UserError(
                    f"Ray does not start ({error}); check RAY_ADDRESS and the load of the machine"
                ) from error


def caption_shards(work: Work, workers: int) -> Iterator[Done]:
    """All shards of the job, each when it is there."""
    import ray
    from ray.data import ActorPoolStrategy, DataContext

    there = ray.cluster_resources()
    if there.get("CPU", 0) < workers:
        raise UserError(f"--workers is {workers}, but Ray has {there.get('CPU', 0):.0f} processors; ask for fewer")
    gpus = int(there.get("GPU", 0))
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    pieces = min(work.job.shards, max(_BLOCKS, _BLOCKS_OF_A_WORKER * workers))
    # A worker that dies is started again, and repeats its piece without the shards that are there.
    captioned = ray.data.from_numpy(np.array_split(np.arange(work.job.shards), pieces)).map_batches(
        _Worker,
        batch_size=1,
        compute=ActorPoolStrategy(size=workers),
        fn_constructor_args=(work,),
        num_cpus=1,
        num_gpus=1 / -(-workers // gpus) if gpus else None,
    )
    try:
        for row in captioned.iter_rows():
            yield Done(**row)
    except ray.exceptions.RayError as error:
        raise _told(error) or UserError(f"Ray stopped ({error}); call the same command again to go on") from error


def _told(error: BaseException | None) -> UserError | None:
    """The mistake of the user's that stopped a worker, if that was it; Ray wraps it more than once."""
    from ray.exceptions import RayError

    while error is not None and (isinstance(error, RayError) or not isinstance(error, UserError)):
        error = getattr(error, "cause", None) or error.__cause__
    return error


class _Worker:
    """Loads the model once and captions shards; one thread, and the GPU where Ray lends one."""

    def __init__(self, work: Work) -> None:
        import torch

        from legenda.evaluation.runs import load_captioner_run

        torch.set_num_threads(1)
        self._work, self._opened = work, load_captioner_run(work.run)
        if torch.cuda.is_available():
            self._opened.model.to("cuda")
        self._extractor = self._opened.extractor(work.extractor)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        work = self._work
        done = [caption_shard(work.job, int(shard), self._tell, work.batch_size) for shard in batch["data"]]
        return {field.name: np.array([getattr(one, field.name) for one in done]) for field in fields(Done)}

    def _tell(
        self, pictures: Sequence[Path], broken: list[str]
    ) -> Iterator[tuple[Path, tuple[tuple[str, float], ...]]]:
        from legenda.cli.caption import caption_images

        work = self._work
        return caption_images(
            pictures,
            self._opened,
            self._extractor,
            work.beam_size,
            broken,
            captions=work.captions,
            batch_size=work.batch_size,
        )
