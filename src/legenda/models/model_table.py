"""The registries of models and decoders.

A variant of a model, such as a row of a paper's ablation, is a base model and overrides: a recipe of `legenda.papers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from legenda.plugins import Registry, resolve

if TYPE_CHECKING:
    from legenda.models.config import ModelConfig


@dataclass(frozen=True)
class Entry:
    """One named model: its configuration, what the name fixes in it, and where it comes from.

    config_class: the class of its configuration, or where it is as "module:attribute".
    vocab_size: the size of the paper's vocabulary with its special ids, for which parameters are counted.
    task: what it is for.
    """

    config_class: type[ModelConfig] | str
    paper: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    vocab_size: int = 9488
    task: str = "captioning"

    @property
    def config(self) -> type[ModelConfig]:
        """The class of its configuration."""
        return resolve(self.config_class)


_TRANSFORMER = "legenda.models.transformer.config:TransformerConfig"
_XLAN, _NGSAN = "Pan et al., CVPR 2020", "Guo et al., CVPR 2020"

MODELS: Registry[Entry] = Registry(
    "model",
    {
        "transformer": Entry(_TRANSFORMER, _NGSAN, "SAN: the Transformer, the baseline"),
        "nsan": Entry(_TRANSFORMER, _NGSAN, "N-SAN: instance-normalized queries", {"norm": "in"}),
        "gsan": Entry(_TRANSFORMER, _NGSAN, "G-SAN: query-dependent geometry", {"geometry": "query"}),
        "ngsan": Entry(
            _TRANSFORMER,
            _NGSAN,
            "NG-SAN: normalized queries and query-dependent geometry",
            {"norm": "in", "geometry": "query"},
        ),
        "ort": Entry(
            _TRANSFORMER,
            "Herdade et al., NeurIPS 2019",
            "Object Relation Transformer: relative geometry, six layers, normalization first",
            {"geometry": "relative", "num_layers": 6, "norm_first": True},
        ),
        "aoanet": Entry(
            "legenda.models.aoanet.config:AoANetConfig",
            "Huang et al., ICCV 2019",
            "AoANet: attention on attention in encoder and decoder",
            vocab_size=10370,
        ),
        "updown": Entry(
            "legenda.models.updown_config:UpDownConfig",
            "Anderson et al., CVPR 2018",
            "Up-Down: an attention LSTM and a language LSTM",
            vocab_size=10010,
        ),
        "xlan": Entry(
            "legenda.models.x_linear_config:XLanConfig", _XLAN, "X-LAN: X-Linear attention in an encoder and an LSTM"
        ),
        "xtransformer": Entry(
            "legenda.models.xtransformer.config:XTransformerConfig",
            _XLAN,
            "X-Transformer: X-Linear attention in a Transformer",
        ),
        "mdsan": Entry(
            "legenda.models.mdsan_config:MdsanConfig",
            "Ji et al., MD-SAN",
            "MD-SAN: distance-sensitive attention of several branches",
            vocab_size=10201,
        ),
        "meshed": Entry(
            "legenda.models.mdsan_config:MeshedConfig",
            "Cornia et al., CVPR 2020",
            "Meshed-Memory Transformer, on which MD-SAN's release is based",
            vocab_size=10201,
        ),
        "mcan": Entry(
            "legenda.models.co_attention_config:McanConfig",
            "Yu et al., CVPR 2019",
            "MCAN: answers to questions, by co-attention of question and regions",
            vocab_size=20572,
            task="vqa",
        ),
        "mcan_grounding": Entry(
            "legenda.models.co_attention_config:GroundingConfig",
            "Yu et al., ACM MM 2020",
            "MCAN for grounding: the region that an expression means",
            task="grounding",
        ),
        "translator": Entry(
            "legenda.models.translator_config:TranslatorConfig",
            "Vaswani et al., NeurIPS 2017",
            "Transformer-Base for translation",
            vocab_size=32768,
            task="translation",
        ),
    },
)

DECODERS: Registry[Entry] = Registry("decoder", {})
"""Decoders that users register apart from a model; each entry has a `CaptionerConfig` with `build_decoder`."""
