"""Translator: a Transformer from sentence to sentence (Vaswani et al., 2017), with the attention options of NG-SAN."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from legenda.attention import Geometry
from legenda.attention.multi_head import Dropout
from legenda.config import Probability
from legenda.decoding.generation import GenerationConfig
from legenda.errors import CheckpointError, ConfigError, DataError
from legenda.extras.translation.subwords import SentencePieceTokenizer, SubwordTokenizer, load_subwords
from legenda.models.base import Model, TokenFiles
from legenda.models.layers import init_xavier_uniform_
from legenda.models.transformer import EncoderLayer, LayersConfig, TransformerDecoder, add_token_positions
from legenda.regions import Memory, masked_mean
from legenda.run_folder import SUBWORDS, VOCABULARY
from legenda.text import Vocabulary


class TranslatorConfig(LayersConfig):
    """Options of a translator; the defaults are Transformer-Base (fairseq's transformer_wmt_en_de).

    The options of attention are those of the encoder, as in NG-SAN's Table 8. Tokens have no boxes, so options that
    need boxes raise ConfigError.
    """

    derived: ClassVar[tuple[str, ...]] = ("vocab_size",)

    dropout: Probability = 0.1
    """Dropout rate of the embeddings and of each sublayer's output."""
    inner_dropout: Probability = 0.0
    """Dropout rate of the attention weights and inside the feed-forward networks."""
    norm_first: bool = False
    """Layer normalization before each sublayer, and after each stack, instead of after each sublayer."""

    @model_validator(mode="after")
    def _check_translator(self) -> TranslatorConfig:
        if self.needs_boxes:
            raise ConfigError(
                "the tokens of a sentence have no boxes: leave geometry, distance and window of a translator at none"
            )
        return self

    @property
    def inner_rate(self) -> float:
        """Dropout of attention weights and inside the feed-forward networks."""
        return self.inner_dropout

    @property
    def ends_with_norm(self) -> bool:
        """Whether a layer normalization follows the last layer of each stack."""
        return self.norm_first

    @property
    def is_tied(self) -> bool:
        """Whether the output layer has the weights of the embedding, and no bias."""
        return True

    def build(self) -> Model:
        """Return a new model with random weights."""
        return Translator(self)


class TokenEncoder(nn.Module):
    """L layers of self-attention among the tokens of a sentence."""

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, layer) for layer in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim) if config.ends_with_norm else nn.Identity()
        init_xavier_uniform_(self)

    def forward(self, embedded: Float[Tensor, "B N D"], attention_mask: Bool[Tensor, "B N"]) -> Memory:
        """Return the memory of embedded tokens; attention_mask: True for tokens, False for padding."""
        x = self.dropout(add_token_positions(embedded))
        for layer in self.layers:
            x = layer(x, attention_mask, Geometry())
        states = self.norm(x)
        return Memory(states, attention_mask, masked_mean(states, attention_mask))


class Translator(Model[TranslatorConfig, Vocabulary]):
    """An encoder of sentences with the captioners' decoder.

    One embedding serves the tokens of both languages and the output layer (Press and Wolf, 2017). All generation
    methods of captioners apply. The end token is also the begin token, as in fairseq.
    """

    subwords: SubwordTokenizer | None = None
    """The subword tokenizer of the vocabulary; None for a model that was created and not trained or loaded."""
    token_files: ClassVar[TokenFiles] = {
        "vocabulary": (VOCABULARY, Vocabulary.load),
        "subwords": (SUBWORDS, load_subwords),
    }

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = TokenEncoder(config)
        self.decoder = TransformerDecoder(config)
        self.decoder.reset_parameters()
        self.generation_config = GenerationConfig(finished_beams="release", length_penalty=0.6, max_length=100)

    def encode(self, source: Int[Tensor, "B N"]) -> Memory:
        """Return the memory of sentences, given as token ids that end with the end token and are padded with -1.

        Raise DataError for an id outside the vocabulary, or a sentence without tokens.
        """
        mask = source >= 0
        if source.shape[1] == 0 or (source.device.type == "cpu" and not bool(mask.any(dim=1).all())):
            raise DataError("every sentence needs at least one token, its end; one of these has none")
        if source.device.type == "cpu" and len(source) and int(source.max()) >= self.config.vocab_size:
            raise DataError(
                f"id {int(source.max())} is outside a vocabulary of {self.config.vocab_size} tokens; use the model's"
            )
        embedded = self.decoder.embedding(source.clamp(min=0))
        return self.decoder.precompute_cross_kv(self.encoder(embedded, mask)).contiguous()

    def forward(self, source: Int[Tensor, "B N"], tokens: Int[Tensor, "B K T"]) -> Float[Tensor, "B K T V"]:
        """Return the logits after every prefix of K rows of tokens per sentence; each begins with bos_token_id."""
        return self.decoder(tokens, self.encode(source))

    def encode_text(self, sentence: str) -> list[int]:
        """Return the token ids of a sentence, end included; raise ConfigError where the model has no subwords."""
        subwords, vocabulary = self._tokenizer
        return [*vocabulary.encode(subwords.tokenize(sentence)), vocabulary.eos_token_id]

    def decode_text(self, tokens: Iterable[int]) -> str:
        """Return the text of token ids up to the first end."""
        subwords, vocabulary = self._tokenizer
        return subwords.detokenize(vocabulary.words(tokens))

    @property
    def _tokenizer(self) -> tuple[SubwordTokenizer, Vocabulary]:
        if self.subwords is None or self.vocabulary is None:
            raise ConfigError("this translator has no subwords, so it cannot translate text; load or train one")
        return self.subwords, self.vocabulary

    def load_vocabulary(self, folder: Path) -> None:
        """Read both files; raise an error naming one that is missing, damaged, or of another vocabulary."""
        super().load_vocabulary(folder)
        if isinstance(self.subwords, SentencePieceTokenizer) and self.subwords.vocabulary() != self.vocabulary:
            raise CheckpointError(
                f"{folder / SUBWORDS} has other subwords than {folder / VOCABULARY}; restore those that the model was "
                "trained with"
            )
