"""Export a captioner as an encoder and a decoder step: ONNX or torch.export files, checked against PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import io
import logging
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from legenda.config import to_json
from legenda.decoding.generation import resolve_config
from legenda.errors import CheckpointError, ConfigError, first_line, import_extra
from legenda.io import __version__, locked, partial_folder, write_json
from legenda.models.base import Captioner, eval_mode
from legenda.regions import Memory, Regions
from legenda.runtime.captioner import GRID_BOXES, OF_RUN, SETTINGS, VOCABULARY, ExportedModel, Format, digest

__all__ = ["ExportReport", "export_captioner"]

TOLERANCE = 1e-3
"""The largest difference from PyTorch, in float32, of any output of the exported files."""

NamedTensors = dict[str, Tensor]
Run = Callable[[Mapping[str, Tensor]], NamedTensors]
"""A function from the inputs to the outputs of an exported file, by name."""
Writer = Callable[[torch.export.ExportedProgram, Path, list[str], list[str]], tuple[Run, list[str]]]
"""A function that writes a traced part, with names of its inputs and outputs; returns what runs the file, and the
inputs that it reads."""


@dataclass(frozen=True)
class ExportReport:
    """The files of an export, and the largest absolute difference of an output from PyTorch's.

    With int8 weights the difference is that of the float32 files from which they were made, and `int8_difference` the
    largest difference of their logits.
    """

    files: tuple[Path, ...]
    max_difference: float
    int8_difference: float | None = None


def export_captioner(
    model: Captioner,
    out: str | Path,
    *,
    format: Format = "onnx",
    max_length: int | None = None,
    int8: bool = False,
    config: Mapping[str, object] = types.MappingProxyType({}),
) -> ExportReport:
    """Write the model into the folder `out`, which `legenda.open` takes, and check it.

    encoder: features (B, N, D), boxes (B, N, 4) and mask (B, N) to memory.* of the image, and to state.* and shared.*,
    the decoder's state with one empty row (B, 1, ...) and what all rows share; a model with a backbone takes images as
    features (B, 1, 3 * S * S), pixels in 0..1. decoder: tokens (B, K), memory.*, state.* and shared.* to logits
    (B, K, V), attention (B, K, H, N), next_state.* and next_shared.*, for at most `max_length` calls, by default that
    of `model.generation_config`. ONNX files leave out what the decoder does not read. vocabulary.json lists the tokens
    by id, and export.json holds `ExportedModel`: the settings of model and generation, and of `config`, the
    configuration of a run, the extractor and how captions are chosen. int8: quantize the weights of ONNX files.

    A model on another device or in another precision is exported as its copy on the CPU in float32.

    Raise ConfigError where a package is missing, the decoder has no state of fixed size, or the model cannot be traced,
    and CheckpointError where an output differs from PyTorch's by more than TOLERANCE; nothing is written then.
    """
    out, generation_config = Path(out), resolve_config(model, None, {"max_length": max_length})
    length = generation_config.max_length
    if int8 and format != "onnx":
        raise ConfigError("int8 weights are those of ONNX files; leave int8 out, or choose the format onnx")
    for module in ("onnx", "onnxruntime", "onnxscript") if format == "onnx" else ():
        import_extra(module, "onnx")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder to write to")
    vocabulary = model.require_vocabulary()
    if {(weight.device.type, weight.dtype) for weight in model.parameters()} != {("cpu", torch.float32)}:
        model = copy.deepcopy(model).to("cpu", torch.float32)
    out.parent.mkdir(parents=True, exist_ok=True)
    with eval_mode(model), locked(out), partial_folder(out) as folder:
        count = model.config.max_regions or 7  # a longer example would be cut, and shorter ones after it
        examples = [_draw_regions(model, 2, min(count, 7)), _draw_regions(model, 3, max(min(count - 1, 4), 1))]
        encoder, decoder = _Encoder(model, length), _Decoder(model, length, examples[0])
        steps = [decoder.example(regions, rows) for regions, rows in zip(examples, (5, 2), strict=True)]
        write, suffix = (_write_onnx, "onnx") if format == "onnx" else (_write_torch, "pt2")
        names = list(steps[0]), list(decoder.run(steps[0]))
        run_decoder, read = _convert(decoder, steps, write, folder / f"decoder.{suffix}", *names)
        outputs = [name for name in encoder.run(examples[0]) if name in read or name == GRID_BOXES]
        encoder.outputs = outputs
        file = folder / f"encoder.{suffix}"
        run_encoder, _ = _convert(encoder, examples, write, file, list(examples[0]), outputs)
        encoder.outputs, parts = None, (encoder, decoder)
        difference = _compare(parts, (run_encoder, run_decoder), examples[1], length)
        if not difference <= TOLERANCE:
            raise CheckpointError(
                f"the exported {model.name} differs from PyTorch by {difference:.1e}, more than {TOLERANCE:.0e}, so "
                "nothing is written; check its weights for extreme values"
            )
        quantized = None
        if int8:
            runs = [_quantize(folder / f"{part}.onnx") for part in ("encoder", "decoder")]
            quantized = _compare(parts, runs, examples[1], length, only="logits")
        write_json(folder / VOCABULARY, vocabulary.tokens)
        settings = ExportedModel(
            legenda=__version__,
            model=model.name,
            format=format,
            weights="int8" if int8 else "float32",
            parameter_count=model.parameter_count,
            feature_dim=model.config.feature_dim,
            image_size=None if model.config.backbone is None else model.config.backbone.image_size,
            max_regions=model.config.max_regions,
            needs_boxes=model.needs_boxes,
            grid_size=getattr(model.encoder, "grid_size", None) if model.needs_boxes else None,
            max_difference=difference,
            generation_config=generation_config,
            digests={file.name: digest(file) for file in sorted(folder.iterdir())},
        ).replace(**{name: config[name] for name in OF_RUN if config.get(name) is not None})
        write_json(folder / SETTINGS, to_json(settings))
        out.mkdir(exist_ok=True)
        files = tuple(file.replace(out / file.name) for file in sorted(folder.iterdir()))
        return ExportReport(files, difference, quantized)


class _Part(nn.Module):
    """A part of the model as a function of tensors with names: memory.*, state.* of each row, and shared.* of all."""

    def __init__(self, model: Captioner, max_length: int) -> None:
        super().__init__()
        self.model, self.max_length = model, max_length

    def run(self, inputs: Mapping[str, Tensor]) -> NamedTensors:
        raise NotImplementedError

    def init_state(self, memory: Memory, rows: int) -> object:
        """Return the state of empty rows; raise ConfigError where it has no fixed size."""
        state = self.model.decoder.init_static_state(memory, rows, self.max_length)
        if state is None:
            raise ConfigError(f"{self.model.name} has no state of fixed size for {self.max_length} tokens")
        return state

    def forward(self, inputs: NamedTensors) -> NamedTensors:
        # no tensor occurs twice among the outputs: torch.export would take equal inputs for one
        return {name: value.clone() for name, value in self.run(inputs).items()}


class _Encoder(_Part):
    outputs: Sequence[str] | None = None
    """The names of the outputs; None for all."""

    def run(self, inputs: Mapping[str, Tensor]) -> NamedTensors:
        regions = self.model.prepare(Regions(inputs["features"], inputs["boxes"], inputs["mask"]))
        memory = self.model.encode(regions)
        tensors = {**_flatten(memory, "memory"), **_flatten_state(self.init_state(memory, 1))}
        if self.model.backbone is not None and regions.boxes is not None:
            tensors[GRID_BOXES] = regions.boxes
        return tensors if self.outputs is None else {name: tensors[name] for name in self.outputs}


class _Decoder(_Part):
    def __init__(self, model: Captioner, max_length: int, regions: NamedTensors) -> None:
        super().__init__(model, max_length)
        self.memory = model.encode(Regions(**regions))
        self.state: Any = self.init_state(self.memory, 1)

    def example(self, regions: NamedTensors, rows: int) -> NamedTensors:
        """Return inputs of the second step of `rows` rows for each image."""
        memory = self.model.encode(Regions(**regions))
        tokens = torch.zeros(len(memory), rows, dtype=torch.long)
        _, state = self.model.decoder.step(tokens, self.init_state(memory, rows), memory)
        known = _flatten_state(self.state)
        past = {name: value for name, value in _flatten_state(state).items() if name in known}
        return {"tokens": tokens, **_flatten(memory, "memory"), **past}

    def run(self, inputs: Mapping[str, Tensor]) -> NamedTensors:
        memory = _unflatten(self.memory, "memory", inputs)
        past = _unflatten(self.state, "state", {_row_name(name): value for name, value in inputs.items()})
        logits, state = self.model.decoder.step(inputs["tokens"], past, memory)
        outputs = {"logits": logits}
        for name, value in _flatten_state(state).items():
            outputs["attention" if name == "state.attention" else f"next_{name}"] = value
        return outputs


def _flatten_state(state: object) -> NamedTensors:
    """Return the tensors of a decoder's state: state.* with a row for each hypothesis, shared.* without."""
    shared = getattr(state, "shared", ())
    return {
        f"shared{name[5:]}" if name.split(".")[1] in shared else name: value
        for name, value in _flatten(state, "state").items()
    }


def _row_name(name: str) -> str:
    return f"state{name[6:]}" if name.startswith("shared.") else name


def _flatten(value: object, name: str) -> NamedTensors:
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


def _children(value: object) -> Iterator[tuple[str, object]]:
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


def _convert(
    part: _Part, examples: Sequence[NamedTensors], write: Writer, path: Path, inputs: list[str], outputs: list[str]
) -> tuple[Run, list[str]]:
    """Trace a part and write its file; raise ConfigError where it cannot be traced or the format lacks an operation."""
    try:
        with _quiet():
            return write(_trace(part, *examples), path, inputs, outputs)
    except Exception as error:  # torch.export and torch.onnx raise exceptions of any type
        raise ConfigError(
            f"the {path.stem} of {part.model.name} cannot be exported ({first_line(error)}); caption with the run"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Run the block without logs and without the graphs that PyTorch prints; exceptions say what fails."""
    logging.disable(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _trace(part: _Part, example: NamedTensors, other: NamedTensors) -> torch.export.ExportedProgram:
    """Trace a part; dimensions in which the two examples differ take any size."""
    sizes = {
        name: {dim: torch.export.Dim.DYNAMIC for dim in range(x.dim()) if x.shape[dim] != other[name].shape[dim]}
        for name, x in example.items()
    }
    return torch.export.export(part, (example,), dynamic_shapes=(sizes,))


def _write_torch(
    program: torch.export.ExportedProgram,
    path: Path,
    inputs: list[str],
    outputs: list[str],  # noqa: ARG001
) -> tuple[Run, list[str]]:
    torch.export.save(program, path)
    module = torch.export.load(path).module()
    return lambda tensors: module({name: tensors[name] for name in inputs}), inputs


def _write_onnx(
    program: torch.export.ExportedProgram, path: Path, inputs: list[str], outputs: list[str]
) -> tuple[Run, list[str]]:
    """Write an ONNX file without the inputs that nothing reads; return what runs it, and its inputs."""
    written = torch.onnx.export(program, input_names=inputs, output_names=outputs, verbose=False)
    assert written is not None
    graph = written.model.graph
    if path.stem == "decoder":
        for value in [value for value in graph.inputs if not value.uses()]:
            graph.inputs.remove(value)
    written.save(path)
    return _open_onnx(path), [str(value.name) for value in graph.inputs]


def _open_onnx(path: Path) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs, outputs = ([value.name for value in values] for values in (session.get_inputs(), session.get_outputs()))

    def run(tensors: Mapping[str, Tensor]) -> NamedTensors:
        values = session.run(outputs, {name: tensors[name].numpy() for name in inputs})
        return {name: torch.from_numpy(value) for name, value in zip(outputs, values, strict=True)}

    return run


def _quantize(path: Path) -> Run:
    """Replace an ONNX file by one with int8 weights of its products, whose inputs are quantized as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    larger = path.with_suffix(".float32.onnx")
    path.replace(larger)
    with _quiet():  # it advises preprocessing, which torch.onnx has done
        quantize_dynamic(larger, path, per_channel=True, weight_type=QuantType.QInt8)
    larger.unlink()
    return _open_onnx(path)


def _compare(
    parts: Sequence[_Part], exported: Sequence[Run], regions: NamedTensors, max_length: int, only: str | None = None
) -> float:
    """Return the largest absolute difference of any output, or of one, over the encoder and `max_length` steps.

    Each image has two rows, which begin with the likeliest token and the second.
    """
    past, exported_past = _two_rows(parts[0].run(regions)), _two_rows(exported[0](regions))
    differences = [] if only else [_difference({name: past[name] for name in exported_past}, exported_past)]
    tokens = torch.full((len(regions["mask"]), 2), parts[0].model.generation_config.bos_token_id)
    for step in range(max_length):
        expected = parts[1].run({"tokens": tokens, **past})
        actual = exported[1]({"tokens": tokens, **exported_past})
        names = [only] if only else [*expected]
        differences.append(_difference({name: expected[name] for name in names}, actual))
        past |= _next_state(expected)
        exported_past |= _next_state(actual)
        ranked = expected["logits"].topk(2).indices
        tokens = ranked[:, 0] if step == 0 else ranked[..., 0]
    return float(torch.stack(differences).max())  # NaN if any is


def _two_rows(tensors: NamedTensors) -> NamedTensors:
    return {name: x.repeat_interleave(2, dim=1) if name.startswith("state.") else x for name, x in tensors.items()}


def _difference(expected: NamedTensors, actual: NamedTensors) -> Tensor:
    differences = [(x.double() - actual[name].double()).abs().max() for name, x in expected.items()]
    return torch.stack(differences).max()


def _next_state(outputs: NamedTensors) -> NamedTensors:
    return {name.removeprefix("next_"): value for name, value in outputs.items() if name.startswith("next_")}
