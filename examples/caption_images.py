"""Caption image files with a trained model.

python examples/caption_images.py                                # a drawn scene, with the model of `make demo`
python examples/caption_images.py photos/*.jpg --model runs/mine --extractor my_extractor.py
"""

import argparse
from pathlib import Path

import legenda
from legenda.data.scenes import draw_scene, make_scene


def main() -> None:
    """Print each image's name and caption."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", type=Path)
    parser.add_argument("--model", type=Path, default=Path("runs/demo/ngsan"))
    parser.add_argument("--extractor")
    options = parser.parse_args()
    pipeline = legenda.open(options.model, options.extractor)
    if not options.images:
        options.images = [options.model.parent / "scene.png"]
        draw_scene(make_scene("example", 0)).save(options.images[0])
    for image, caption in zip(options.images, pipeline.caption(options.images), strict=True):
        print(f"{image}: {caption.text}")


if __name__ == "__main__":
    main()
