"""`legenda caption --engine ray`: captions of any number of images, in shards, with many processes."""

import time
from dataclasses import replace
from pathlib import Path

from legenda.cli._caption_options import CaptionOptions
from legenda.cli.progress import progress_bar
from legenda.errors import ConfigError, DataError
from legenda.plugins import plugin_files


def caption_with_ray(options: CaptionOptions) -> None:
    """Caption into shards in the folder `options.out`; see `legenda.scale.job` for its files.

    Raise ConfigError for options that exclude each other, and DataError at the end where images failed.
    """
    if options.out is None:
        raise ConfigError("--engine ray writes many files; name a folder for them with --out")
    if options.out.is_file():
        raise ConfigError(f"{options.out} is a file; --engine ray needs a folder for --out")
    if options.output_format != "text" or options.save_attention is not None:
        raise ConfigError("--engine ray writes JSON lines only; leave out --format and --save-attention")
    if ":" in options.device:
        raise ConfigError(f"--engine ray assigns the GPUs itself; use --device cuda, not {options.device}")
    from legenda.scale.ray_engine import Work, caption_shards, ray_cluster, require_ray

    require_ray()
    from legenda.evaluation.runs import load_captioner_run
    from legenda.locks import locked
    from legenda.scale.job import collect_stats, fingerprint, open_job

    extractor = _absolute(options.extractor)
    run = load_captioner_run(options.model, replace(options, device="cpu", precision="float32"))
    settings = {
        "model": fingerprint(run.folder),
        "extractor": run.resolve_extractor(extractor).name,
        "precision": options.precision,
        **options.settings(),
        "num_captions": options.num_captions,
    }
    if options.do_sample:
        settings["batch_size"] = options.batch_size  # the samples depend on it
    rest = (
        options.select(),
        options.num_captions,
        options.batch_size,
        plugin_files(),
        options.values_of("ignore_extractor_mismatch", "allow_download"),
    )
    with locked(options.out):
        with progress_bar("listing images"):
            job = open_job(
                options.out, options.images, settings, shard_size=options.shard_size, allow_urls=options.allow_urls
            )
        work = Work(job, run.folder.resolve(), extractor, options.device, options.precision, *rest)
        with ray_cluster(options.workers), progress_bar("captioning images") as update:
            start = time.perf_counter()
            stats = collect_stats(job, caption_shards(work, options.workers), update)
            seconds = time.perf_counter() - start
    captioned = stats.images - stats.cached
    print(
        f"{stats.images} images in {stats.shards} shards of {options.out}, {stats.failed} of them failed; {captioned} "
        f"by this call in {seconds:.0f} s, {captioned / seconds:.1f} images/s"
    )
    if stats.failed:
        raise DataError(
            f"{stats.failed} of {stats.images} images could not be captioned; see the lines with an error in "
            f"{options.out}"
        )


def _absolute(extractor: str | None) -> str | None:
    """Return the absolute path of an extractor's file, for workers in other folders; other names unchanged."""
    return str(Path(extractor).resolve()) if extractor is not None and Path(extractor).is_file() else extractor
