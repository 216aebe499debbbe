"""Write drawn images with their captions to a parquet file, and train on it as a stream.

python examples/train_from_parquet.py runs/parquet
"""

from pathlib import Path

import datasets
import tyro

import legenda
from legenda.data.scenes import draw_scene, make_scene, references


def main(folder: Path, images: int = 40, backbone: str = "torchvision:resnet18") -> float:
    """Return the best CIDEr-D on every tenth image."""
    folder.mkdir(parents=True, exist_ok=True)
    scenes = [make_scene("train", number) for number in range(images)]
    rows = {"image": [draw_scene(scene) for scene in scenes], "caption": [[*references(scene)] for scene in scenes]}
    datasets.Dataset.from_dict(rows).to_parquet(folder / "scenes.parquet")
    data = {"kind": "hf", "files": folder / "scenes.parquet", "min_count": 1}
    data |= {"backbone": backbone, "train_backbone": True, "image_size": 96}
    small = {"model": {"dim": 64, "num_layers": 1}, "training": {"epochs": 1}}
    return legenda.train("flickr8k.transformer", out=folder / "run", stages="first", data=data, **small).best


if __name__ == "__main__":
    best = tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
    print(f"CIDEr-D {best:.3f}")
