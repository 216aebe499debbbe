"""`legenda extract --engine ray`: features of any number of images, in shards, with many processes."""

from legenda.cli._extract_options import ExtractOptions
from legenda.cli._ray import require_folder, run_job
from legenda.compute import ComputeOptions
from legenda.extractors import FrameSampling
from legenda.jobs.job import Job
from legenda.plugins import plugin_files


def extract_with_ray(options: ExtractOptions, sampling: FrameSampling | None) -> None:
    """Extract into shards; raise ConfigError for options that exclude each other, DataError where images failed."""
    out = require_folder(options)
    from legenda.data.features.identity import extractor_name
    from legenda.extractors.extraction import sampled_identity
    from legenda.extractors.registry import absolute_name, load_extractor
    from legenda.jobs.features import FeatureWork, check_job_ids

    name = absolute_name(options.extractor)
    on_cpu = ComputeOptions(device="cpu", precision=options.precision)
    identity = str(sampled_identity(load_extractor(name, on_cpu, options.num_regions), sampling))

    def make_work(job: Job) -> FeatureWork:
        check_job_ids(job)
        return FeatureWork(
            job=job,
            extractor=name,
            identity=identity,
            num_regions=options.num_regions,
            sampling=sampling,
            device=options.device,
            precision=options.precision,
            batch_size=options.batch_size,
            plugins=plugin_files(),
        )

    medium = "image" if sampling is None else "video"
    # the fingerprint may differ a little between processors; the name has the digests of all files
    run_job(options, out, "features", {"extractor": extractor_name(identity)}, make_work, medium=medium)
