"""Jobs: a function over any number of images, in shards, by one engine, resumed after a stop."""

from legenda.images.shards import Job, JobStats, open_job
from legenda.jobs.engine import run_job

__all__ = ["Job", "JobStats", "open_job", "run_job"]
