"""The table of named models: every system of the four papers, and every row of their ablations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from legenda.models.aoanet import AoANetConfig
from legenda.models.grounding import GroundingConfig
from legenda.models.mcan import McanConfig
from legenda.models.mdsan import MdsanConfig
from legenda.models.meshed import MeshedConfig
from legenda.models.model import Config
from legenda.models.transformer import TransformerConfig
from legenda.models.translator import TranslatorConfig
from legenda.models.xlan import XLanConfig
from legenda.models.xtransformer import XTransformerConfig


@dataclass(frozen=True)
class Entry:
    """One named model: its configuration, what the name fixes in it, and where it comes from.

    row: the table of the paper, and the row in it, that this model is; empty for none.
    words: the size of the paper's vocabulary with its special ids, for which parameters are told.
    task: what it is for.
    """

    config: type[Config]
    paper: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    row: str = ""
    words: int = 9488
    task: str = "captioning"


_NGSAN = "Guo et al., CVPR 2020"
_AOANET = "Huang et al., ICCV 2019"
_XLAN = "Pan et al., CVPR 2020"
_MDSAN = "Ji et al., MD-SAN"

_MCAN = "Yu et al., CVPR 2019"
_MMNAS = "Yu et al., ACM MM 2020"
_QUERY_GEOMETRY = {"geometry": "query"}
_DISTANCES_AND_BRANCHES = {"distance": "manhattan", "branches": 3, "branch_drop": 0.4}
_LARGE = {"dim": 1024, "num_heads": 16, "ff_dim": 4096, "pooled_dim": 2048}

_PLAIN = {"distance": "none", "branches": 1, "branch_drop": 0.0}
_ONE_BRANCH = {"branches": 1, "branch_drop": 0.0}
_BRANCHES_ONLY = {"distance": "none"}

_ADDITIVE = {"num_layers": 0, "multi_head": False}
_UNREFINED = {"num_layers": 0}


def _transformer(summary: str, row: str, **settings: Any) -> Entry:
    return Entry(TransformerConfig, _NGSAN, summary, settings, row)


def _xlan(summary: str, row: str, **settings: Any) -> Entry:
    return Entry(XLanConfig, _XLAN, summary, settings, row)


def _mdsan(summary: str, row: str, **settings: Any) -> Entry:
    return Entry(MdsanConfig, _MDSAN, summary, settings, row, words=10201)


def _mcan(summary: str, paper: str, row: str = "", **settings: Any) -> Entry:
    return Entry(McanConfig, paper, summary, settings, row, words=20572, task="vqa")


def _grounding(summary: str, paper: str, row: str = "", **settings: Any) -> Entry:
    return Entry(GroundingConfig, paper, summary, settings, row, task="grounding")


def _translator(summary: str, paper: str, row: str, **settings: Any) -> Entry:
    return Entry(TranslatorConfig, paper, summary, settings, row, words=32768, task="translation")


def _aoanet(summary: str, row: str, **settings: Any) -> Entry:
    return Entry(AoANetConfig, _AOANET, summary, settings, row, words=10370)


MODELS: dict[str, Entry] = {
    "transformer": _transformer("SAN: the Transformer baseline", "Table 1, SAN"),
    "nsan": _transformer("N-SAN: instance-normalised queries", "Table 1, N-SAN", norm="in"),
    "gsan": _transformer("G-SAN: query-dependent geometry", "Table 4, query-dependent", geometry="query"),
    "ngsan": _transformer("NG-SAN: both", "Table 6, NG-SAN", norm="in", geometry="query"),
    "aoanet": _aoanet("AoANet as released", "Table 4, full"),
    "aoanet_paper": _aoanet(
        "AoANet as printed",
        "Equations 6 to 14",
        reading="paper",
        aoa_dropout=0.0,
        attention_dropout=0.0,
        context_dropout=False,
    ),
    "aoanet_base": _aoanet(
        "no refiner, additive attention, linear context", "Table 4, base", **_ADDITIVE, context="linear"
    ),
    "aoanet_refine": _aoanet(
        "base with a Transformer's refiner",
        "Table 4, + Enc: refine (w/o AoA)",
        refiner_aoa=False,
        refiner_ff=True,
        multi_head=False,
        context="linear",
    ),
    "aoanet_refine_aoa": _aoanet(
        "base with AoA in the refiner", "Table 4, + Enc: refine (w/ AoA)", multi_head=False, context="linear"
    ),
    "aoanet_lstm": _aoanet("base with an LSTM as context", "Table 4, + Dec: LSTM", **_ADDITIVE, context="lstm"),
    "aoanet_aoa": _aoanet("base with AoA as context", "Table 4, + Dec: AoA", **_ADDITIVE),
    "aoanet_lstm_aoa": _aoanet(
        "base with AoA on an LSTM as context", "Table 4, + Dec: LSTM + AoA", **_ADDITIVE, context="lstm_aoa"
    ),
    "aoanet_mh": _aoanet("base with multi-head attention", "Table 4, + Dec: MH-Att", **_UNREFINED, context="linear"),
    "aoanet_mh_lstm": _aoanet(
        "multi-head attention, LSTM as context", "Table 4, + Dec: MH-Att, LSTM", **_UNREFINED, context="lstm"
    ),
    "aoanet_mh_aoa": _aoanet("multi-head attention, AoA as context", "Table 4, + Dec: MH-Att, AoA", **_UNREFINED),
    "updown": Entry(
        AoANetConfig,
        "Anderson et al., CVPR 2018",
        "two LSTMs with additive attention, in AoANet's frame",
        {**_ADDITIVE, "context": "lstm"},
        words=10370,
    ),
    "xlan": _xlan("X-LAN as released", "Table 3, 4 x X-Linear (+ELU)"),
    "xlan_paper": _xlan(
        "X-LAN as printed",
        "Equations 2 to 10",
        reading="paper",
        num_heads=1,
        alpha=1.0,
        region_act="none",
        word_act="none",
    ),
    "xlan_base": _xlan(
        "no encoder, conventional attention",
        "Table 3, LSTM + conventional attention",
        num_layers=0,
        attention="conventional",
        act="relu",
    ),
    "xlan_encoder0": _xlan("no encoder, no ELU", "Table 3, LSTM + X-Linear", num_layers=0, act="relu"),
    **{
        f"xlan_encoder{blocks}": _xlan(
            f"X-Linear encoder of {blocks}, no ELU", f"Table 3, {blocks} x X-Linear", num_layers=blocks, act="relu"
        )
        for blocks in (1, 2, 3, 4)
    },
    "xtransformer": Entry(
        XTransformerConfig, _XLAN, "X-Linear attention in a Transformer", row="Table 1, X-Transformer"
    ),
    "mdsan": _mdsan("MD-SAN as released", "Table XIII, Transformer+DSA+MSA"),
    "mdsan_paper": _mdsan(
        "as printed: one normalisation around each attention, sinusoids, w = 1 and v = 0 at first",
        "",
        reading="paper",
        distance_start="one",
    ),
    "mdsan_plain": _mdsan("MD-SAN's plain Transformer", "Table XIII, Transformer", **_PLAIN),
    "mdsan_dsa": _mdsan("distance-sensitive attention only", "Table XIII, Transformer+DSA", **_ONE_BRANCH),
    "mdsan_msa": _mdsan("multi-branch attention only", "Table XIII, Transformer+MSA", **_BRANCHES_ONLY),
    "mdsan_msa_m2": _mdsan("multi-branch attention with two branches", "Table V, M = 2", **_BRANCHES_ONLY, branches=2),
    "mdsan_msa_m4": _mdsan("multi-branch attention with four branches", "Table V, M = 4", **_BRANCHES_ONLY, branches=4),
    "mdsan_abspe": _mdsan("absolute position embedding", "Table VII, Transformer+AbsPE", **_PLAIN, geometry="absolute"),
    "mdsan_relpe": _mdsan("relative position embedding", "Table VII, Transformer+RelPE", **_PLAIN, geometry="relative"),
    "mdsan_cheby": _mdsan("Chebyshev distance", "Table VII, Transformer+ChebyDSA", **_ONE_BRANCH, distance="chebyshev"),
    "mdsan_eucli": _mdsan("Euclidean distance", "Table VII, Transformer+EucliDSA", **_ONE_BRANCH, distance="euclidean"),
    "mdsan_lpf": _mdsan(
        "distance scaled piecewise linearly", "Table VIII, DSA-LPF", **_ONE_BRANCH, distance_scaling="linear"
    ),
    "mdsan_qpf": _mdsan(
        "distance scaled piecewise quadratically", "Table VIII, DSA-QPF", **_ONE_BRANCH, distance_scaling="quadratic"
    ),
    "mdsan_ns": _mdsan("distance scaled by a number", "Table VIII, DSA-NS", **_ONE_BRANCH, distance_scaling="scalar"),
    "mdsan_swin": _mdsan("shifted windows", "Table IX, Transformer+Swin", **_PLAIN, window="swin"),
    "mdsan_halo": _mdsan("blocks with a halo", "Table IX, Transformer+Halo", **_PLAIN, window="halo"),
    "mdsan_talking": _mdsan("talking heads", "Table X, Transformer+Talking", **_PLAIN, talking_heads=True),
    "mdsan_heads": _mdsan("3 x 8 heads", "Table X, Transformer+Mh-Heads", **_PLAIN, attention_heads=24, head_dim=64),
    "mdsan_extendqk": _mdsan(
        "queries and keys of 512 channels in each head", "Table X, Transformer+ExtendQK", **_PLAIN, query_head_dim=512
    ),
    "mdsan_large": _mdsan("8 heads of 192 channels", "Table X, Transformer-Large", **_PLAIN, head_dim=192),
    "mdsan_heads_drop": _mdsan(
        "3 x 8 heads, each dropped in training with probability 0.4",
        "Table XI, Transformer+Mh-Heads, 0.4",
        **_PLAIN,
        attention_heads=24,
        head_dim=64,
        head_drop=0.4,
    ),
    "mdsan_extendqk_drop": _mdsan(
        "extended queries and keys, each head dropped in training with probability 0.2",
        "Table XI, Transformer+ExtendQK, 0.2",
        **_PLAIN,
        query_head_dim=512,
        head_drop=0.2,
    ),
    **{
        f"mdsan_msa_{''.join(map(str, layers))}": _mdsan(
            f"MD-SAN with branches in layer {' and '.join(map(str, layers))} only",
            f"Table XII, +MSA-{','.join(map(str, layers))}",
            branch_layers=layers,
        )
        for layers in ((1,), (2,), (3,), (1, 2), (1, 3), (2, 3))
    },
    "meshed": Entry(
        MeshedConfig,
        "Cornia et al., CVPR 2020",
        "the Meshed-Memory Transformer without memory slots, from which MD-SAN's release grew",
        words=10201,
    ),
    "mcan": _mcan("MCAN-small as released: answers to questions", _MCAN, "VQA-v2, MCAN"),
    "mcan_large": _mcan("MCAN-large as released", _MCAN, **_LARGE),
    "mcan_gsa": _mcan(
        "MCAN with query-dependent geometry among the regions", _NGSAN, "Table 9, +GSA", **_QUERY_GEOMETRY
    ),
    "mcan_dsa_msa": _mcan(
        "MCAN with distances and three branches among the regions", _MDSAN, "Table XIV, Ours", **_DISTANCES_AND_BRANCHES
    ),
    "mcan_grounding": _grounding("MCAN as released for grounding: the region that an expression means", _MMNAS),
    "mcan_grounding_gsa": _grounding(
        "the same with query-dependent geometry among the regions", _NGSAN, **_QUERY_GEOMETRY
    ),
    "mcan_grounding_dsa_msa": _grounding(
        "the same with distances and three branches", _MDSAN, "Table XV, Ours", **_DISTANCES_AND_BRANCHES
    ),
    "translator": _translator(
        "Transformer-Base for translation", "Vaswani et al., NeurIPS 2017", "Table 8, Transformer-Base"
    ),
    "translator_nsa": _translator(
        "the same with instance-normalised queries in the encoder", _NGSAN, "Table 8, +NSA", norm="in"
    ),
}
