"""The settings that training objectives read."""

import math
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from legenda.config import Config, Count, Fraction, NonNegativeInt, PositiveInt, Probability
from legenda.errors import ConfigError


class SelfCriticalConfig(Config):
    """Self-critical sequence training (Rennie et al., 2017): sampling, reward, baseline and reduction."""

    num_samples: Count = 5
    """Captions sampled per image and step; with beam search the beam size, all of whose captions are used."""
    sample_method: Literal["multinomial", "beam"] = "multinomial"
    """Ancestral sampling, or beam search (Cornia et al., 2020; MD-SAN, Eq. 16)."""
    dropout: bool = True
    """Whether dropout is active while sampling, as in all releases; the greedy baseline always runs without it."""
    baseline: Literal["greedy", "mean_of_others", "mean"] = "mean_of_others"
    """The reward that is subtracted: that of the greedy caption (AoANet, X-LAN), the mean over the image's other
    samples, or the mean over all its samples (MD-SAN, for beams)."""
    rewards: Mapping[str, float] = Field(default_factory=lambda: {"CIDEr-D": 1.0})
    """The weight of each reward: CIDEr-D, BLEU-4, CLIPScore (of data with images), and registered ones."""
    clip: str = "openai/clip-vit-base-patch32"
    """The CLIP model of the reward CLIPScore, on the hub or in a folder."""
    reward_includes_eos: bool = True
    """Whether the end token counts as a word of captions and references (AoANet, X-LAN: yes; MD-SAN: no)."""
    max_reference_length: NonNegativeInt = 0
    """References are truncated to this many tokens for the reward, the end token included (AoANet, X-LAN: 16); 0 keeps
    them whole."""
    reward_on_words: bool = False
    """Whether rewards compare PTB tokens instead of ids of the vocabulary, so that unknown words of references differ
    from each other (MD-SAN and M2 as released)."""
    df_unit: Literal["images", "captions"] = "images"
    """What counts as a document of CIDEr-D's document frequencies: all references of an image together, or each caption
    (MD-SAN)."""
    loss_reduction: Literal["token", "sequence", "max_length"] = "token"
    """What the sum over tokens, end tokens included, is divided by: the number of tokens (AoANet, X-LAN), the number of
    captions (the gradient of the expected reward), or captions times `max_length` (MD-SAN)."""
    max_length: PositiveInt = 20
    """Tokens of the longest sampled caption, the end token included."""
    xe_weight: Probability = 0.0
    """Weight of the cross-entropy of the image's reference captions; the policy gradient has 1 - `xe_weight`."""

    @model_validator(mode="after")
    def _check_self_critical(self) -> Self:
        if self.num_samples < 2 and self.baseline != "greedy":
            raise ConfigError(f"a baseline {self.baseline} needs training.self_critical.num_samples of at least 2")
        if not self.rewards or not all(math.isfinite(weight) for weight in self.rewards.values()):
            raise ConfigError("training.self_critical.rewards needs at least one reward, each with a finite weight")
        return self


class ScheduledSamplingConfig(Config):
    """Scheduled sampling (Bengio et al., 2015): how often an input token is replaced by a sample of the model.

    The probability grows by `increment` every `interval` epochs after `start_epoch`, up to `max_prob`; an `increment`
    of 0 turns it off.
    """

    increment: Fraction = 0.0
    start_epoch: NonNegativeInt = 0
    interval: PositiveInt = 5
    max_prob: Fraction = 0.5

    def at(self, epoch: int) -> float:
        """Return the probability in an epoch, counted from 1."""
        return min(self.increment * (max(epoch - 1 - self.start_epoch, 0) // self.interval), self.max_prob)


class ObjectiveConfig(Config):
    """What a training stage minimizes, and on which batches."""

    objective: Literal["cross_entropy", "self_critical"] = "cross_entropy"
    """The negative log-likelihood of the reference captions, or minus the expected reward of sampled captions."""
    self_critical: SelfCriticalConfig = Field(default_factory=SelfCriticalConfig)
    """Settings of the objective self_critical."""
    batch_size: PositiveInt = 10
    """Examples (images, questions, sentence pairs) per step, the total over all devices and accumulation steps."""
    captions_per_image: Count = 5
    """Reference captions per image and step; they share one encoding of the image."""
    max_caption_length: PositiveInt = 16
    """Training captions are truncated to this many words."""
    label_smoothing: Probability = 0.0
    label_smoothing_target: Literal["all", "non_target"] = "all"
    """The words that share the smoothed mass: all (Szegedy et al., 2016), or all but the target, in which case the loss
    is the KL divergence, whose minimum is 0 (AoANet and X-Transformer as released)."""
    scheduled_sampling: ScheduledSamplingConfig = Field(default_factory=ScheduledSamplingConfig)
