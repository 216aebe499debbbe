"""Translator: the Transformer from sentence to sentence (Vaswani et al., 2017), with NG-SAN's attention in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import AttentionConfig, Geometry
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import UserError
from legenda.models.encoder import xavier
from legenda.models.model import Config, Model
from legenda.models.transformer import EncoderLayer, TransformerConfig, TransformerDecoder, placed_words
from legenda.regions import Memory, masked_mean
from legenda.run_files import SUBWORDS
from legenda.text import Vocabulary
from legenda.text.subwords import SubwordTokenizer, load_subwords


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(AttentionConfig, Config):
    """Sizes of a translator; the defaults are Transformer-Base (fairseq's transformer_wmt_en_de).

    The options of attention are those of the encoder, as in NG-SAN's Table 8. Words have no boxes, so whatever reads
    boxes is refused.
    """

    derived: ClassVar[tuple[str, ...]] = ("vocab_size",)

    dim: int = 512
    """Channels inside the model."""
    num_heads: int = 8
    num_layers: int = 6
    """Layers of the encoder, and of the decoder."""
    ff_dim: int = 2048
    """Inner channels of the feed-forward layers."""
    dropout: float = 0.1
    """Of embedded words and of what each sub-layer adds."""
    inner_dropout: float = 0.0
    """Of attention's weights and inside the feed-forward layers."""
    norm_first: bool = False
    """Layer normalisation before each sub-layer, and after each stack, instead of after each sub-layer."""

    def __post_init__(self) -> None:
        self.positive("dim", "num_heads", "num_layers", "ff_dim")
        self.shares("dropout", "inner_dropout")
        if self.dim % self.num_heads or self.dim % 2:
            raise UserError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
        self.check(self.dim)
        if self.needs_boxes:
            raise UserError(
                "the words of a sentence have no boxes: a translator takes no geometry, distance or window; leave them "
                "at none"
            )

    def build(self) -> Translator:
        """A translator with random weights."""
        return Translator(self)

    def stack(self) -> TransformerConfig:
        """What the layers of both halves read."""
        known = {field.name for field in fields(_Stack)}
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name in known}
        return _Stack(**own, inner=self.inner_dropout)


@dataclass(frozen=True, kw_only=True)
class _Stack(TransformerConfig):
    """The captioner's layers with dropout of their own inside."""

    inner: float

    @property
    def inner_dropout(self) -> float:
        return self.inner


class WordEncoder(nn.Module):
    """L layers of self-attention among the words of a sentence."""

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        stack = config.stack()
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(stack, layer) for layer in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim) if config.norm_first else nn.Identity()
        xavier(self)

    def forward(self, words: Float[Tensor, "B N D"], mask: Tensor) -> Memory:
        """Encoded words; `words` are embedded, `mask` `(B, N)` is True where they are real."""
        x = self.dropout(placed_words(words))
        for layer in self.layers:
            x = layer(x, mask, Geometry())
        states = self.norm(x)
        return Memory(states, mask, masked_mean(states, mask))


class Translator(Model):
    """A sentence is encoded once; the captioner's decoder reads it and writes rows of words.

    One embedding serves the words of both languages and the output layer (Press and Wolf, 2017). Every search that
    serves captioners serves it. The end of a sentence begins it too, as in fairseq.
    """

    config: TranslatorConfig
    generation_config: GenerationConfig
    subwords: SubwordTokenizer | None = None
    """How text becomes words of the vocabulary; None for a model that was created and not trained or loaded."""

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = WordEncoder(config)
        self.decoder = TransformerDecoder(config.stack(), last_norm=config.norm_first, tied=True)
        self.decoder.reset_parameters()
        self.generation_config = GenerationConfig(finished_beams="release", length_penalty=0.6, max_length=100)

    def encode(self, source: Int[Tensor, "B N"]) -> Memory:
        """The memory of sentences, whose ids end with the end's and are padded with -1.

        Raises UserError for an id outside the vocabulary, or a sentence without words.
        """
        mask = source >= 0
        if source.shape[1] == 0 or (source.device.type == "cpu" and not bool(mask.any(dim=1).all())):
            raise UserError("every sentence needs at least one word, its end; one of these has none")
        if source.device.type == "cpu" and int(source.max()) >= self.config.vocab_size:
            raise UserError(
                f"id {int(source.max())} is outside a vocabulary of {self.config.vocab_size} words; use the model's own"
            )
        words = self.decoder.embedding(source.clamp(min=0))
        return self.decoder.precompute_cross_kv(self.encoder(words, mask)).contiguous()

    def forward(self, source: Int[Tensor, "B N"], tokens: Int[Tensor, "B K T"]) -> Float[Tensor, "B K T V"]:
        """Logits after every prefix of K rows of tokens per sentence; the first token of a row is the begin id."""
        return self.decoder(tokens, self.encode(source))

    def read(self, sentence: str) -> list[int]:
        """The ids of a sentence and the end's; UserError where the model has no subwords."""
        subwords, vocabulary = self._words
        return [*vocabulary.encode(subwords.tokenize(sentence)), vocabulary.eos_token_id]

    def write(self, tokens: Iterable[int]) -> str:
        """Running text of ids up to the first end."""
        subwords, vocabulary = self._words
        return subwords.detokenize(vocabulary.decode(tokens).split())

    @property
    def _words(self) -> tuple[SubwordTokenizer, Vocabulary]:
        if self.subwords is None or self.vocabulary is None:
            raise UserError("this translator has no subwords, so it neither reads nor writes text; load or train one")
        return self.subwords, self.vocabulary

    def save_words(self, folder: Path) -> None:
        """Writes the vocabulary and, beside it, the subwords; neither where the model has neither.

        Raises UserError, and writes nothing, where it has but one of them.
        """
        self.check_words("vocabulary", "subwords")
        super().save_words(folder)
        if self.subwords is not None:
            self.subwords.save(folder / SUBWORDS)

    def load_words(self, folder: Path) -> None:
        """Reads both; UserError names a file that is missing or damaged."""
        super().load_words(folder)
        self.subwords = load_subwords(folder / SUBWORDS)
