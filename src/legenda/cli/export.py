"""`legenda export`: a captioner as ONNX or torch.export files."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from legenda.config import Config, PositiveInt


class ExportOptions(Config):
    """Write a captioner as an encoder and a decoder step that run without PyTorch, and compare them with it.

    legenda caption and serve, and legenda.open, take the folder of ONNX files as they take a run, and search as it
    does; examples/caption_onnx.py captions with them, onnxruntime and NumPy alone.
    """

    model: tyro.conf.Positional[str]
    """A run folder, photo, or USER/MODEL of Hugging Face's hub."""
    output_format: Annotated[Literal["onnx", "torch"], tyro.conf.arg(name="format")] = "onnx"
    """onnx: encoder.onnx and decoder.onnx; torch: encoder.pt2 and decoder.pt2 of torch.export."""
    out: Path | None = None
    """The folder to write (default: the format, in the run folder or, for other models, in the current one)."""
    max_length: PositiveInt | None = None
    """Greatest number of tokens, eos included; by default that of the model."""
    int8: bool = False
    """Store the weights of ONNX files in 8 bits, a fourth of the size; scores change a little, and some captions."""


def run(options: ExportOptions) -> None:
    """Write the files and print the largest difference from PyTorch."""
    from legenda.export import export_captioner
    from legenda.hub import find_model, is_run_folder
    from legenda.models import Captioner
    from legenda.models.checkpoint import load_with_config, not_a_captioner

    folder = Path(options.model) if is_run_folder(options.model) else Path()
    out = folder / options.output_format if options.out is None else options.out
    source = find_model(options.model)
    model, config = load_with_config(source)
    if not isinstance(model, Captioner):
        raise not_a_captioner(source, model)
    report = export_captioner(
        model, out, format=options.output_format, max_length=options.max_length, int8=options.int8, config=config
    )
    size = sum(file.stat().st_size for file in report.files) / 1e6
    names = ", ".join(file.name for file in report.files)
    quantized = "" if report.int8_difference is None else f", with int8 weights logits by {report.int8_difference:.1e}"
    print(f"{out}: {names}, {size:.1f} MB; they differ from PyTorch by at most {report.max_difference:.1e}{quantized}")
