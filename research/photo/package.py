"""Package a checkpoint as int8, with the settings of its search and the files of its extractor.

    python research/photo/package.py DATA FOLDER CHECKPOINT OUT

OUT: a folder such as src/legenda/assets/photo. DATA/weights has the networks, FOLDER what words.py wrote. A caption
less likely than 99 % of those of the validation photographs (CHECKPOINT.json of score.py) is taken for that of a
photograph unlike any seen.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import new_model
from finetune import dropout_options
from score import CONSENSUS_WEIGHT, load_checkpoint
from torch import Tensor
from words import write_tensors

from legenda.io import write_json
from legenda.models.weights import load_tensors, quantize, save_weights
from legenda.photo.consensus import CONSENSUS

UNLIKE = 0.01
"""Share of the validation photographs whose captions would be replaced."""
STAGES = [
    {"name": "boxes", "minutes": 8, "images": 16, "learning_rate": 1.5e-3},
    {"name": "photographs and boxes", "minutes": 45, "images": 38, "learning_rate": 1.2e-3},
    {"name": "self-critical", "minutes": 8.9, "images": 40, "learning_rate": 3e-5},
]
"""The stages of README.md."""
SUMMARY = "everyday photographs: good at animals, food and streets, bad at small things"
DATA = {"kind": "images", "backbone": "photo", "annotations": "captions.csv", "min_count": 4}


def nanodet_weights(folder: Path) -> dict[str, Tensor]:
    """Return NanoDet's weights under the names of `legenda.photo.vision.NanoDet`, from those of ncnn."""
    graph = json.loads((folder / "nanodet_plus_m_416.graph.json").read_text())
    ours = dict(zip((name for kind, name, *_ in graph if kind.startswith("Conv")), _nanodet_names(), strict=True))
    weights = load_tensors(folder / "nanodet_plus_m_416.safetensors", "give shared data")
    split = (name.rpartition(".") for name in weights)
    return {f"{ours[base]}.{leaf}": weights[f"{base}.{leaf}"] for base, _, leaf in split}


def _nanodet_names() -> Iterator[str]:
    """Yield the names of NanoDet's convolutions in the order of ncnn's graph."""
    fusion = [f"ghosts.{ghost}.{part}.0" for ghost in (0, 1) for part in ("primary", "cheap")]
    fusion += ["shortcut.0", "shortcut.1"]
    first = ("shortcut.0", "branch.0.0", "branch.1", "shortcut.1.0", "branch.2.0")
    yield "stem.0.0"
    for stage, units in enumerate((4, 8, 4)):
        for unit in range(units):
            parts = ("branch.0.0", "branch.1", "branch.2.0") if unit else first
            yield from (f"stages.{stage}.{unit}.{part}" for part in parts)
    yield "reduce.2.0"
    for number, level in enumerate((1, 0)):
        yield from (f"reduce.{level}.0", *(f"up.{number}.{part}" for part in fusion))
    for number in (0, 1):
        yield from (f"subsample.{number}.{part}.0" for part in (0, 1))
        yield from (f"down.{number}.{part}" for part in fusion)
    yield from (f"extra.{number}.{part}.0" for number in (0, 1) for part in (0, 1))
    yield from (f"heads.{level}.0.{part}.0" for level in range(4) for part in (0, 1))
    for level in (3, 2, 1, 0):
        yield from (f"heads.{level}.1.0.0", f"heads.{level}.1.1.0", f"heads.{level}.2")


def main() -> None:
    """Write the files."""
    data, folder, checkpoint, out = map(Path, sys.argv[1:5])
    out.mkdir(parents=True, exist_ok=True)
    model = new_model(folder, **dropout_options())
    trained = load_checkpoint(folder, checkpoint)
    model.load_state_dict(trained.state_dict())
    model.generation_config = trained.generation_config
    save_weights(quantize(model.state_dict()), out)
    model.save_vocabulary(out)
    log_probs = [mean for _, mean in json.loads(checkpoint.with_suffix(".json").read_text()).values()]
    config = {
        "summary": SUMMARY,
        "name": "photo",
        **model.describe(),
        "extractor": "photo",
        "data": DATA,
        "trained_in": STAGES,
    }
    least = round(float(np.quantile(log_probs, UNLIKE)), 4)
    write_json(out / "config.json", config | {"least_log_prob": least, "consensus": CONSENSUS_WEIGHT})
    for name in ("words.txt", "words.safetensors", "predictor.safetensors", CONSENSUS, "kinds.txt"):
        shutil.copyfile(folder / name, out / name)
    weights = load_tensors(data / "weights" / "mobilenet_v2_1.0_224_int8.safetensors", "give shared data")
    names = {name: name.replace("classifier.1.", "classifier.") for name in weights}
    write_tensors(out / "mobilenet.safetensors", {names[name]: tensor for name, tensor in weights.items()})
    shutil.copyfile(data / "weights" / "coco_labels_80.txt", out / "things.txt")
    write_tensors(out / "nanodet.safetensors", nanodet_weights(data / "weights"))
    for path in out.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    main()
