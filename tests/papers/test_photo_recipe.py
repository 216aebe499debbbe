"""The recipe of the packaged model of photographs: fine-tuning on a table."""

import json
from zlib import crc32

import pytest
import torch

import legenda
from command_results import write_captioned_images
from legenda.cli.main import main
from legenda.data.image_files import ImageData
from legenda.papers import get_recipe
from legenda.run_folder import ASSETS, PACKAGED


@pytest.fixture
def table(tmp_path):
    return write_captioned_images(tmp_path, 12)


@pytest.mark.slow
def test_the_packaged_model_is_fine_tuned_on_a_table_of_captions(table, tmp_path, capsys):
    out = tmp_path / "run"
    options = ["training.epochs=1", "training.steps_per_epoch=12", "training.monitor=ROUGE-L", "--out", str(out)]
    options.append(f"data.annotations={table}")
    main(["train", "photo", "--init-from", "photo", "training.schedule.warmup_steps=0", *options])
    config = json.loads((out / "config.json").read_text())
    assert config["extractor"] == {"name": "photo"}
    chooser, packaged = (legenda.open(name, device="cpu").consensus for name in (out, "photo"))
    assert 0 < chooser.weight < packaged.weight
    assert table.with_name("captions.csv.photo.safetensors").is_file()
    main(["caption", str(tmp_path / "0.png"), "--model", str(out)])
    assert "0.png: " in capsys.readouterr().out
    before, after = legenda.load("photo"), legenda.load(out)
    assert before.vocabulary == after.vocabulary
    assert not torch.equal(before.decoder.embedding.weight, after.decoder.embedding.weight)


def test_a_table_without_validation_gives_some_images_to_it_whatever_their_order(table):
    chosen = {image.id for image in ImageData(annotations=table).split_images() if image.split == "val"}
    assert 1 <= len(chosen) <= 6
    lines = table.read_text().splitlines()
    table.write_text("\n".join([lines[0], *reversed(lines[1:]), "12.png,a wall", "13.png,a wall"]) + "\n")
    grown = ImageData(annotations=table).split_images()
    assert {image.id for image in grown if image.split == "val"} - {"12", "13"} == chosen
    table.write_text("file,caption\n" + "".join(f"{n}.png,a wall\n" for n in range(3000)))
    assert 150 < sum(image.split == "val" for image in ImageData(annotations=table).split_images()) < 250
    for count in range(2, 30):
        table.write_text("file,caption\n" + "".join(f"{n}.png,a wall\n" for n in range(count)))
        assert {image.split for image in ImageData(annotations=table).split_images()} == {"train", "val"}
    both = [name for name in map(str, range(40)) if crc32(name.encode()) < 2**32 / 5][:2]
    table.write_text("file,caption\n" + "".join(f"{name}.png,a wall\n" for name in both))
    assert sorted(image.split for image in ImageData(annotations=table).split_images()) == ["train", "val"]


def test_the_recipe_has_the_model_of_the_package():
    config = json.loads((ASSETS / PACKAGED / "config.json").read_text())
    recipe = get_recipe("photo")
    options = config["model"]
    assert options["name"] == recipe.model
    assert {name: options[name] for name in recipe.model_overrides if name != "decoder"} == {
        name: value for name, value in recipe.model_overrides.items() if name != "decoder"
    }
