"""Image-to-text models of Hugging Face's transformers in place of a run, with their own processor and `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from legenda.decoding import GenerationOutput
from legenda.decoding.generation import GenerationConfig
from legenda.errors import ConfigError, DataError
from legenda.hub import HUB_PREFIX
from legenda.images.extractor import Extractor, ImageRegions
from legenda.models.backbone import hub_errors, load_pretrained
from legenda.models.base import CaptionerConfig, SelfSearchingCaptioner
from legenda.registry import reason_of

_WHOLE = np.array([[0, 0, 1, 1]], np.float32)


@dataclass(frozen=True)
class HubVocabulary:
    """The tokenizer of a model."""

    tokenizer: Any

    def words(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """Return the words of the caption, of which each may have several tokens."""
        return tuple(self.tokenizer.decode(tokens, skip_special_tokens=True).split())

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the caption of tokens, on one line."""
        return " ".join(self.words(tokens))

    @property
    def ids(self) -> NoReturn:
        """Raise ConfigError: a word has no token of its own."""
        raise ConfigError(
            "--must and --forbidden-last-words are for captioners of Legenda; models of transformers lack them"
        )

    @property
    def eos_token_id(self) -> int:
        """The token that ends a caption."""
        eos, sep = self.tokenizer.eos_token_id, self.tokenizer.sep_token_id
        return int(sep or 0) if eos is None else int(eos)


class HubCaptioner(SelfSearchingCaptioner):
    """A model of transformers with the interface of a captioner; its one region is the whole image.

    The options of a search that `generate` lacks are refused. Words have no attention of their own: it is 1.
    """

    vocabulary: Any  # a HubVocabulary, which has the part of a Vocabulary that captions need

    def __init__(self, name: str, net: Any, tokenizer: Any) -> None:
        nn.Module.__init__(self)
        self.name, self.net, self.vocabulary = name, net, HubVocabulary(tokenizer)
        self.config, self.generation_config, self.backbone = CaptionerConfig(vocab_size=1), GenerationConfig(), None

    def generate(
        self,
        images: Any,
        config: GenerationConfig,
        num_captions: int,
        names: Sequence[str] | None = None,  # noqa: ARG002 - the seed is that of the batch
        *,
        need_attention: bool = False,  # noqa: ARG002
    ) -> GenerationOutput:
        """Return captions of the processor's pixels `(B, 1, 3 * S * S)` by the model's own beam search or sampling."""
        settings = _generate_settings(config)
        B = len(images.features)
        side = round((images.features.shape[2] / 3) ** 0.5)
        pixels = images.features.reshape(B, 3, side, side)
        cuda = [pixels.device] if pixels.is_cuda else []
        try:
            with torch.random.fork_rng(devices=cuda), torch.no_grad():
                torch.manual_seed(config.seed)
                settings |= {"return_dict_in_generate": True, "output_scores": True}
                output = self.net.generate(pixel_values=pixels, num_return_sequences=num_captions, **settings)
        except Exception as error:  # models raise exceptions of any type for inputs that they need and lack
            raise DataError(
                f"{self.name} does not caption images alone ({reason_of(error)}); name another model"
            ) from error
        tokens = output.sequences.unflatten(0, (B, num_captions))
        ends = [self.vocabulary.eos_token_id, getattr(self.net.generation_config, "eos_token_id", None)]
        sums = _log_probs(output, ends).reshape(B, num_captions)
        log_probs = torch.zeros(tokens.shape, device=tokens.device)
        log_probs[..., 0] = sums  # of the caption as a whole
        return GenerationOutput(tokens, log_probs, sums, torch.ones(*tokens.shape, 1, 1, device=tokens.device))


def _generate_settings(config: GenerationConfig) -> dict[str, object]:
    """Return the arguments of `generate`, whose defaults are the model's own; raise ConfigError where it lacks one."""
    for name in ("num_beam_groups", "trigram_penalty"):
        if getattr(config, name) != GenerationConfig.model_fields[name].default:
            raise ConfigError(
                f"--{name.replace('_', '-')} is for captioners of Legenda; models of transformers lack it"
            )
    if config.do_sample:
        settings: dict[str, object] = {"do_sample": True, "num_beams": 1, "temperature": config.temperature}
        settings |= {"top_k": config.top_k or 0, "top_p": config.top_p or 1.0}
    else:
        settings = {"do_sample": False, "num_beams": config.beam_size}
    names = {"length_penalty": "length_penalty", "max_length": "max_new_tokens"}
    names |= {"no_repeat_ngram_size": "no_repeat_ngram_size"}
    return settings | {
        theirs: getattr(config, name) for name, theirs in names.items() if name in config.model_fields_set
    }


def _log_probs(output: Any, ends: Sequence[object]) -> Tensor:
    """Return the score of each sequence: that of beam search, or the sum of the tokens' log-probabilities.

    ends: the ids, and lists of ids, with which a caption ends; the padding behind it does not count.
    """
    if getattr(output, "sequences_scores", None) is not None:
        return output.sequences_scores
    scores = torch.stack(output.scores, dim=1).log_softmax(dim=-1)
    tokens = output.sequences[:, -scores.shape[1] :]
    chosen = scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    ids = [number for end in ends for number in (end if isinstance(end, list) else [end]) if isinstance(number, int)]
    is_end = torch.isin(tokens, torch.tensor(ids, device=tokens.device))
    is_padding = (is_end.cumsum(dim=1) > is_end) | chosen.isneginf()
    return chosen.masked_fill(is_padding, 0.0).sum(dim=1)


def extractor_of(processor: object, name: str) -> Extractor:
    """Return the processor of a model, hf:NAME or hf:FOLDER, as an extractor of whole images."""
    return Extractor(f"processor of {name}", partial(_process, processor, name))


def _process(processor: Any, name: str, images: list[Image.Image]) -> list[ImageRegions]:
    pixels = processor(images=images, return_tensors="pt")["pixel_values"].float().numpy()
    if pixels.ndim != 4 or pixels.shape[2] != pixels.shape[3]:
        raise ConfigError(f"{name} reads images of the shape {pixels.shape[1:]}, not squares; name another model")
    return [(image.reshape(1, -1), _WHOLE) for image in pixels]


def load_hub_model(folder: Path) -> tuple[HubCaptioner, object]:
    """Return a model of transformers, hf:NAME or hf:FOLDER, in evaluation mode, and its processor of images.

    It is read without running code of its own. Raise ConfigError, naming it, where it cannot be loaded or is no
    image-to-text model.
    """
    name = str(folder).removeprefix(HUB_PREFIX)
    net, processor = load_pretrained(name, "AutoModelForImageTextToText", allow_download=True)
    from transformers import AutoTokenizer

    with hub_errors(name, allow_download=True):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    return HubCaptioner(str(folder), net, tokenizer).eval(), processor
