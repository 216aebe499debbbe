"""The shapes of a model's weights, without the memory of the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from legenda.errors import ConfigError
from legenda.models.model import Model
from legenda.models.registry import build_model


class _SkipInit(TorchFunctionMode):
    """Leave meta tensors as they are in place of random initialization, for which torch would import its compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensor = args[0] if args else kwargs.get("tensor")
        if name.endswith("_") and hasattr(torch.nn.init, name) and isinstance(tensor, Tensor):
            return tensor
        return func(*args, **kwargs)


def build_on_meta(name: str, options: Mapping[str, Any]) -> Model | None:
    """Return the model without values, or None for one of a plugin whose construction needs values.

    Raise ConfigError for options that no model has.
    """
    try:
        with torch.device("meta"), _SkipInit():
            return build_model(name, options)
    except (RuntimeError, OverflowError) as error:
        if "meta" in str(error):
            return None
        raise ConfigError(f"its options are those of no model ({str(error).splitlines()[0]})") from error
