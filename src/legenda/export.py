"""Export a captioner as an encoder and a decoder step: ONNX or torch.export files, checked against PyTorch."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

from legenda.config import to_json
from legenda.decoding.generation import resolve_config
from legenda.errors import CheckpointError, ConfigError, import_extra
from legenda.io import write_json
from legenda.models.base import Captioner, eval_mode
from legenda.regions import Regions

Format = Literal["onnx", "torch"]
TOLERANCE = 1e-3
"""The largest difference from PyTorch, in float32, of any output of the exported files."""
_SETTINGS, _VOCABULARY = "export.json", "vocabulary.json"

NamedTensors = dict[str, Tensor]
Run = Callable[[Mapping[str, Tensor]], NamedTensors]
"""A function from the inputs to the outputs of an exported file, by name."""


@dataclass(frozen=True)
class ExportReport:
    """The files of an export, and the largest absolute difference of an output from PyTorch's."""

    files: tuple[Path, ...]
    max_difference: float


def export_captioner(
    model: Captioner, out: str | Path, *, format: Format = "onnx", max_length: int | None = None
) -> ExportReport:
    """Write the model into the folder `out` and check it.

    encoder: features (B, N, D), boxes (B, N, 4) and mask (B, N) to memory.* and state.*, the state of one empty row per
    image; a model with a backbone takes images as features (B, 1, 3 * S * S), pixels in 0..1. decoder: tokens (B, 1),
    memory.* and state.* to logits (B, 1, V), attention (B, 1, H, N) and next_state.*, the state for the next of at most
    `max_length` calls, by default that of `model.generation_config`. Beams of an image are further images. With the
    files come vocabulary.json, a list of the tokens by id, and export.json, the settings of model and generation.

    Raise ConfigError where a package is missing or the decoder has no state of fixed size, and CheckpointError where an
    output differs from PyTorch's by more than TOLERANCE; nothing is written then.
    """
    out, config = Path(out), resolve_config(model, None, max_length=max_length)
    length = config.max_length
    for module in ("onnx", "onnxruntime", "onnxscript") if format == "onnx" else ():
        import_extra(module, "onnx")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder to write to")
    model.require_vocabulary()
    out.parent.mkdir(parents=True, exist_ok=True)
    with eval_mode(model), TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        folder = Path(name)
        parts = _Encoder(model, length), _Decoder(model, length)
        examples = [_draw_regions(model, 2, 7), _draw_regions(model, 3, 4)]
        outputs = [parts[0](regions) for regions in examples]
        inputs = [{"tokens": torch.zeros(len(x["memory.mask"]), 1, dtype=torch.long), **x} for x in outputs]
        write = _write_onnx if format == "onnx" else _write_torch
        exported = [
            write(_trace(parts[0], *examples), folder / "encoder", (list(examples[0]), list(outputs[0]))),
            write(_trace(parts[1], *inputs), folder / "decoder", (list(inputs[0]), list(parts[1].run(inputs[0])))),
        ]
        difference = _compare(parts, exported, examples[1], length)
        if not difference <= TOLERANCE:
            raise CheckpointError(
                f"the exported {model.name} differs from PyTorch by {difference:.1e}, more than {TOLERANCE:.0e}, so "
                "nothing is written; check its weights for extreme values"
            )
        settings = {
            "model": model.name,
            "format": format,
            "feature_dim": model.config.feature_dim,
            "image_size": None if model.config.backbone is None else model.config.backbone.image_size,
            "needs_boxes": model.needs_boxes,
            "generation_config": to_json(config),
            "max_difference": difference,
        }
        write_json(folder / _SETTINGS, settings)
        write_json(folder / _VOCABULARY, model.vocabulary.tokens)
        out.mkdir(exist_ok=True)
        return ExportReport(tuple(file.replace(out / file.name) for file in sorted(folder.iterdir())), difference)


class _Part(nn.Module):
    """A part of the model as a function of tensors with names."""

    def __init__(self, model: Captioner, max_length: int) -> None:
        super().__init__()
        self.model, self.max_length = model, max_length

    def run(self, inputs: Mapping[str, Tensor]) -> NamedTensors:
        raise NotImplementedError

    def forward(self, inputs: NamedTensors) -> NamedTensors:
        # no tensor occurs twice among the outputs: torch.export would take equal inputs for one
        return {name: value.clone() for name, value in self.run(inputs).items()}


class _Encoder(_Part):
    def run(self, inputs: Mapping[str, Tensor]) -> NamedTensors:
        memory = self.model.encode(Regions(inputs["features"], inputs["boxes"], inputs["mask"]))
        state = self.model.decoder.init_static_state(memory, 1, self.max_length)
        if state is None:
            raise ConfigError(f"{self.model.name} has no state of fixed size for {self.max_length} tokens")
        return {**_flatten(memory, "memory"), **_flatten(state, "state")}


class _Decoder(_Part):
    def __init__(self, model: Captioner, max_length: int) -> None:
        super().__init__(model, max_length)
        regions = Regions(torch.zeros(1, 2, model.config.feature_dim), torch.tensor([[[0.0, 0.0, 1.0, 1.0]] * 2]))
        self.memory = model.encode(regions)
        self.state: Any = model.decoder.init_static_state(self.memory, 1, max_length)

    def run(self, inputs: Mapping[str, Tensor]) -> NamedTensors:
        memory, past = _unflatten(self.memory, "memory", inputs), _unflatten(self.state, "state", inputs)
        logits, state = self.model.decoder.step(inputs["tokens"], past, memory)
        outputs = {"logits": logits, **_flatten(state, "next_state")}
        return {"attention" if name == "next_state.attention" else name: x for name, x in outputs.items()}


def _flatten(value: Any, name: str) -> NamedTensors:
    """Return the tensors of nested tuples and dataclasses by path, such as state.kv_cache.0.1."""
    if isinstance(value, Tensor):
        return {name: value}
    return {path: x for key, part in _children(value) for path, x in _flatten(part, f"{name}.{key}").items()}


def _unflatten(value: Any, name: str, tensors: Mapping[str, Tensor]) -> Any:
    """Return `value` with the tensors of that path; the inverse of `_flatten`."""
    if isinstance(value, Tensor):
        return tensors[name]
    parts = {key: _unflatten(part, f"{name}.{key}", tensors) for key, part in _children(value)}
    if isinstance(value, tuple):
        return tuple(parts.values())
    return dataclasses.replace(value, **parts) if parts else value


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple):
        yield from ((str(index), part) for index, part in enumerate(value))
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _draw_regions(model: Captioner, images: int, regions: int) -> NamedTensors:
    """Return random regions; the last image has one less than the others, if it has several; or random pixels."""
    generator = torch.Generator().manual_seed(images)
    if model.config.backbone is not None:
        pixels = torch.rand(images, 1, model.config.backbone.width, generator=generator)
        boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(images, 1, 4).contiguous()
        return {"features": pixels, "boxes": boxes, "mask": torch.ones(images, 1, dtype=torch.bool)}
    corners = torch.rand(images, regions, 4, generator=generator)
    return {
        "features": torch.randn(images, regions, model.config.feature_dim, generator=generator),
        "boxes": torch.cat([corners[..., :2] * 0.5, 0.5 + corners[..., 2:] * 0.5], dim=-1),
        "mask": torch.arange(regions) < torch.tensor([regions] * (images - 1) + [regions - 1]).unsqueeze(1),
    }


def _trace(part: _Part, example: NamedTensors, other: NamedTensors) -> torch.export.ExportedProgram:
    """Trace a part; dimensions in which the two examples differ take any size."""
    sizes = {
        name: {dim: torch.export.Dim.DYNAMIC for dim in range(x.dim()) if x.shape[dim] != other[name].shape[dim]}
        for name, x in example.items()
    }
    return torch.export.export(part, (example,), dynamic_shapes=(sizes,))


def _write_torch(program: torch.export.ExportedProgram, path: Path, names: Sequence[Sequence[str]]) -> Run:  # noqa: ARG001
    torch.export.save(program, path.with_suffix(".pt2"))
    return torch.export.load(path.with_suffix(".pt2")).module()


def _write_onnx(program: torch.export.ExportedProgram, path: Path, names: Sequence[Sequence[str]]) -> Run:
    import onnxruntime

    for noisy in ("onnxscript", "onnx_ir"):  # they warn of optimizations that do not apply
        logging.getLogger(noisy).setLevel(logging.ERROR)
    written = torch.onnx.export(program, input_names=names[0], output_names=names[1], verbose=False)
    assert written is not None
    written.save(path.with_suffix(".onnx"))
    session = onnxruntime.InferenceSession(path.with_suffix(".onnx"), providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, Tensor]) -> NamedTensors:
        outputs = session.run(names[1], {name: value.numpy() for name, value in inputs.items()})
        return {name: torch.from_numpy(value) for name, value in zip(names[1], outputs, strict=True)}

    return run


def _compare(parts: Sequence[_Part], exported: Sequence[Run], regions: NamedTensors, max_length: int) -> float:
    """Return the largest absolute difference of any output, over the encoder and `max_length` steps."""
    past, exported_past = parts[0].run(regions), exported[0](regions)
    differences = [_difference(past, exported_past)]
    tokens = torch.full((len(regions["mask"]), 1), parts[0].model.generation_config.bos_token_id)
    for _ in range(max_length):
        expected = parts[1].run({"tokens": tokens, **past})
        actual = exported[1]({"tokens": tokens, **exported_past})
        differences.append(_difference(expected, actual))
        past |= _next_state(expected)
        exported_past |= _next_state(actual)
        tokens = expected["logits"].argmax(dim=-1)
    return float(torch.stack(differences).max())  # NaN if any is


def _difference(expected: NamedTensors, actual: NamedTensors) -> Tensor:
    return torch.stack([(x.double() - actual[name].double()).abs().max() for name, x in expected.items()]).max()


def _next_state(outputs: NamedTensors) -> NamedTensors:
    return {name.removeprefix("next_"): value for name, value in outputs.items() if name.startswith("next_")}
