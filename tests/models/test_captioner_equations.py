"""Up-Down, the Meshed-Memory Transformer and ORT's attention against NumPy, written from the papers' equations.

The functions `updown`, `meshed` and `ort_attention` use nothing of the package. Their arguments are arrays with the
names and shapes of the equations; the tests copy the weights of models into them.
"""

import numpy as np
import pytest
import torch

import legenda
import legenda.importers
from legenda import Regions
from legenda.decoding import beam_search

RNG = np.random.default_rng(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    x = np.exp(x - x.max(axis, keepdims=True))
    return x / x.sum(axis, keepdims=True)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def lstm(x, hidden, cell, W, U, b):
    """One step of an LSTM; the rows of W, U and b are input, forget, candidate and output gates."""
    i, f, g, o = np.split(W @ x + U @ hidden + b, 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def updown(p, V, words):
    """Return log-probabilities `(T, V)` (Anderson et al., CVPR 2018, Eqs. 1 to 7) of one image `V (k, D)`."""
    M = p["W_ha"].shape[1]
    h1 = c1 = h2 = c2 = np.zeros(M)
    mean, rows = V.mean(0), []
    for word in words:
        h1, c1 = lstm(np.concatenate([h2, mean, p["W_e"][word]]), h1, c1, p["W_1"], p["U_1"], p["b_1"])
        scores = np.array([p["w_a"] @ np.tanh(p["W_va"] @ v + p["W_ha"] @ h1) for v in V])
        attended = softmax(scores) @ V
        h2, c2 = lstm(np.concatenate([attended, h1]), h2, c2, p["W_2"], p["U_2"], p["b_2"])
        rows.append(log_softmax(p["W_p"] @ h2 + p["b_p"]))
    return np.array(rows)


def linear(x, layer):
    W, b = layer
    return x @ W.T + b


def layer_norm(x, layer):
    gain, bias = layer
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def heads(x, count):
    return np.stack(np.split(x, count, axis=-1))


def attention(p, queries, inputs, count, slots=None, allowed=None):
    """Return MultiHead(queries, inputs); slots: learned keys and values `(m, d)` after those of the inputs (M2, Eq. 2).

    The slots are multiplied by the roots of d_k and of m.
    """
    Q, K, V = linear(queries, p["q"]), linear(inputs, p["k"]), linear(inputs, p["v"])
    d = Q.shape[-1] // count
    if slots is not None:
        K = np.concatenate([K, np.sqrt(d) * slots[0]])
        V = np.concatenate([V, np.sqrt(len(slots[1])) * slots[1]])
    parts = []
    for q, k, v in zip(heads(Q, count), heads(K, count), heads(V, count), strict=True):
        scores = q @ k.T / np.sqrt(d)
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        parts.append(softmax(scores) @ v)
    return linear(np.concatenate(parts, -1), p["o"])


def feed_forward(p, x):
    return layer_norm(x + linear(np.maximum(linear(x, p["ff1"]), 0), p["ff2"]), p["ff_norm"])


def meshed(p, X, words, count):
    """Return log-probabilities `(T, V)` of M2 (Cornia et al., CVPR 2020, Eqs. 1 to 10) of one image `X (N, D)`.

    Each attention has a residual connection and layer normalization after it, as in Figure 2 and in the release.
    """
    x, levels = layer_norm(np.maximum(linear(X, p["input"]), 0), p["input_norm"]), []
    for layer in p["encoder"]:
        x = layer_norm(x + attention(layer, x, x, count, layer["slots"]), layer["norm"])
        x = feed_forward(layer, x)
        levels.append(x)
    T = len(words)
    y, causal = p["words"][words] + p["positions"][1 : T + 1], np.tril(np.ones((T, T), bool))
    for layer in p["decoder"]:
        y = layer_norm(y + attention(layer["self"], y, y, count, allowed=causal), layer["self_norm"])
        total = np.zeros_like(y)
        for level, gate in zip(levels, layer["gates"], strict=True):
            crossed = layer_norm(y + attention(layer["cross"], y, level, count), layer["cross_norm"])
            total += sigmoid(linear(np.concatenate([y, crossed], -1), gate)) * crossed
        y = feed_forward(layer, total / np.sqrt(len(levels)))
    return log_softmax(y @ p["output"].T)


def ort_attention(p, x, boxes, count):
    """Return ORT's self-attention (Herdade et al., NeurIPS 2019, Eqs. 4 to 8) of one image.

    boxes: x1 y1 x2 y2. The displacement of Eq. 4 has at least 1e-3, the factor of Eq. 6 at least 1e-6.
    """
    center, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    Q, K, V = linear(x, p["q"]), linear(x, p["k"]), linear(x, p["v"])
    W_G, b_G = p["geometry"]
    d, channels, N = Q.shape[-1] // count, W_G.shape[1], len(x)
    embedded = np.zeros((N, N, channels))
    for m in range(N):
        for n in range(N):
            shift = np.maximum(np.abs(center[m] - center[n]) / size[m], 1e-3)
            relation = np.concatenate([np.log(shift), np.log(size[m] / size[n])])
            embedded[m, n] = [
                function(100 * value / 1000 ** (step / (channels // 8)))
                for value in relation
                for step in range(channels // 8)
                for function in (np.sin, np.cos)
            ]
    parts = []
    for h, (q, k, v) in enumerate(zip(heads(Q, count), heads(K, count), heads(V, count), strict=True)):
        factor = np.maximum(np.maximum(embedded @ W_G[h] + b_G[h], 0), 1e-6)
        weights = factor * np.exp(q @ k.T / np.sqrt(d))
        parts.append(weights / weights.sum(-1, keepdims=True) @ v)
    return linear(np.concatenate(parts, -1), p["o"])


def pair(module):
    return module.weight.numpy(), module.bias.numpy()


def attention_weights(module):
    return {"q": pair(module.query), "k": pair(module.key), "v": pair(module.value), "o": pair(module.output)}


def layer_weights(layer):
    return {
        "ff1": pair(layer.feed_forward[0]),
        "ff2": pair(layer.feed_forward[3]),
        "ff_norm": pair(layer.feed_forward_residual.norm),
    }


def updown_weights(decoder):
    """The weights of Up-Down; the rows of the first LSTM's matrix are in another order than in Eq. 2."""
    M, V = decoder.dim, decoder.attention.key.in_features
    words, second, image = decoder.attention_lstm.weight_ih.split([decoder.attention_lstm.word_dim, M, V], dim=1)
    first, last = decoder.attention_lstm, decoder.language_lstm
    return {
        "W_e": decoder.embedding.weight.numpy(),
        "W_1": torch.cat([second, image, words], dim=1).numpy(),
        "U_1": first.weight_hh.numpy(),
        "b_1": (first.bias_ih + first.bias_hh).numpy(),
        "W_va": decoder.attention.key.weight.numpy(),
        "W_ha": decoder.attention.query.weight.numpy(),
        "w_a": decoder.attention.score.weight[0].numpy(),
        "W_2": last.weight_ih.numpy(),
        "U_2": last.weight_hh.numpy(),
        "b_2": (last.bias_ih + last.bias_hh).numpy(),
        "W_p": decoder.output.weight.numpy(),
        "b_p": decoder.output.bias.numpy(),
    }


def meshed_weights(model):
    encoder, decoder = model.encoder, model.decoder
    return {
        "input": pair(encoder.input),
        "input_norm": pair(encoder.input_norm),
        "encoder": [
            {
                **attention_weights(layer.attention),
                **layer_weights(layer),
                "norm": pair(layer.attention_residual.norm),
                "slots": (layer.attention.slot_keys[0].numpy(), layer.attention.slot_values[0].numpy()),
            }
            for layer in encoder.layers
        ],
        "words": decoder.embedding.weight.numpy(),
        "positions": decoder.position_table.numpy(),
        "decoder": [
            {
                **layer_weights(layer),
                "self": attention_weights(layer.self_attn),
                "self_norm": pair(layer.self_attn_residual.norm),
                "cross": attention_weights(layer.cross_attn),
                "cross_norm": pair(layer.cross_attn_residual.norm),
                "gates": [pair(gate) for gate in layer.gates],
            }
            for layer in decoder.layers
        ],
        "output": decoder.output.weight.numpy(),
    }


def build(name, **options):
    torch.manual_seed(0)
    model = legenda.create_model(name, vocab_size=13, feature_dim=10, **options).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture
def regions(draw_regions):
    regions = draw_regions((6, 4), dim=10)
    return Regions(regions.features.double(), regions.boxes.double(), regions.mask_or_ones)


@pytest.fixture
def tokens():
    return torch.from_numpy(RNG.integers(2, 13, (2, 3, 7)))


MODELS = {
    "updown": (
        {"dim": 8, "word_dim": 6, "additive_dim": 5},
        lambda model, features, words: updown(updown_weights(model.decoder), features, words),
    ),
    "meshed": (
        {"dim": 12, "num_heads": 2, "num_layers": 3, "ff_dim": 9, "memory_slots": 4},
        lambda model, features, words: meshed(meshed_weights(model), features, words, 2),
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_are_those_of_the_equations(name, regions, tokens):
    options, oracle = MODELS[name]
    model = build(name, **options)
    found = model(regions, tokens).log_softmax(dim=-1)
    for image, count in enumerate((6, 4)):
        features = regions.features[image, :count].numpy()
        expected = np.array([oracle(model, features, row.numpy()) for row in tokens[image]])
        np.testing.assert_allclose(found[image].numpy(), expected, rtol=0, atol=1e-9)
    assert found.std() > 0.3


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_beam_search_scores_captions_as_the_equations_do(name, regions):
    """The search reorders the states of the decoder after each token."""
    options, oracle = MODELS[name]
    model = build(name, **options)
    found = beam_search(model, regions, beam_size=3, max_length=5)
    rules = model.generation_config
    for image, count in enumerate((6, 4)):
        for row, score in zip(found.tokens[image].numpy(), found.log_probs[image].sum(-1), strict=True):
            end = np.flatnonzero(row == rules.eos_token_id)
            length = end[0] + 1 if len(end) else len(row)
            features = regions.features[image, :count].numpy()
            rows = oracle(model, features, np.concatenate([[rules.bos_token_id], row[: length - 1]]))
            assert rows[np.arange(length), row[:length]].sum() == pytest.approx(score.item(), abs=1e-9)


@torch.no_grad()
def test_the_attention_of_ort_is_that_of_the_equations(regions):
    model = build("ort", dim=16, num_heads=4, num_layers=1, ff_dim=9, geometry_dim=32)
    attention = model.encoder.layers[0].attention
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    geometry = next(iter(model.encoder.geometry(regions)))
    found = attention(x, x, x, regions.mask, geometry).values
    weights = {**attention_weights(attention), "geometry": pair(attention.score_bias.linear)}
    for image, count in enumerate((6, 4)):
        boxes = regions.boxes[image, :count].numpy()
        expected = ort_attention(weights, x[image, :count].numpy(), boxes, 4)
        np.testing.assert_allclose(found[image, :count].numpy(), expected, rtol=0, atol=1e-9)


def test_parameters_of_the_papers_models():
    """Counted from the equations, with the sizes of the papers and the vocabularies of their releases."""
    with torch.device("meta"):
        counts = {
            name: legenda.create_model(name, vocab_size=size).parameter_count
            for name, size in (("updown", 10_010), ("meshed", 10_201), ("ort", 9_488))
        }
        plain = legenda.create_model("meshed", vocab_size=10_201, attention="multi_head").parameter_count
        transformer = legenda.create_model("transformer", vocab_size=9_488, num_layers=6).parameter_count
    lstms = 4000 * (1000 + 2048 + 1000 + 1000 + 2) + 4000 * (2048 + 1000 + 1000 + 2)
    assert counts["updown"] == 10_010 * 1000 + lstms + 512 * (2048 + 1000 + 1) + 10_010 * 1001
    assert counts["meshed"] - plain == 3 * 2 * 40 * 512
    assert counts["ort"] - transformer == 6 * 8 * 65


def m2_release():
    """Random tensors with the names and shapes of a state dict of aimagelab/meshed-memory-transformer."""
    d, words, positions, slots, layers = 12, 13, 9, 4, 3
    shapes = {"encoder.fc": (d, 10), "decoder.fc": (words, d)}
    shapes |= {"decoder.word_emb": (words, d), "decoder.pos_emb": (positions, d), "encoder.layer_norm": (d,)}
    for layer in range(layers):
        encoder, decoder = f"encoder.layers.{layer}", f"decoder.layers.{layer}"
        attentions = [f"{encoder}.mhatt", f"{decoder}.self_att", f"{decoder}.enc_att"]
        shapes |= {f"{name}.attention.fc_{part}": (d, d) for name in attentions for part in "qkvo"}
        shapes |= {f"{name}.layer_norm": (d,) for name in attentions}
        for stack in (encoder, decoder):
            shapes |= {f"{stack}.pwff.fc1": (9, d), f"{stack}.pwff.fc2": (d, 9), f"{stack}.pwff.layer_norm": (d,)}
        shapes |= {f"{decoder}.fc_alpha{level + 1}": (d, 2 * d) for level in range(layers)}
    tensors = {f"{name}.weight": torch.from_numpy(RNG.normal(size=shape)) for name, shape in shapes.items()}
    unbiased = ("decoder.fc", "decoder.word_emb", "decoder.pos_emb")
    tensors |= {
        f"{name}.bias": torch.from_numpy(RNG.normal(size=shape[0]))
        for name, shape in shapes.items()
        if name not in unbiased
    }
    return tensors | {
        f"encoder.layers.{layer}.mhatt.attention.m_{part}": torch.from_numpy(RNG.normal(size=(1, slots, d)))
        for layer in range(layers)
        for part in "kv"
    }


def meshed_weights_of_release(tensors):
    def get(name):
        return tensors[f"{name}.weight"].numpy(), tensors[f"{name}.bias"].numpy()

    def attend(name):
        return {part: get(f"{name}.attention.fc_{part}") for part in "qkvo"}

    def ff(name):
        return {"ff1": get(f"{name}.fc1"), "ff2": get(f"{name}.fc2"), "ff_norm": get(f"{name}.layer_norm")}

    encoder, decoder = [f"encoder.layers.{layer}" for layer in range(3)], [f"decoder.layers.{n}" for n in range(3)]
    return {
        "input": get("encoder.fc"),
        "input_norm": get("encoder.layer_norm"),
        "encoder": [
            attend(f"{name}.mhatt")
            | ff(f"{name}.pwff")
            | {"norm": get(f"{name}.mhatt.layer_norm")}
            | {"slots": [tensors[f"{name}.mhatt.attention.m_{part}"][0].numpy() for part in "kv"]}
            for name in encoder
        ],
        "words": tensors["decoder.word_emb.weight"].numpy(),
        "positions": tensors["decoder.pos_emb.weight"].numpy(),
        "decoder": [
            {
                **ff(f"{name}.pwff"),
                "self": attend(f"{name}.self_att"),
                "self_norm": get(f"{name}.self_att.layer_norm"),
                "cross": attend(f"{name}.enc_att"),
                "cross_norm": get(f"{name}.enc_att.layer_norm"),
                "gates": [get(f"{name}.fc_alpha{level}") for level in (1, 2, 3)],
            }
            for name in decoder
        ],
        "output": tensors["decoder.fc.weight"].numpy(),
    }


@torch.no_grad()
def test_a_state_dict_of_the_release_of_m2_is_imported(regions, tokens):
    tensors = m2_release()
    model = legenda.importers.load("mdsan", tensors, num_heads=2)
    assert (model.name, model.config.attention, model.config.memory_slots) == ("meshed", "memory", 4)
    weights, found = meshed_weights_of_release(tensors), model(regions, tokens).log_softmax(dim=-1)
    for image, count in enumerate((6, 4)):
        features = regions.features[image, :count].numpy()
        expected = np.array([meshed(weights, features, row.numpy(), 2) for row in tokens[image]])
        np.testing.assert_allclose(found[image].numpy(), expected, rtol=0, atol=1e-9)


def test_memory_slots_take_no_options_of_pairs():
    with pytest.raises(legenda.errors.ConfigError, match="attention='memory' takes no geometry of pairs"):
        legenda.create_model("meshed", vocab_size=13, distance="manhattan")
    with pytest.raises(legenda.errors.ConfigError, match="belongs to a Transformer"):
        legenda.create_model("aoanet", vocab_size=13, attention="memory")
