"""`legenda export`: a captioner as ONNX or torch.export files."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from legenda.config import Config, PositiveInt


class ExportOptions(Config):
    """Write a captioner as an encoder and a decoder step that run without Legenda, and compare them with PyTorch.

    examples/caption_onnx.py captions with the ONNX files, onnxruntime and NumPy alone.
    """

    model: tyro.conf.Positional[str]
    """A run folder, photo, or USER/MODEL of Hugging Face's hub."""
    output_format: Annotated[Literal["onnx", "torch"], tyro.conf.arg(name="format")] = "onnx"
    """onnx: encoder.onnx and decoder.onnx; torch: encoder.pt2 and decoder.pt2 of torch.export."""
    out: Path | None = None
    """The folder to write (default: the format, in the run folder or, for other models, in the current one)."""
    max_length: PositiveInt | None = None
    """Greatest number of tokens, eos included; by default that of the model."""


def run(options: ExportOptions) -> None:
    """Write the files and print the largest difference from PyTorch."""
    from legenda.export import export_captioner
    from legenda.models import load
    from legenda.models.checkpoint import is_run_folder

    folder = Path(options.model) if is_run_folder(options.model) else Path()
    out = folder / options.output_format if options.out is None else options.out
    model = load(options.model)
    report = export_captioner(model, out, format=options.output_format, max_length=options.max_length)
    size = sum(file.stat().st_size for file in report.files) / 1e6
    names = ", ".join(file.name for file in report.files)
    print(f"{out}: {names}, {size:.1f} MB; they differ from PyTorch by at most {report.max_difference:.1e}")
