"""`legenda caption --engine ray`: captions of any number of images, in shards, with many processes."""

from dataclasses import replace

from legenda.cli._caption_options import CaptionOptions
from legenda.cli._ray import require_folder, run_job
from legenda.errors import ConfigError
from legenda.plugins import plugin_files


def caption_with_ray(options: CaptionOptions) -> None:
    """Caption into shards; raise ConfigError for options that exclude each other, DataError where images failed."""
    if options.output_format != "text" or options.save_attention is not None:
        raise ConfigError("--engine ray writes JSON lines only; leave out --format and --save-attention")
    out = require_folder(options)
    from legenda.evaluation.runs import load_captioner_run
    from legenda.extractors.registry import absolute_name
    from legenda.jobs.captions import CaptionWork
    from legenda.jobs.job import Job, fingerprint

    extractor = None if options.extractor is None else absolute_name(options.extractor)
    run = load_captioner_run(options.model, replace(options, device="cpu", precision="float32", compile=False))
    settings = {
        "model": fingerprint(run.folder),
        "extractor": run.resolve_extractor(extractor).name,
        "precision": options.precision,
        **options.settings(),
        "num_captions": options.num_captions,
    }
    if options.do_sample:
        settings["batch_size"] = options.batch_size  # the samples depend on it

    def make_work(job: Job) -> CaptionWork:
        return CaptionWork(
            job=job,
            run=run.folder.resolve(),
            extractor=extractor,
            device=options.device,
            precision=options.precision,
            search=options.select(),
            num_captions=options.num_captions,
            batch_size=options.batch_size,
            plugins=plugin_files(),
            flags=options.values_of("compile", "ignore_extractor_mismatch", "allow_download"),
        )

    run_job(options, out, "captions", settings, make_work)
