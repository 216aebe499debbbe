"""`legenda convert`: feature stores of one format to another."""

from pathlib import Path

import tyro

from legenda.config import Config
from legenda.errors import ConfigError


class ConvertOptions(Config):
    """Write the features of one or more stores to one new store, and verify it by reading it again.

    Reads packed safetensors, HDF5 (ID_grids or ID_features, ID_boxes, ID_size; file.hdf5:grids selects one where
    a file has both), Bottom-Up .tsv, folders of one .npz, .npy or .pth per image (cocobu_att, X-LAN's, MCAN's,
    grid-feats-vqa's) and LMDB. Writes packed safetensors, HDF5 or a folder of .npz files, depending on the name of OUT.
    Prints the number of images and regions, and a checksum that is the same for every format in the same precision.
    """

    paths: tyro.conf.Positional[tuple[str, ...]]
    """The stores to read, then the one to write: OUT.safetensors, OUT.hdf5, or a folder without suffix."""
    float16: bool = False
    """Write half precision, which halves the size."""
    sizes: Path | None = None
    """COCO annotations, or a folder of them, with the size of every image, for boxes in pixels such as cocobu_box."""
    ids: Path | None = None
    """A list of the images to write, instead of all: COCO's image_info_test2014.json, a JSON list, or a line each."""
    extractor: str | None = None
    """The name of the extractor of the features, where the files do not hold it; runs keep it."""


def run(options: ConvertOptions) -> None:
    """Write the store and print one line about it."""
    if len(options.paths) < 2:
        raise ConfigError("name the feature stores to read and, last, the one to write")
    from legenda.features.convert import convert
    from legenda.io import locked
    from legenda.terminal import counted, progress_bar

    *sources, out = options.paths
    dtype = "float16" if options.float16 else "float32"
    with locked(out), progress_bar(f"converting to {out}") as update:
        report = convert(
            sources,
            out,
            dtype=dtype,
            sizes=options.sizes,
            extractor=options.extractor,
            ids=options.ids,
            progress=update,
        )
    boxes = "with boxes" if report.has_boxes else "without boxes"
    print(
        f"{out}: {counted(report.images, 'images')}, {counted(report.regions, 'regions')} of width "
        f"{report.feature_dim} in {dtype}, {boxes}, by {report.extractor}; checksum {report.checksum}; "
        f"{report.images / max(report.seconds, 1e-9):.0f} images/s"
    )
