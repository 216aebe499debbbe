"""Jobs: a function over any number of images, in shards, by one engine, resumed after a stop."""

from legenda.jobs.engine import run_job
from legenda.jobs.job import Job, JobStats, open_job

__all__ = ["Job", "JobStats", "open_job", "run_job"]
