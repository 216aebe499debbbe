"""Package a checkpoint: the weights that fine-tuning starts from, and the exported files that caption without PyTorch.

    python research/photo/package.py DATA FOLDER CHECKPOINT OUT

OUT: a folder such as src/legenda/assets/photo. FOLDER has what networks.py, words.py, consensus.py and kinds.py wrote.
Matrices are int8 with a scale of each row in both; ONNX Runtime makes float32 of them when it opens the files, so that
the two doors compute with the same weights. A caption less likely than 99 % of those of the validation photographs
(CHECKPOINT.json of score.py) is taken for that of a photograph unlike any seen.
"""

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from common import new_model
from finetune import dropout_options
from onnx import TensorProto, helper, numpy_helper
from score import CONSENSUS_WEIGHT, load_checkpoint

from legenda.export import export_captioner
from legenda.io import write_json
from legenda.models.weights import dequantize, quantize, save_weights
from legenda.photo.consensus import CONSENSUS
from legenda.runtime.captioner import DECODER, ENCODER, SETTINGS, digest, read_exported

UNLIKE = 0.01
"""Share of the validation photographs whose captions would be replaced."""
MIN_SCORE = 0.05
"""Confidence below which a caption names the things alone: 0.003 CIDEr-D less, and 0.010 CHAIR-i, on the 400."""
STAGES = [
    {"name": "photographs and boxes", "minutes": 52, "images": 38, "learning_rate": 1.2e-3},
    {"name": "self-critical", "minutes": 5.4, "images": 38, "learning_rate": 3e-5},
]
"""The stages of README.md."""
SUMMARY = "everyday photographs: good at animals, food and streets, bad at small things"
DATA = {"kind": "images", "backbone": "photo", "annotations": "captions.csv", "min_count": 4}
COPIED = ("words.txt", "words.safetensors", "predictor.safetensors", CONSENSUS, "kinds.txt", "frequencies.safetensors")
NETWORKS = ("lite2.onnx", "nanodet.onnx", "classifier.safetensors")
LEAST_SIZE = 4096
"""Values of a tensor that is stored as int8."""


def store_int8(path: Path) -> float:
    """Replace the matrices of an ONNX file by int8 with scales, and return the largest change of a value.

    The weights are those of `dequantize`, so rows, or columns where the export transposed them, are multiples of a
    scale.
    """
    model: Any = onnx.load(path)
    graph, nodes, kept, change = model.graph, [], [], 0.0
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.ndim != 2 or array.size < LEAST_SIZE:
            kept.append(tensor)
            continue
        stored = []
        for axis in (0, 1):
            scale = (np.abs(array).max(1 - axis, keepdims=True) / 127).clip(1e-12)
            rounded = np.round(array / scale).astype(np.int8)
            stored.append((float(np.abs(rounded * scale - array).max()), rounded, scale))
        error, rounded, scale = min(stored, key=lambda each: each[0])
        change = max(change, error)
        name = tensor.name
        kept += [numpy_helper.from_array(rounded, f"{name}.int8"), numpy_helper.from_array(scale, f"{name}.scale")]
        nodes.append(helper.make_node("Cast", [f"{name}.int8"], [f"{name}.cast"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}.cast", f"{name}.scale"], [name]))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    nodes += list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return change


def main() -> None:
    """Write the files."""
    data, folder, checkpoint, out = map(Path, sys.argv[1:5])
    out.mkdir(parents=True, exist_ok=True)
    trained = load_checkpoint(folder, checkpoint)
    weights = quantize(trained.state_dict())
    model = new_model(folder, **dropout_options())
    model.load_state_dict(dequantize(weights))
    model.generation_config = trained.generation_config
    save_weights(weights, out)
    model.save_vocabulary(out)
    log_probs = [mean for _, mean in json.loads(checkpoint.with_suffix(".json").read_text()).values()]
    config = {
        "summary": SUMMARY,
        "name": "photo",
        **model.describe(),
        "extractor": "photo",
        "data": DATA,
        "trained_in": STAGES,
        "least_log_prob": round(float(np.quantile(log_probs, UNLIKE)), 4),
        "consensus": CONSENSUS_WEIGHT,
        "min_score": MIN_SCORE,
    }
    write_json(out / "config.json", config)
    with TemporaryDirectory() as name:
        exported = Path(name) / "exported"
        export_captioner(model, exported, config=config)
        change = max(store_int8(exported / part) for part in (ENCODER, DECODER))
        settings = json.loads((exported / SETTINGS).read_text())
        settings["digests"] = {part: digest(exported / part) for part in settings["digests"]}
        write_json(exported / SETTINGS, settings)
        read_exported(exported)
        for path in exported.iterdir():
            shutil.copyfile(path, out / path.name)
    print(f"stored as int8, the exported weights change by {change:.1e}")
    for name in (*COPIED, *NETWORKS):
        shutil.copyfile(folder / name, out / name)
    shutil.copyfile(data / "weights" / "coco_labels_80.txt", out / "things.txt")
    for path in out.iterdir():
        path.chmod(0o644)
    print(f"{sum(path.stat().st_size for path in out.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
