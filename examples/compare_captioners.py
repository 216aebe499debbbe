"""Caption the same images with several models: runs of Legenda, and hf:MODEL of transformers.

python examples/compare_captioners.py photo.jpg photo hf:Salesforce/blip-image-captioning-base
"""

from pathlib import Path

import tyro

import legenda


def main(image: Path, models: list[str]) -> dict[str, str]:
    """Return and print the caption of each model."""
    captions = {name: legenda.open(name).caption(image).text for name in models}
    for name, caption in captions.items():
        print(f"{name}: {caption}")
    return captions


if __name__ == "__main__":
    tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
