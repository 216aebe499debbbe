"""CLIPScore and RefCLIPScore against cases by hand and the towers of a small random CLIP."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from legenda.errors import ConfigError, DataError
from legenda.models.clip import ClipModel, clip_score, find_image_files, ref_clip_score

transformers = pytest.importorskip("transformers", reason="needs the extra vision")
WORDS = ["a", "photo", "depicts", "dog", "cat", "runs", "sits"]
CAPTIONS = {"1": "a dog runs", "2": "a cat"}
REFERENCES = {"1": ["a dog", "a cat sits"], "2": ["a cat sits"]}


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory) -> str:
    """A random CLIP of 8 channels whose tokens are words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("clip")
    ids = {word: number for number, word in enumerate(["<pad>", "<unk>", "<end>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <end>", special_tokens=[("<end>", ids["<end>"])]
    )
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(folder)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**size, "vocab_size": len(ids), "max_position_embeddings": 12, "eos_token_id": ids["<end>"]}
    vision = {**size, "image_size": 16, "patch_size": 8}
    torch.manual_seed(5)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(folder)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    processor.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, name in enumerate(("1.png", "COCO_val2014_000000000002.jpg")):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


def test_the_equations_by_hand():
    image, caption = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.6, 0.8], [-1.0, 0.0]])
    scores = clip_score(image, caption)
    assert scores.tolist() == pytest.approx([1.5, 0.0])
    references = [torch.tensor([[0.0, 1.0], [0.8, -0.6]]), torch.tensor([[0.0, 1.0]])]
    assert ref_clip_score(scores, caption, references).tolist() == pytest.approx([2 * 1.5 * 0.8 / 2.3, 0.0])


def test_the_command_scores_as_the_towers_do(run_command, tmp_path, clip_folder, images):
    (tmp_path / "p.json").write_text(json.dumps(CAPTIONS))
    (tmp_path / "r.json").write_text(json.dumps(REFERENCES))
    line = f"score {tmp_path / 'p.json'} {tmp_path / 'r.json'} --metrics BLEU --out {tmp_path / 'out.json'}"
    code, out, err = run_command(f"{line} --images {images} --clip {clip_folder}")
    assert code == 0, err
    assert "RefCLIPScore" in out
    results = json.loads((tmp_path / "out.json").read_text())["scores"]

    model = transformers.CLIPModel.from_pretrained(clip_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip_folder)
    processor = transformers.AutoImageProcessor.from_pretrained(clip_folder)
    cosines = []
    for name, file in find_image_files(images, ["1", "2"]).items():
        pixels = processor(Image.open(file).convert("RGB"), return_tensors="pt")
        tokens = tokenizer(f"A photo depicts {CAPTIONS[name]}", return_tensors="pt")
        tokens.pop("token_type_ids", None)
        with torch.no_grad():
            output = model(**tokens, **pixels)
        cosines.append(float(torch.cosine_similarity(output.text_embeds, output.image_embeds)))
        assert results["per_image"][name]["CLIPScore"] == pytest.approx(2.5 * max(cosines[-1], 0), abs=1e-5)
    assert max(cosines) > 0
    assert results["corpus"]["CLIPScore"] == pytest.approx(2.5 * np.mean(np.maximum(cosines, 0)), abs=1e-5)
    assert results["intervals"]["CLIPScore"]["low"] <= results["corpus"]["CLIPScore"]


def test_bad_input_is_named(run_command, tmp_path, clip_folder, images):
    (tmp_path / "p.json").write_text(json.dumps({**CAPTIONS, "3": "a dog"}))
    (tmp_path / "r.json").write_text(json.dumps({**REFERENCES, "3": ["a dog"]}))
    line = f"score {tmp_path / 'p.json'} {tmp_path / 'r.json'} --metrics BLEU"
    for options, named in (
        (f"--images {images}", "--clip"),
        (f"--images {images} --clip {tmp_path}", str(tmp_path)),
        (f"--images {images} --clip {clip_folder}", "such as 3"),
    ):
        code, _, err = run_command(f"{line} {options}")
        assert code == 2
        assert named in err
    (images / "1.jpg").write_bytes((images / "1.png").read_bytes())
    with pytest.raises(DataError, match="share the id"):
        find_image_files(images, ["1"])
    (images / "1.jpg").rename(images / "000000000002.jpg")
    with pytest.raises(DataError, match=r"000000000002\.jpg"):
        find_image_files(images, ["2"])
    with pytest.raises(ConfigError, match="CLIP"):
        ClipModel(str(tmp_path))


def test_the_reward_is_the_score_of_each_sample(clip_folder, images):
    from legenda.data.captions import CaptionDataset
    from legenda.data.image_files import ImageData
    from legenda.tasks.base import SelfCriticalConfig
    from legenda.tasks.self_critical import Rewards
    from legenda.text import Vocabulary

    (images / "t.csv").write_text("file,caption\n1.png,a dog\nCOCO_val2014_000000000002.jpg,a cat sits\n")
    data = ImageData(annotations=images / "t.csv", train_backbone=True, min_count=1)
    split = data.open_regions().captions(data.read_images())
    vocabulary = Vocabulary.from_counts(dict.fromkeys(WORDS, 5), min_count=1)
    config = SelfCriticalConfig(rewards={"CLIPScore": 2.0}, clip=clip_folder)
    rewards = Rewards.from_config(config, split, vocabulary)
    captions = [["a dog runs", "a cat"], ["cat sits", ""]]
    tokens = torch.tensor([[[*vocabulary.encode(c.split()), 0, 0, 0, 0][:4] for c in group] for group in captions])
    found = rewards.result(rewards.start(np.array([1, 0]), tokens))
    model = ClipModel(clip_folder)
    seen = model.embed_images(split.open_images(np.array([1, 0])))
    for row, group in enumerate(captions):
        expected = 2 * clip_score(seen[row].expand(2, -1), model.embed_texts(group))
        assert found[row].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    rewards.close()
    blind = CaptionDataset(("1",), (("a",),), split.read, "store.safetensors", "x")
    with pytest.raises(ConfigError, match=r"store\.safetensors"):
        Rewards.from_config(config, blind, vocabulary)
