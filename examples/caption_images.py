"""Caption image files with a trained model.

python examples/caption_images.py                                # a drawn scene, with the model of `make demo`
python examples/caption_images.py photos/*.jpg --model runs/mine --extractor my_extractor.py
"""

import argparse
from pathlib import Path

import legenda
from legenda.datasets.scenes import draw_scene, make_scene
from legenda.extractors import load_extractor, read_image


def caption(image: Path, model: legenda.models.Captioner, extractor: str) -> str:
    """Return the best caption of an image file by beam search."""
    features, boxes = load_extractor(extractor).extract([read_image(image)])[0]
    regions = legenda.Regions.from_numpy(features, boxes)
    return model.caption(regions, beam_size=3)[0]


def main() -> None:
    """Print each image's name and caption."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", type=Path)
    parser.add_argument("--model", type=Path, default=Path("runs/demo/ngsan"))
    parser.add_argument("--extractor", default="scenes")
    options = parser.parse_args()
    model = legenda.load(options.model)
    if not options.images:
        options.images = [options.model.parent / "scene.png"]
        draw_scene(make_scene("example", 0)).save(options.images[0])
    for image in options.images:
        print(f"{image}: {caption(image, model, options.extractor)}")


if __name__ == "__main__":
    main()
