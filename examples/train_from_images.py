"""Train on images: with the features of a frozen backbone, and with a backbone that is trained too.

python examples/train_from_images.py captions.csv runs/images    # a table of file and caption, images beside it
"""

from pathlib import Path

import tyro

import legenda

BACKBONE = "torchvision:resnet18"
SMALL = {"model": {"dim": 64, "num_heads": 2, "num_layers": 1, "ff_dim": 64}, "training": {"epochs": 1}}


def main(captions: Path, out: Path, backbone: str = BACKBONE, image_size: int = 96) -> dict[str, float]:
    """Return the CIDEr-D of both models on the images that validate."""
    scores = {}
    for name, trained in (("frozen", False), ("trained", True)):
        data = {"kind": "images", "annotations": captions, "backbone": backbone, "train_backbone": trained}
        data |= {"min_count": 1, "image_size": image_size}
        result = legenda.train("flickr8k.transformer", out=out / name, stages="first", data=data, **SMALL)
        scores[name] = result.best
        print(f"{name}: CIDEr-D {result.best:.3f}, {result.seconds:.0f} s")
    return scores


if __name__ == "__main__":
    tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
