"""Up-Down, the Meshed-Memory Transformer and ORT against `oracles`: NumPy, from the equations, without the package."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles import meshed, ort, updown
from safetensors.numpy import load_file

import legenda
import legenda.importers
from legenda import Regions
from legenda.decoding import beam_search

WORDS, FEATURES, HEADS = 13, 10, 2
ORT_NAMES = (
    (r"encoder\.(?=input)|decoder\.(?=embedding|output)", ""),
    (r"layers\.", ""),
    (r"attention\.score_bias\.linear", "geometry"),
    (r"(\w+)_residual\.norm", r"norm.\1"),
    (r"(\d\.(?:attention|self_attn|cross_attn)\.\w)\w+", r"\1"),
    (r"attention|self_attn", "self"),
    (r"cross_attn", "cross"),
    (r"feed_forward\.0", "ff.1"),
    (r"feed_forward\.3", "ff.2"),
    (r"feed_forward", "ff"),
    (r"embedding\.weight", "embedding"),
)


def build(name, seed, **options):
    torch.manual_seed(seed)
    model = legenda.create_model(name, vocab_size=WORDS, feature_dim=FEATURES, **options).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return model, {name: value.numpy() for name, value in model.state_dict().items()}


def build_updown(seed):
    """Here the input of the first LSTM begins with the word; and each LSTM has two biases."""
    model, state = build("updown", seed, dim=8, word_dim=6, additive_dim=5)
    weights = {name.removeprefix("decoder."): value for name, value in state.items()}
    weights["embedding"] = weights["embedding.weight"]
    for lstm in ("attention_lstm", "language_lstm"):
        weights[f"{lstm}.bias"] = weights[f"{lstm}.bias_ih"] + weights[f"{lstm}.bias_hh"]
    weights["attention_lstm.weight_ih"] = np.roll(weights["attention_lstm.weight_ih"], -6, axis=1)
    weights["attention.features.weight"] = weights["attention.key.weight"]
    weights["attention.hidden.weight"] = weights["attention.query.weight"]
    return model, lambda features, _, tokens: updown.log_probs(weights, features, tokens)


def m2_release(seed):
    """Random tensors with the names and shapes of a state dict of aimagelab/meshed-memory-transformer."""
    rng, d, positions, slots, layers = np.random.default_rng(seed), 12, 9, 5, seed + 1
    shapes = {"encoder.fc": (d, FEATURES), "encoder.layer_norm": (d,)}
    for layer in range(layers):
        encoder, decoder = f"encoder.layers.{layer}", f"decoder.layers.{layer}"
        attentions = [f"{encoder}.mhatt", f"{decoder}.self_att", f"{decoder}.enc_att"]
        shapes |= {f"{name}.attention.fc_{part}": (d, d) for name in attentions for part in "qkvo"}
        shapes |= {f"{name}.layer_norm": (d,) for name in attentions}
        for stack in (encoder, decoder):
            shapes |= {f"{stack}.pwff.fc1": (9, d), f"{stack}.pwff.fc2": (d, 9), f"{stack}.pwff.layer_norm": (d,)}
        shapes |= {f"{decoder}.fc_alpha{level + 1}": (d, 2 * d) for level in range(layers)}
    biases = {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    shapes |= {"decoder.fc": (WORDS, d), "decoder.word_emb": (WORDS, d), "decoder.pos_emb": (positions, d)}
    shapes = {f"{name}.weight": shape for name, shape in shapes.items()} | biases
    for part in ("m_k", "m_v"):
        shapes |= {f"encoder.layers.{layer}.mhatt.attention.{part}": (1, slots, d) for layer in range(layers)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def build_meshed(seed):
    tensors = m2_release(seed)
    loaded = {name: torch.from_numpy(value) for name, value in tensors.items()}
    model = legenda.importers.load("mdsan", loaded, num_heads=HEADS)
    assert (model.name, model.config.attention, model.config.memory_slots) == ("meshed", "memory", 5)
    return model, lambda features, _, tokens: meshed.log_probs(tensors, features, tokens, HEADS)


def build_ort(seed, norm_first=True):
    """Here the 64 sinusoids of a pair are ordered by feature, then frequency, then sine and cosine."""
    model, state = build("ort", seed, dim=16, num_heads=HEADS, num_layers=seed + 1, ff_dim=9, norm_first=norm_first)
    weights = {}
    for name, value in state.items():
        for pattern, replacement in ORT_NAMES:
            name = re.sub(pattern, replacement, name)
        if name.endswith("geometry.weight"):
            value = value.reshape(HEADS, 4, 8, 2).transpose(0, 3, 1, 2).reshape(HEADS, 64)
        weights[name] = value
    return model, lambda features, boxes, tokens: ort.log_probs(
        weights, features, boxes, tokens, HEADS, norm_first=norm_first
    )


def build_post_norm_ort(seed):
    return build_ort(seed, norm_first=False)


@pytest.fixture
def regions(draw_regions):
    """Two images with 6 and 4 regions, whose padding stands anywhere and holds NaN."""
    regions = draw_regions((6, 6), dim=FEATURES)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1]]).bool()
    padding = ~mask.unsqueeze(-1)
    features, boxes = (x.double().masked_fill(padding, torch.nan) for x in (regions.features, regions.boxes))
    return Regions(features, boxes, mask)


def valid(regions):
    """The features and boxes of each image's regions, without padding."""
    for features, boxes, mask in zip(regions.features, regions.boxes, regions.mask_or_ones, strict=True):
        yield features[mask].numpy(), boxes[mask].numpy()


builders = pytest.mark.parametrize("create", [build_updown, build_meshed, build_ort, build_post_norm_ort])


@torch.no_grad()
@builders
@pytest.mark.parametrize("seed", range(3))
def test_log_probabilities_are_those_of_the_equations(create, seed, regions):
    model, log_probs = create(seed)
    tokens = np.random.default_rng(seed).integers(2, WORDS, (2, 3, 7))
    found = model(regions, torch.from_numpy(tokens)).log_softmax(dim=-1).numpy()
    expected = [[log_probs(*image, row) for row in rows] for image, rows in zip(valid(regions), tokens, strict=True)]
    np.testing.assert_allclose(found, np.array(expected), rtol=0, atol=1e-9)
    assert found.std() > 0.3


@torch.no_grad()
@builders
def test_beam_search_scores_captions_as_the_equations_do(create, regions):
    """The search reorders the states of the decoder. It avoids <pad>, after which M2 has equal odds."""
    model, log_probs = create(1)
    rules = model.generation_config = model.generation_config.replace(suppress_tokens=(1,))
    found = beam_search(model, regions, beam_size=3, max_length=5)
    for image, inputs in enumerate(valid(regions)):
        for row, score in zip(found.tokens[image].numpy(), found.log_probs[image].sum(-1), strict=True):
            end = np.flatnonzero(row == rules.eos_token_id)
            length = end[0] + 1 if len(end) else len(row)
            rows = log_probs(*inputs, np.concatenate([[rules.bos_token_id], row[: length - 1]]))
            assert rows[np.arange(length), row[:length]].sum() == pytest.approx(score.item(), abs=1e-9)


def test_the_oracle_of_m2_gives_the_log_probabilities_of_the_release():
    """The release's weights and numbers, without memory slots and in float32; the end of captions is padded with 1."""
    data = load_file(Path(__file__).parents[1] / "importers" / "data" / "m2_nomemory.safetensors")
    weights = {name.removeprefix("weights/"): value.astype(float) for name, value in data.items()}
    masks = ~weights["io/enc_mask"].astype(bool).reshape(3, -1)
    for image, (tokens, mask) in enumerate(zip(data["io/captions"], masks, strict=True)):
        tokens = tokens[tokens != 1]
        found = meshed.log_probs(weights, weights["io/features"][image, mask], tokens, 4)
        np.testing.assert_allclose(found, data["io/logprobs"][image, : len(tokens)], rtol=0, atol=1e-5)
