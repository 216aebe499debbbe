"""`legenda push`: upload a run to Hugging Face's hub."""

from pathlib import Path

import tyro

from legenda.config import Config


class PushOptions(Config):
    """Upload the model of a run to Hugging Face's hub, with a model card: scores, data, versions, extractor, license.

    Other commands take the name in place of a run folder: legenda caption photo.jpg --model USER/MODEL. Log in with
    `hf auth login`, or set HF_TOKEN.
    """

    run: tyro.conf.Positional[Path]
    """A run folder; evaluate it before, and the card has its scores."""
    name: tyro.conf.Positional[str]
    """The repository, as USER/MODEL; it is created where it does not exist."""
    license: str | None = None
    """The SPDX identifier of the model's license, such as mit or cc-by-4.0."""
    private: bool = False
    """Create a private repository."""


def run(options: PushOptions) -> None:
    """Upload and print the address."""
    from legenda.evaluation.describe import push_run

    print(push_run(options.run, options.name, license=options.license, private=options.private or None))
