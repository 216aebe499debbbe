"""Package a trained run of the recipe `photo` as int8, with the settings of its search.

    python benchmarks/photo/package.py RUN OUT [length penalty]

writes config.json, model.safetensors and vocabulary.txt into OUT, the folder `src/legenda/assets/photo`.
"""

import sys
from dataclasses import replace
from pathlib import Path

import legenda
from legenda.io import read_json, write_json
from legenda.models.weights import quantize, save_weights

DATA = {
    "kind": "photo",
    "annotations": "dataset_flickr8k.json.gz",
    "min_count": 4,
}


def main() -> None:
    """Write the files."""
    run, out = Path(sys.argv[1]), Path(sys.argv[2])
    model = legenda.load(run)
    penalty = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    model.generation_config = replace(model.generation_config, length_penalty=penalty)
    save_weights(quantize(model.state_dict()), out)
    model.save_vocabulary(out)
    config = read_json(run / "config.json", "name a run folder")
    write_json(
        out / "config.json",
        {"model": model.describe(), "recipe": "photo", "extractor": "photo", "data": DATA, "stages": config["stages"]},
    )


main()
