"""What figures show of encoders, against the papers' formulas in NumPy."""

import numpy as np
import pytest
import torch
from encoders import attentions_of, depends_on_features, distance_weights, geometric_weights, position_matrices

import legenda
from legenda.regions import Regions

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "dropout": 0.0}
RATIOS = np.array([[0.5, 2.0, 1.0, 1.0], [1e-3, 1.0, 0.5, 3.0], [3.0, 0.2, 1e-3, 2.0], [0.0, 1.5, 2.0, 0.7]])


def _model(name: str, **options: object) -> legenda.models.Captioner:
    torch.manual_seed(1)
    model = legenda.create_model(name, vocab_size=9, feature_dim=6, **(SMALL | options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def _linear(layer: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    return x @ _array(layer.weight).T + _array(layer.bias)


def _embedded(model: legenda.models.Captioner, ratios: np.ndarray, which: int = 0) -> np.ndarray:
    """G of Eq. 9 at the ratios of Eq. 15, distances being 0.001 at least."""
    f = np.log(np.concatenate([np.maximum(ratios[:, :2], 1e-3), ratios[:, 2:]], axis=1))
    return np.maximum(_linear(model.encoder.geometry.embeddings[which].linear, f), 0)


def _softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_content_independent_weight_is_that_of_equation_11(scaled):
    model = _model("gsan", geometry="content", geometry_dim=4, geometry_scaled=scaled)
    (bias,) = [attention.score_bias for attention in attentions_of(model, 1)]
    phi = np.maximum(_embedded(model, RATIOS) @ _array(bias.weight).T, 0).T
    assert not depends_on_features(model, 1)
    assert (phi > 0).any()
    np.testing.assert_allclose(geometric_weights(model, 1, RATIOS), phi[None], rtol=1e-12, atol=1e-12)


def _grid(rows: int, columns: int) -> Regions:
    torch.manual_seed(4)
    return Regions.from_grid(torch.randn(1, rows * columns, 6), rows, columns)


def test_z_of_distances_is_the_softmax_of_their_factors_alone():
    model = _model("mdsan", branches=1)
    (attention,) = attentions_of(model, 1)
    w, v = _array(attention.rescale.weight), _array(attention.rescale.shift)
    places = [(row, column) for row in range(2) for column in range(3)]
    expected = np.zeros((2, 6, 6))
    for head in range(2):
        for i, (y, x) in enumerate(places):
            for j, (other_y, other_x) in enumerate(places):
                apart = abs(y - other_y) + abs(x - other_x)
                expected[head, i, j] = (1 + np.exp(v[head])) / (1 + np.exp(v[head] - w[head] * apart))
    found = position_matrices(model, _grid(2, 3), 1, 1)
    np.testing.assert_allclose(found, _softmax(expected), atol=1e-6)
    assert distance_weights(model, 1) == [pytest.approx(w)]
    assert distance_weights(_model("transformer"), 1) == [None]
