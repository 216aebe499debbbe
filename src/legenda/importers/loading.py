"""Load a released checkpoint, and its vocabulary, into a model."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from legenda.errors import CheckpointError, ConfigError, DataError
from legenda.io import read_json, read_pickle, read_text
from legenda.models.base import Captioner, Model
from legenda.models.weights import NUMPY_GLOBALS, StandIn, read_tensors
from legenda.registry import Registry
from legenda.text import Vocabulary
from legenda.text.vocabulary import BEGIN, END, PAD, UNKNOWN, TokenList

TokenSource = str | Path | TokenList | None
"""The file of a vocabulary, or the vocabulary."""
_Kind = TypeVar("_Kind", bound=Model)

ReleasedName = str | tuple[str, slice]
"""The released name of a module or parameter, or that and the part of the first axis of its tensors."""

HEADS = 8
"""The number of attention heads of every released model."""

_PREFIX = "module."
"""The prefix that torch.nn.DataParallel adds to every name."""


class StateDictMapper:
    """The tensors of a released checkpoint, which become the parameters and buffers of a model.

    Read sizes from the shapes, and then `load_into` the model created for these sizes. Errors name missing, unexpected
    and misshapen tensors by their released names (source keys).

    source_keys: the source key of every parameter and buffer that was loaded.
    """

    def __init__(self, tensors: Mapping[str, Tensor], source: str) -> None:
        self.source = source
        prefixed = bool(tensors) and all(name.startswith(_PREFIX) for name in tensors)
        self.tensors = {name.removeprefix(_PREFIX) if prefixed else name: value for name, value in tensors.items()}
        self.source_keys: dict[str, str] = {}
        self._ignored: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise CheckpointError(f"{self.source} lacks {name}; give the complete state dict of the released model")
        return self.tensors[name]

    def size(self, name: str, axis: int = 0) -> int:
        """Return the length of one axis of a tensor."""
        shape = self[name].shape
        if len(shape) <= axis:
            raise CheckpointError(f"{self.source} holds {name} with shape {tuple(shape)}, which has no axis {axis}")
        return shape[axis]

    def count(self, pattern: str) -> int:
        """Return how many numbers "{}" matches in names that begin with `pattern`: 0, 1, 2 ... without a gap.

        `count("encoder.layers.{}.")` is the number of layers. Raise CheckpointError for a gap.
        """
        numbers = {int(match[1]) for name in self.tensors if (match := _pattern(pattern).match(name))}
        if numbers and numbers != set(range(len(numbers))):
            gap = min(set(range(max(numbers))) - numbers)
            raise CheckpointError(f"{self.source} lacks the tensors that begin with {pattern.format(gap)}")
        return len(numbers)

    def ignore(self, *names: str) -> None:
        """Skip tensors that the model does not need, where they are present."""
        self._ignored.update(names)

    def load_into(self, model: _Kind, names: Mapping[str, ReleasedName]) -> _Kind:
        """Load all tensors into the model, convert it to their precision, and set evaluation mode.

        names: the released name of each module or parameter by its name in the model, as `read_names` returns them.
        Raise CheckpointError for a tensor that is missing, is not in the model or has another shape.
        """
        patterns = {_pattern(target, r"(?=\.|$)"): name for target, name in names.items()}
        expected = model.state_dict()
        values: dict[str, Tensor] = {}
        for target_key in expected:
            matches = ((pattern.match(target_key), name) for pattern, name in patterns.items())
            match, name = next(((match, name) for match, name in matches if match), (None, ""))
            if match is None:
                raise CheckpointError(f"{self.source} has no {target_key}, which {model.name} has with these options")
            released_name, part = (name, slice(None)) if isinstance(name, str) else name
            source_key = _fill(released_name, match.groups()) + target_key[match.end() :]
            self.source_keys[target_key] = source_key
            values[target_key] = self[source_key][part] if self[source_key].dim() else self[source_key]
        if extra := sorted(self.tensors.keys() - self._ignored - {*self.source_keys.values()}):
            more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise CheckpointError(f"{self.source} holds {extra[0]}{more}, which {model.name} does not have")
        for target_key, value in values.items():
            if value.shape != expected[target_key].shape:
                source_key = self.source_keys[target_key]
                raise CheckpointError(
                    f"{self.source} holds {source_key} with shape {tuple(self.tensors[source_key].shape)}, which does "
                    f"not fit its other tensors: {tuple(expected[target_key].shape)} was expected"
                )
            if value.is_complex() or not torch.isfinite(value).all():
                source_key = self.source_keys[target_key]
                raise CheckpointError(f"{self.source} holds {source_key} with complex, NaN or infinite values")
        floating = [value.dtype for value in values.values() if value.is_floating_point()]
        model.to(torch.float64 if torch.float64 in floating else torch.float32)
        model.load_state_dict(values)
        return model.eval()


def read_names(release: str, package: str = "legenda.importers") -> dict[str, ReleasedName]:
    """Return the released name of each module or parameter of a release, by its name in the model.

    package: the one whose names.toml has the release.
    """
    return tomllib.loads(files(package).joinpath("names.toml").read_text(encoding="utf-8"))[release]


def _pattern(name: str, end: str = "") -> re.Pattern[str]:
    """Return the regular expression of names that begin with `name`, in which "{}" is a number."""
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)") + end)


def _fill(released_name: str, numbers: Sequence[str]) -> str:
    """Return a released name with the `numbers` of the model's name, as names.toml describes it."""
    following = iter(numbers)

    def number(match: re.Match[str]) -> str:
        factor, offset = match.groups()
        return str(int(factor or 1) * int(next(following)) + int(offset or 0))

    return re.sub(r"\{(?:(\d+)n\+(\d+))?\}", number, released_name)


_SPECIALS = {"UNK": UNKNOWN, "<unk>": UNKNOWN, "<pad>": PAD, "<bos>": BEGIN, "<eos>": END}
"""Legenda's names of the releases' special tokens."""
_PICKLES = "give the release's own file, or its vocabulary as a text with one word a line"


_ALLOWED: dict[str, Any] = {
    **{f"builtins.{kind.__name__}": kind for kind in (int, float, list, dict, str, set, frozenset, object)},
    "builtins.long": int,
    "copyreg._reconstructor": lambda kind, *_: kind(),  # of old protocols
    "_codecs.encode": lambda text, encoding: text.encode("latin-1" if encoding.startswith("latin") else "utf-8"),
    "collections.OrderedDict": dict,
    "collections.Counter": dict,
    "collections.defaultdict": lambda _, *arguments: dict(*arguments),
    "data.vocab._default_unk_index": int,  # it returns 0, and only stands in for a function
    **dict.fromkeys(("argparse.Namespace", "data.vocab.Vocab", "data.field.TextField", "vocab.Vocab"), StandIn),
    **dict.fromkeys(NUMPY_GLOBALS, StandIn),
}
"""Classes that the releases' pickles of vocabularies and options name, and their replacements."""


def load_vocab(kind: str, path: Path) -> Vocabulary:
    """Return the vocabulary of a release, with the ids of its weights.

    The file is one of:

    - a vocabulary.txt of Legenda;
    - a text file with one word a line, ids from 1, as in X-LAN's release (a first line "." has the id 0);
    - a JSON file with "ix_to_word", such as cocotalk.json and infos files, or only that mapping;
    - a pickle: infos_*.pkl of AoANet's release or vocab.pkl of MD-SAN's, read without executing code in them.
    """
    match path.suffix:
        case ".json":
            return Vocabulary(_parse_mapping(read_json(path, "give the cocotalk.json of the release"), path))
        case ".pkl" | ".pickle":
            return Vocabulary(_parse_pickle(read_pickle(path, _PICKLES, _ALLOWED), path))
        case ".txt":
            lines = read_text(path, "give one word a line").removesuffix("\n").split("\n")
            if END in lines:
                return Vocabulary.load(path)
            words = lines[1:] if lines[0] == "." else lines
            return Vocabulary((END, *map(_convert_special, words)))
        case _:
            raise DataError(f"{path} is not a vocabulary file of {kind}; give a .txt, .json or .pkl file")


def check_size(what: str, size: int, expected: int, source: str) -> None:
    """Raise DataError where the size of a vocabulary differs from that of the weights from `source`."""
    if size != expected:
        raise DataError(
            f"{what} has {size} entries, but {source} has {expected}; give the file that the model was trained with"
        )


def _convert_special(word: str) -> str:
    return _SPECIALS.get(word, word)


def _parse_mapping(content: object, path: Path) -> tuple[str, ...]:
    """Return the words of a mapping from ids, counted from 1; the id 0 is both BOS and EOS."""
    table = content.get("ix_to_word", content) if isinstance(content, Mapping) else None
    try:
        if not isinstance(table, Mapping) or not table:
            raise ValueError
        words = {int(number): str(word) for number, word in table.items()}
        return (END, *(_convert_special(words[number]) for number in range(1, len(words) + 1)))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f'{path} has no "ix_to_word" with the ids 1, 2, 3 ...; give the release\'s own file') from error


def _parse_pickle(content: object, path: Path) -> tuple[str, ...]:
    if isinstance(content, Mapping) and isinstance(content.get("vocab"), Mapping):
        return _parse_mapping(content["vocab"], path)
    words = content if isinstance(content, Sequence) else getattr(content, "itos", None)
    if isinstance(words, Sequence) and not isinstance(words, str) and all(isinstance(word, str) for word in words):
        return tuple(map(_convert_special, words))
    raise DataError(f"{path} contains no vocabulary; give infos_*.pkl of AoANet or vocab.pkl of MD-SAN")


def _set_caption_vocabulary(model: Captioner, vocabulary: TokenSource, answers: TokenSource, source: str) -> None:
    """Set the vocabulary of a captioner, where one is given, and the special token ids of its generation.

    Raise ConfigError for answers and for a vocabulary of another kind, and DataError for one of another size.
    """
    if answers is not None:
        raise ConfigError(f"{model.name} generates captions and does not choose from answers; leave answers out")
    if isinstance(vocabulary, TokenList) and not isinstance(vocabulary, Vocabulary):
        raise ConfigError(f"{model.name} generates captions; give a vocabulary of captions, not {vocabulary.kind}")
    if vocabulary is not None:
        tokens = vocabulary if isinstance(vocabulary, Vocabulary) else load_vocab(model.name, Path(vocabulary))
        check_size("the vocabulary, special tokens included,", len(tokens), model.config.vocab_size, source)
        model.vocabulary = tokens
        model.generation_config = model.generation_config.replace(
            bos_token_id=tokens.bos_token_id, eos_token_id=tokens.eos_token_id
        )


@dataclass(frozen=True)
class Importer:
    """How released weights become a model.

    build: called with a StateDictMapper, `num_heads` and options of the model. set_vocabulary: called with the model,
    the arguments `vocabulary` and `answers` of `load`, and the source of the weights for messages.
    """

    build: Callable[..., Model]
    set_vocabulary: Callable[[Any, TokenSource, TokenSource, str], None] = _set_caption_vocabulary


IMPORTERS: Registry[Importer] = Registry(
    "kind of weights",
    {
        "aoanet": "legenda.importers.releases:AOANET",
        "xlan": "legenda.importers.releases:XLAN",
        "xtransformer": "legenda.importers.releases:XTRANSFORMER",
        "mdsan": "legenda.importers.releases:MDSAN",
    },
)
"""The released codes whose weights can be loaded: AoANet and the ablations of its Table 4 (husthuaan/AoANet), X-LAN and
X-Transformer (JDAI-CV/image-captioning), MD-SAN, its plain and its multi-branch form
(Young499/image-captioning-MDSANet), and those of other tasks."""


_HINT = "give a .pth, .pt, .pkl, .npz or .safetensors file with the state dict of the released model"


def load(
    kind: str,
    weights: str | Path | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    vocabulary: TokenSource = None,
    answers: TokenSource = None,
    **options: object,
) -> Model:
    """Return a released model as a Legenda model in evaluation mode: same log-probabilities, captions and answers.

    kind: a name in IMPORTERS.
    weights: a checkpoint file (.pth, .pt, .pkl, .npz, .safetensors), or its tensors under their released names; a
        prefix "module." of all names is removed. Dimensions, layers, branches and the ablation follow from names
        and shapes.
    num_heads: 8 by default; X-Linear blocks determine it, and MCAN has one head for every 64 channels.
    vocabulary: the release's vocabulary file (see `load_vocab`), or a Vocabulary; without it the model generates ids
        only. For MCAN, a vocabulary.txt of Legenda whose words are in the order of their first occurrence, as in the
        release. A captioner gets the generation settings of its release, special token ids included.
    answers: for MCAN, its answer_dict.json or another JSON list, or an AnswerVocabulary.
    options: further options of the model, such as `dropout`.

    Raise ConfigError for an unknown kind, and CheckpointError or DataError for a file that cannot be read and, by its
    released name, for a tensor that is missing, unexpected or misshapen.
    """
    importer = IMPORTERS.get(kind)
    if isinstance(weights, str | Path):
        source, tensors = str(weights), read_tensors(Path(weights), _HINT)
    else:
        source, tensors = f"the state dict of {kind}", weights
    model = importer.build(StateDictMapper(tensors, source), num_heads=num_heads, **options)
    importer.set_vocabulary(model, vocabulary, answers, source)
    return model
