"""Jobs: captioning and feature extraction of any number of images, in shards, by one engine, resumed after a stop."""

from legenda.jobs.engine import run_job
from legenda.jobs.job import Job, JobStats, open_job
from legenda.jobs.work import ExtractionReport, extract_store

__all__ = ["ExtractionReport", "Job", "JobStats", "extract_store", "open_job", "run_job"]
