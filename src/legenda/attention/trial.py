"""The trial of a registered attention: whether it can be called, and whether it does what it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from legenda.attention.geometry import Geometry, geometric_biases
from legenda.errors import ConfigError, LegendaError
from legenda.registry import reason_of

IMAGES, REGIONS = 2, 5
"""The size of the trial's input."""
_CERTAIN = {"drop_head": 0.999}
"""Values with which one call shows an option that acts by chance."""


def try_attention(
    options: Any,
    build: Callable[..., nn.Module],
    dim: int,
    num_heads: int,
    width: int,
    *,
    declared: Mapping[str, object],
    **how: Any,
) -> None:
    """Raise ConfigError where an attention fails, reads padding, or gives the same with an option as without it.

    It attends once among a few random regions, once more with another padding, and once more without each declared
    option, with equal weights and equal random numbers. The state of PyTorch's random numbers stays as it is.

    options: an AttentionConfig. build, how: as `AttentionKind.build`. width: channels of the output. declared: the
    options that the attention honors and that are set, with their defaults.
    """

    def attend(settings: Any, weights: Mapping[str, Tensor], padding: float = 0.0) -> tuple[Any, dict[str, Tensor]]:
        attention = build(settings, dim, num_heads, dropout=0.0, **how)
        state, generator = attention.state_dict(), torch.Generator().manual_seed(0)
        inputs, mask, geometry = _draw_inputs(settings, dim, generator)
        inputs[~mask] += padding
        parameters = dict(attention.named_parameters())
        for name, tensor in state.items():
            if name in weights and weights[name].shape == tensor.shape:
                tensor.copy_(weights[name])
            elif name in parameters:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * dim**-0.5)
        torch.manual_seed(0)
        return attention(inputs, inputs, inputs, mask, geometry), state

    heads = options.attention_heads or num_heads
    natural = {"attention_heads": num_heads, "head_dim": (how["inner_dim"] or dim) // heads}
    natural["query_head_dim"] = options.head_dim or natural["head_dim"]
    with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            output, weights = attend(options, {})
            shape = getattr(getattr(output, "values", None), "shape", None)
            if shape != (IMAGES, REGIONS, width):
                raise ConfigError(
                    f"attention={options.attention!r} must return AttentionOutput with values of the shape (B, N, "
                    f"{width}), also with {how}"
                )
            padded = attend(options, weights, padding=1.0)[0].values
            if not torch.allclose(*(values.flatten(0, 1)[:-1] for values in (output.values, padded)), atol=1e-4):
                raise ConfigError(
                    f"attention={options.attention!r} attends to regions that are not there; hide those of which mask "
                    "(B, N) is False"
                )
            for name, default in declared.items():
                if natural.get(name) == getattr(options, name):
                    continue
                with_option = options.model_copy(update={name: _CERTAIN.get(name, getattr(options, name))})
                without = options.model_copy(update={name: default})
                if torch.equal(attend(with_option, weights)[0].values, attend(without, weights)[0].values):
                    raise ConfigError(
                        f"attention={options.attention!r} declares that it honors {name}, but computes the same with "
                        f"{name}={getattr(options, name)!r} as without; use it, or leave it out of honors="
                    )
        except LegendaError:
            raise
        except Exception as error:
            raise ConfigError(
                f"attention={options.attention!r} cannot attend among {REGIONS} regions of {dim} channels with {how} "
                f"({reason_of(error)}); correct it"
            ) from error


def _draw_inputs(options: Any, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Geometry]:
    """Return regions, their mask, and a geometry with what the options read, independent of their values."""
    pairs = IMAGES, REGIONS, REGIONS
    regions = torch.randn(IMAGES, REGIONS, dim, generator=generator)
    is_learned = options.geometry == "relative" or bool(geometric_biases(options.geometry))
    embedded = torch.rand(*pairs, options.geometry_dim if is_learned else 4, generator=generator)
    distance = 3 * torch.rand(pairs, generator=generator)
    mask = torch.ones(IMAGES, REGIONS, dtype=torch.bool)
    mask[-1, -1] = False
    near = torch.arange(REGIONS)
    window = ((near[:, None] - near[None, :]).abs() <= 1).expand(pairs)
    geometry = Geometry(
        None if options.geometry == "none" else embedded,
        None if options.distance == "none" else distance,
        None if options.window == "none" else window,
    )
    return regions, mask, geometry
