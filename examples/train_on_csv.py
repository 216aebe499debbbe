r"""Train a small model on a CSV file of captions, from images to scores, in seconds.

    python examples/train_on_csv.py runs/csv

The images are drawn here; put your photographs and captions.csv in their place. The same steps on the command line:

    legenda extract runs/csv/images --extractor scenes --out runs/csv/features.safetensors
    legenda train flickr8k.transformer data.annotations=runs/csv/captions.csv \
        data.features=runs/csv/features.safetensors
"""

import csv
from pathlib import Path

import tyro

import legenda
from legenda.config import to_json
from legenda.data.captions import KarpathyData
from legenda.data.scenes import draw_scene, make_scene, references
from legenda.extractors import extract_store, load_extractor
from legenda.tasks import Captioning, generate_captions, score_captions
from legenda.training import Constant, TrainingConfig, train


def draw_data(folder: Path, counts: dict[str, int]) -> None:
    """Write images and captions.csv with the columns file, caption and split: one line for each caption."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "caption", "split"])
        for split, count in counts.items():
            for index in range(count):
                scene = make_scene(split, index)
                name = f"{split}{index}.png"
                draw_scene(scene).save(folder / "images" / name)
                table.writerows([name, caption, split] for caption in references(scene))


def main(folder: Path) -> dict[str, float | None]:
    """Draw, extract, train and evaluate; return the scores of the validation split."""
    draw_data(folder, {"train": 60, "val": 12})
    images = sorted((folder / "images").iterdir())
    extract_store(images, load_extractor("scenes"), folder / "features.safetensors")

    data = KarpathyData(annotations=folder / "captions.csv", features=folder / "features.safetensors", min_count=1)
    task = Captioning(data.open(print))
    training = TrainingConfig(epochs=3, batch_size=12, captions_per_image=1, schedule=Constant(learning_rate=3e-3))
    sizes = {"dim": 32, "num_heads": 2, "num_layers": 1, "ff_dim": 64, "dropout": 0.0}
    train("transformer", sizes, task, (training,), folder / "run", sections={"data": to_json(data, folder / "run")})

    model = legenda.load(folder / "run")
    captions = generate_captions(model, task.validation, config=model.generation_config.replace(beam_size=2))
    scores = score_captions(captions, task.validation)
    for image, text in list(captions.items())[:3]:
        print(f"{image}: {text}")
    print(", ".join(f"{name} {score:.3f}" for name, score in scores.items() if score is not None))
    return scores


if __name__ == "__main__":
    tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
