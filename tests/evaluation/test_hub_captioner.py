"""Small random BLIP, GIT and ViT-GPT2 of transformers in place of a run, and models of another kind."""

import json

import pytest
import torch
from PIL import Image

import legenda
from command_results import write_captioned_images

transformers = pytest.importorskip("transformers", reason="needs the extra vision")
WORDS = ["a", "dog", "cat", "runs", "sits", "on", "grass"]
SIDE = 16
SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION = {**SIZES, "image_size": SIDE, "patch_size": 8}


def save_tokenizer(folder) -> dict[str, int]:
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    special |= {"cls_token": "<s>", "sep_token": "</s>"}
    ids = {word: number for number, word in enumerate(["<pad>", "<unk>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return {"vocab_size": len(ids), "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}


def blip(ids):
    t = transformers
    text = {**SIZES, **ids, "sep_token_id": 3, "encoder_hidden_size": 16, "max_position_embeddings": 32}
    config = t.BlipConfig(text_config=text, vision_config=VISION, projection_dim=8)
    return t.BlipForConditionalGeneration(config)


def git(ids):
    t = transformers
    config = t.GitConfig(vision_config=VISION, **SIZES, **ids, max_position_embeddings=64)
    return t.GitForCausalLM(config)


def vit_gpt2(ids):
    t = transformers
    decoder = t.GPT2Config(**ids, n_embd=16, n_layer=1, n_head=2, n_positions=32, add_cross_attention=True)
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(t.ViTConfig(**VISION), decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 0, 3
    model = t.VisionEncoderDecoderModel(config)
    model.generation_config.update(decoder_start_token_id=2, pad_token_id=0, eos_token_id=3)
    return model


MODELS = {"blip": blip, "git": git, "vit_gpt2": vit_gpt2}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    names = {}
    for name, build in MODELS.items():
        folder = tmp_path_factory.mktemp("models") / name
        ids = save_tokenizer(folder)
        torch.manual_seed({"blip": 4, "git": 0, "vit_gpt2": 4}[name])
        model = build(ids)
        for parameter in model.parameters():
            parameter.data *= 4  # captions of several words
        model.generation_config.max_new_tokens = 6
        model.save_pretrained(folder)
        transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
        names[name] = f"hf:{folder}"
    return names


@pytest.fixture
def images(tmp_path):
    return write_captioned_images(tmp_path, 4, "test").parent


@pytest.mark.parametrize("kind", MODELS)
def test_captions_equal_those_of_generate(models, images, kind):
    pipeline = legenda.open(models[kind], device="cpu")
    files = sorted(images.glob("*.png"))
    found = pipeline.caption(files, beam_size=2)
    folder = models[kind].removeprefix("hf:")
    net = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pixels = processor(images=[Image.open(file) for file in files], return_tensors="pt")["pixel_values"]
    expected = tokenizer.batch_decode(net.generate(pixel_values=pixels, num_beams=2), skip_special_tokens=True)
    assert [caption.text for caption in found] == [" ".join(text.split()) for text in expected]
    assert any(caption.words for caption in found)
    several = pipeline.caption(files[0], beam_size=3, num_captions=3)
    assert [c.log_prob for c in several] == sorted((c.log_prob for c in several), reverse=True)
    assert several[0].boxes.tolist() == [[0, 0, 1, 1]]
    sampled = [pipeline.caption(files[0], do_sample=True, seed=seed).text for seed in (1, 1, 2, 3, 4, 5)]
    assert sampled[0] == sampled[1]
    assert len(set(sampled)) > 1


def test_the_probability_of_a_caption_ends_with_it(models, images):
    """What a batch has behind the end of a shorter caption is no part of it."""
    pipeline = legenda.open(models["vit_gpt2"], device="cpu")
    files = sorted(images.glob("*.png"))
    captions = pipeline.caption(files, beam_size=1)
    assert len({len(caption.words) for caption in captions}) > 1
    for file, caption in zip(files, captions, strict=True):
        assert caption.log_prob == pytest.approx(pipeline.caption(file, beam_size=1).log_prob, abs=1e-4)


def test_commands_take_the_name_of_a_model(models, images, run_command, monkeypatch):
    monkeypatch.chdir(images)
    name = models["blip"]
    code, out, _ = run_command(f"caption 0.png 1.png --model {name} --beam-size 2")
    assert code == 0
    assert out.startswith("0.png: ")
    code, out, err = run_command(f"evaluate {name} --annotations captions.csv --images . --split test")
    assert code == 0, err
    file = "evaluation_blip_test.json"
    assert len(json.loads((images / file).read_text())["captions"]) == 4
    assert run_command(f"caption 0.png 1.png --model {name} --out shards")[0] == 0
    assert len((images / "shards" / "captions-00000000.jsonl").read_text().splitlines()) == 2
    options = "--annotations captions.csv --images . --split test --out page.html"
    code, out, err = run_command(f"report {name} {models['git']} {options}")
    assert code == 0, err
    assert (images / "page.html").stat().st_size > 10_000


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("caption 0.png --model {vit}", "cannot be loaded"),
        ("caption 0.png --model hf:{folder}/nothing", "cannot be loaded"),
        ("caption 0.png --model {blip} --num-beam-groups 3", "--num-beam-groups is for captioners of Legenda"),
        ("caption 0.png --model {blip} --extractor photo", "has its own processor of images"),
        ("evaluate {blip}", "was imported without data"),
        ("export {blip}", "is a model of transformers, which this command does not take"),
        ("evaluate {blip} {git} --annotations captions.csv --images . --split test", "ensemble"),
    ],
)
def test_what_a_model_cannot_do_is_one_sentence(models, images, command, message, run_command, monkeypatch, tmp_path):
    monkeypatch.chdir(images)
    folder = tmp_path / "vit"
    transformers.ViTModel(transformers.ViTConfig(**VISION)).save_pretrained(folder)
    names = {**models, "vit": f"hf:{folder}", "folder": tmp_path}
    code, _, err = run_command(command.format(**names))
    assert code == 2
    assert message in err
    assert not list(images.glob("evaluation_*"))
