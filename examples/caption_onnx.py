"""Caption an image with onnxruntime and NumPy alone.

python examples/caption_onnx.py FOLDER FEATURES.npz

FOLDER is written by `legenda export RUN --out FOLDER`. FEATURES.npz has the features of one image's regions,
`feat` (N, D), and their boxes in 0..1, `boxes` (N, 4), as `legenda convert` writes them into a folder.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it reports its use to Microsoft
import onnxruntime


def load(folder: Path) -> tuple[onnxruntime.InferenceSession, onnxruntime.InferenceSession, dict, list[str]]:
    """Return encoder, decoder step, settings and vocabulary."""
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{part}.onnx") for part in ("encoder", "decoder"))
    settings, vocabulary = (json.loads((folder / f"{name}.json").read_text()) for name in ("export", "vocabulary"))
    return encoder, decoder, settings, vocabulary


def run(session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a session by name."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def greedy(encoder, decoder, settings: dict, features: np.ndarray, boxes: np.ndarray) -> list[int]:
    """Return the likeliest token after each prefix, up to eos, under the model's constraints."""
    rules, tokens = settings["generation_config"], []
    regions = {"features": np.float32(features), "boxes": np.float32(boxes), "mask": np.ones(len(features), bool)}
    past = run(encoder, {name: values[None] for name, values in regions.items()})
    while len(tokens) < rules["max_length"] and tokens[-1:] != [rules["eos_token_id"]]:
        last = tokens[-1] if tokens else rules["bos_token_id"]
        outputs = run(decoder, {"tokens": np.array([[last]]), **past})
        past |= {name.removeprefix("next_"): x for name, x in outputs.items() if name.startswith("next_")}
        logits = outputs["logits"][0, 0]
        logits[rules["suppress_tokens"]] = -np.inf
        if tokens and rules["no_immediate_repeat"]:
            logits[last] = -np.inf
        if tokens and last in rules["forbidden_last_tokens"]:
            logits[rules["eos_token_id"]] = -np.inf
        for start in range(len(tokens) - 2):  # trigrams that occur again
            if tokens[start : start + 2] == tokens[-2:]:
                logits[tokens[start + 2]] -= rules["trigram_penalty"]
        tokens.append(int(logits.argmax()))
    return tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("features", type=Path)
    options = parser.parse_args()
    *sessions, vocabulary = load(options.folder)
    with np.load(options.features) as image:
        tokens = greedy(*sessions, image["feat"], image["boxes"])
    print(" ".join(vocabulary[token] for token in tokens if vocabulary[token] != "<end>"))
