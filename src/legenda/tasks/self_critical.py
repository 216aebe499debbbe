"""Self-critical sequence training (Rennie et al., 2017), its rewards, and the health of its samples.

Rewards compare ids of the vocabulary, or PTB tokens, as released codes that score text do. A thread computes them while
the device computes the forward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from legenda.data.captions import CaptionDataset, TokenizedCaptions
from legenda.decoding import beam_search, greedy, sample
from legenda.decoding.generation import GenerationConfig
from legenda.errors import ConfigError
from legenda.metrics.rewards import BleuReward, CiderD
from legenda.models import Captioner
from legenda.models.base import eval_mode, train_mode
from legenda.models.clip import clip_score, load_clip
from legenda.models.packing import packed
from legenda.regions import Regions, at_least_float32
from legenda.registry import Registry
from legenda.tasks.base import Batch, Loss, ObjectiveConfig, PreparedBatch, SelfCriticalConfig, batch_to_regions
from legenda.tasks.objectives import (
    PADDING,
    CaptionObjective,
    advantages,
    policy_gradient,
    policy_gradient_normalizer,
    shift_right,
    token_mask,
    without_padding,
)
from legenda.text import Vocabulary, ptb_tokenize

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes indices of images in the training split `(B,)` and K captions of each as token ids `(B, K, T)`; returns float64
rewards `(B, K)`. A caption ends at its first end token, or has T tokens without one."""

_BUILT_IN: dict[str, Any] = {"CIDEr-D": CiderD, "BLEU-4": BleuReward}
_CLIP = "CLIPScore"

REWARDS: Registry[Callable[..., Any]] = Registry("reward", {**_BUILT_IN, _CLIP: f"{__name__}:ClipReward"})
"""Rewards by name; a class of rewards is called with the training split and the vocabulary."""


class ClipReward:
    """CLIPScore of captions and their images; features of images are computed once.

    Raise ConfigError for data that hold features instead of images.
    """

    def __init__(self, split: CaptionDataset, vocabulary: Vocabulary, model: str) -> None:
        assert split.open_images is not None  # by `check_rewards`
        self._open, self._vocabulary = split.open_images, vocabulary
        self._model = load_clip(model, "cuda" if torch.cuda.is_available() else "cpu")
        self._images: dict[int, Tensor] = {}

    def __call__(self, indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the scores `(B, K)` of K captions of each image."""
        missing = [index for index in indices.tolist() if index not in self._images]
        if missing:
            self._images |= dict(zip(missing, self._model.embed_images(self._open(np.array(missing))), strict=True))
        seen = torch.stack([self._images[index] for index in indices.tolist()])
        B, K = tokens.shape[:2]
        said = self._model.embed_texts([self._vocabulary.decode(row) for row in tokens.reshape(B * K, -1).tolist()])
        return clip_score(seen.repeat_interleave(K, dim=0), said).reshape(B, K).double().cpu().numpy()


def check_rewards(config: SelfCriticalConfig, split: CaptionDataset) -> None:
    """Raise ConfigError for an unknown reward, and for CLIPScore of data without images."""
    for name in config.rewards:
        REWARDS.get(name)
    if _CLIP in config.rewards and split.open_images is None:
        raise ConfigError(
            f"the reward {_CLIP} sees images, and {split.source} holds features; use data.kind=images or hf"
        )


class Rewards:
    """A weighted sum of rewards, computed in one thread, one batch after the other.

    wait_seconds: seconds that callers of `result` have waited in all.
    """

    def __init__(self, terms: Sequence[tuple[float, Reward]]) -> None:
        self.terms = list(terms)
        self.wait_seconds = 0.0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rewards")

    @staticmethod
    def from_config(config: SelfCriticalConfig, split: CaptionDataset, vocabulary: Vocabulary) -> Rewards:
        """Return the configured rewards against the references of a split; raise ConfigError as `check_rewards`."""
        check_rewards(config, split)
        parts = {name: REWARDS.get(name) for name in config.rewards}
        rewards: dict[str, Any] = {
            name: part(split, vocabulary) if isinstance(part, type) else part
            for name, part in parts.items()
            if name not in (*_BUILT_IN, _CLIP)
        }
        if _CLIP in parts:
            rewards[_CLIP] = ClipReward(split, vocabulary, config.clip)
        if built_in := parts.keys() & _BUILT_IN.keys():
            word_ids = WordIds(vocabulary) if config.reward_on_words else None
            as_scored = split.tokenize is None or word_ids is None
            tokenized = split.tokenized if as_scored else TokenizedCaptions.of(split.references)
            references = tokenized.ids(vocabulary.encode if word_ids is None else word_ids.encode)
            options: dict[str, Any] = {
                "eos_token_id": vocabulary.eos_token_id,
                "eos": "append" if config.reward_includes_eos else "drop",
                "max_reference_length": config.max_reference_length or None,
            }
            for name in built_in:
                more = {} if name != "CIDEr-D" else {"df": "captions" if config.df_unit == "captions" else "references"}
                reward = _BUILT_IN[name](references, **options, **more)
                rewards[name] = reward if word_ids is None else word_ids.wrap(reward)
        return Rewards([(weight, rewards[name]) for name, weight in config.rewards.items()])

    def start(self, indices: np.ndarray, tokens: Int[Tensor, "B K T"]) -> Future[np.ndarray]:
        """Start to compute the rewards of K captions of each image; return a future of `(B, K)`."""
        return self._executor.submit(self._compute, np.asarray(indices), tokens.cpu().numpy())

    def result(self, pending: Future[np.ndarray]) -> np.ndarray:
        """Return the rewards of a future, waiting for them."""
        started = time.monotonic()
        rewards = pending.result()
        self.wait_seconds += time.monotonic() - started
        return rewards

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(cancel_futures=True)

    def _compute(self, indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        total = np.zeros(tokens.shape[:2])
        for weight, reward in self.terms:
            values = np.asarray(reward(indices, tokens), dtype=np.float64)
            if values.shape != total.shape or not np.isfinite(values).all():
                raise ConfigError(f"a reward must return finite numbers of the shape {total.shape}, one per caption")
            total += weight * values
        return total


class WordIds:
    """The ids of a vocabulary's tokens, and further ones for all other words, each word with its own.

    Released codes that score text compare words: two unknown words of references differ, and a token of the vocabulary
    that the PTB tokenizer splits or removes is compared in that form.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_token_id
        self._ids = dict(vocabulary.ids)
        self._next = len(vocabulary)
        pieces = {number: ptb_tokenize(token) for token, number in vocabulary.ids.items()}
        self._replaced = {
            number: self.encode(words) for number, words in pieces.items() if words != [vocabulary.tokens[number]]
        }

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the id of each word; a new word gets the next free id."""
        ids = []
        for word in words:
            if word not in self._ids:
                self._ids[word] = self._next
                self._next += 1
            ids.append(self._ids[word])
        return ids

    def wrap(self, reward: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
        """Return a reward of captions `(B, K, T)` in ids of the vocabulary, given one of captions in these ids."""
        if not self._replaced:
            return reward
        replaced = np.array(sorted(self._replaced))

        def on_words(indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
            return reward(indices, self._replace(tokens) if np.isin(tokens, replaced).any() else tokens)

        return on_words

    def _replace(self, tokens: np.ndarray) -> np.ndarray:
        rows = []
        for row in tokens.reshape(-1, tokens.shape[-1]).tolist():
            end = row.index(self.eos_token_id) if self.eos_token_id in row else len(row)
            rows.append([number for token in row[:end] for number in self._replaced.get(token, [token])])
        out = np.full((len(rows), max(map(len, rows)) + 1), self.eos_token_id)
        for number, row in enumerate(rows):
            out[number, : len(row)] = row
        return out.reshape(*tokens.shape[:2], -1)


_BAD_ENDINGS = "a an the in for at of with before after on upon near to is are am and"
"""Words that end no complete caption: the list of self-critical.pytorch (Luo, 2017), and "and"."""

CURVES = {
    "advantage_mean": "mean advantage of samples",
    "advantage_std": "standard deviation of the advantage",
    "sample_length": "words per sample",
    "entropy": "token entropy (nats)",
    "distinct_samples": "distinct captions among the samples of an image",
    "distinct_images": "distinct captions among images",
    "bad_endings": "samples with a bad ending",
}
"""The metrics of `measure_samples`, with the titles of their curves."""

MIN_ENTROPY, MIN_DISTINCT_SAMPLES, MIN_DISTINCT_IMAGES, MAX_BAD_ENDINGS = 0.05, 0.3, 0.5, 0.1


def find_bad_endings(vocabulary: Vocabulary | None) -> Int[Tensor, " n"]:
    """Return the ids of those `_BAD_ENDINGS` that a vocabulary has."""
    ids = {} if vocabulary is None else vocabulary.ids
    return torch.tensor([ids[word] for word in _BAD_ENDINGS.split() if word in ids], dtype=torch.long)


@torch.no_grad()
def measure_samples(
    tokens: Int[Tensor, "B K T"],
    mask: Bool[Tensor, "B K T"],
    log_probs: Float[Tensor, "B K T"],
    advantage: Float[Tensor, "B K"],
    eos_token_id: int,
    bad_endings: Int[Tensor, " n"],
) -> dict[str, float]:
    """Return the means over a batch of sampled captions of the metrics in `CURVES`.

    mask: True for the tokens, up to EOS, of samples that exist; the advantage of others is 0. The entropy is estimated
    by minus the log-probabilities of the sampled tokens, whose expected value it is where captions are sampled
    independently. Among images, the first sample of each is compared. A caption without words has a bad ending.
    """
    exists = mask.any(dim=-1)
    count = exists.sum().clamp(min=1)
    mean = advantage.sum() / count
    lengths = (mask & (tokens != eos_token_id)).sum(dim=-1)
    last = tokens.gather(-1, (lengths - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    is_bad = exists & ((lengths == 0) | torch.isin(last, bad_endings.to(last.device)))
    ids = tokens.masked_fill(~mask, -1)
    metrics = (
        mean,
        ((advantage - mean) ** 2)[exists].sum().div(count).sqrt(),
        lengths.sum() / count,
        -log_probs.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1),
        (_is_new(ids) & exists).sum() / count,
        _is_new(ids[:, 0].unsqueeze(0)).sum() / len(ids),
        is_bad.sum() / count,
    )
    values = torch.stack([metric.float() for metric in metrics]).tolist()
    return {name: round(value, 6) for name, value in zip(CURVES, values, strict=True)}


def describe_collapse(metrics: Mapping[str, float]) -> str | None:
    """Return the sentence that warns of collapsed samples, given means of `measure_samples`; None for healthy ones."""
    violations = [
        f"{CURVES[name]} {metrics[name]:.2f} (limit {limit})"
        for name, limit, sign in (
            ("entropy", MIN_ENTROPY, 1),
            ("distinct_samples", MIN_DISTINCT_SAMPLES, 1),
            ("distinct_images", MIN_DISTINCT_IMAGES, 1),
            ("bad_endings", MAX_BAD_ENDINGS, -1),
        )
        if name in metrics and sign * metrics[name] < sign * limit
    ]
    if not violations:
        return None
    return (
        f"the sampled captions collapse: {', '.join(violations)}; train again with a lower learning rate, "
        "training.self_critical.xe_weight of 0.1 or more, or fewer epochs"
    )


def _is_new(ids: Int[Tensor, "G N T"]) -> Bool[Tensor, "G N"]:
    """Return which sequences of each group differ from all before them."""
    is_same = (ids.unsqueeze(1) == ids.unsqueeze(2)).all(dim=-1)  # (G, N, N)
    return ~is_same.tril(diagonal=-1).any(dim=-1)


class SelfCriticalObjective(CaptionObjective):
    """Minus the expected reward of the model's captions.

    Captions are sampled without gradients; one forward pass over all of them then gives the gradient, while a thread
    computes the rewards. The releases differentiate through the sampling itself, which is the same without dropout;
    with dropout, our gradient sees other dropout masks than the sampling did. On CPUs a step through the sampling takes
    0.96 (AoANet) to 1.16 (X-Transformer) of the time (research/results/speed.md). Suppressed tokens are neither sampled
    nor given any probability.
    """

    def __init__(self, model: Captioner, config: ObjectiveConfig, split: CaptionDataset, rewards: Rewards) -> None:
        super().__init__(model, config, split)
        self.settings = config.self_critical
        self.rewards, self.bad_endings = rewards, find_bad_endings(model.vocabulary)
        xe_weight = self.settings.xe_weight
        self.loss_weights = (1 - xe_weight, xe_weight) if xe_weight else (1.0,)
        names = ("bos_token_id", "eos_token_id", "suppress_tokens", "finished_beams")
        defaults = {name: getattr(model.generation_config, name) for name in names}
        search = {"max_length": self.settings.max_length, "beam_size": self.settings.num_samples}
        self.generation_config = GenerationConfig(**defaults, **search)

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Sample captions, start to compute their rewards, and return the inputs of the differentiated pass."""
        settings, eos_token_id = self.settings, self.generation_config.eos_token_id
        tokens, is_sampled, baseline_tokens = self._sample(packed(self.model), batch_to_regions(batch))
        rows = [tokens] if baseline_tokens is None else [tokens, baseline_tokens]
        length = max(captions.shape[-1] for captions in rows)
        rows = [F.pad(captions, (0, length - captions.shape[-1]), value=eos_token_id) for captions in rows]
        pending = self.rewards.start(indices, torch.cat(rows, dim=1))
        mask = token_mask(tokens, eos_token_id) & is_sampled.unsqueeze(-1)
        inputs = F.pad(tokens[..., :-1], (1, 0), value=self.generation_config.bos_token_id)
        xe_inputs, xe_targets = None, None
        if settings.xe_weight:
            xe_inputs, xe_targets = shift_right(batch["captions"], eos_token_id)
        normalizers = [policy_gradient_normalizer(settings.loss_reduction, mask, settings.max_length)]
        if xe_targets is not None:
            normalizers.append(float((xe_targets != PADDING).sum()))

        def finish(output: tuple[Tensor, ...]) -> Loss:
            rewards, K = torch.from_numpy(self.rewards.result(pending)).to(tokens.device), tokens.shape[1]
            baseline = None if baseline_tokens is None else rewards[:, K:]
            advantage = advantages(rewards[:, :K], settings.baseline, baseline, is_sampled)
            mean = float(rewards[:, :K][is_sampled].mean()) if bool(is_sampled.any()) else 0.0
            health = measure_samples(tokens, mask, output[0], advantage, eos_token_id, self.bad_endings)
            return Loss((policy_gradient(output[0], advantage, mask), *output[1:]), {"reward": mean, **health})

        return PreparedBatch((inputs, tokens, mask, xe_inputs, xe_targets), tuple(normalizers), finish)

    def sample_targets(self, indices: np.ndarray, generator: torch.Generator) -> Batch:
        """Return reference captions where the loss has a cross-entropy term."""
        return super().sample_targets(indices, generator) if self.settings.xe_weight else {}

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Tensor, ...]:
        """Return log-probabilities `(B, K, T)` of the sampled tokens, and the summed cross-entropy where weighted."""
        inputs, tokens, mask, xe_inputs, xe_targets = prepared
        assert tokens is not None
        assert mask is not None
        memory, real = self.model.encode(batch_to_regions(batch)), without_padding(mask)
        logits, chosen = self.model.decoder(inputs, memory, real), tokens if real is None else tokens[real]
        log_probs = token_log_probs(logits, chosen, self.generation_config.suppress_tokens)
        if real is not None:
            log_probs = log_probs.new_zeros(tokens.shape).masked_scatter(real, log_probs)
        if xe_inputs is None or xe_targets is None:
            return (log_probs,)
        real = without_padding(xe_targets.ne(PADDING))
        logits = self.model.decoder(xe_inputs, memory, real)
        return log_probs, self.sum_cross_entropy(logits, xe_targets if real is None else xe_targets[real])

    def _sample(
        self, model: Captioner, regions: Regions
    ) -> tuple[Int[Tensor, "B K T"], Bool[Tensor, "B K"], Int[Tensor, "B 1 t"] | None]:
        """Return sampled captions, which of them exist, and the greedy captions where they are the baseline."""
        settings, config = self.settings, self.generation_config
        memory, baseline_tokens = None, None
        if settings.baseline == "greedy":
            with eval_mode(model):
                memory = model.encode(regions)
                baseline_tokens = greedy(model, memory, generation_config=config).tokens
        with train_mode(model) if settings.dropout else eval_mode(model):
            if memory is None or settings.dropout:
                memory = model.encode(regions)
            if settings.sample_method == "beam":
                output = beam_search(model, memory, generation_config=config)
                return output.tokens, ~output.scores.isneginf(), baseline_tokens
            tokens = sample(model, memory, num_samples=settings.num_samples, generation_config=config).tokens
        return tokens, torch.ones_like(tokens[..., 0], dtype=torch.bool), baseline_tokens


def token_log_probs(
    logits: Float[Tensor, "*rows V"], tokens: Int[Tensor, "*rows"], suppress_tokens: tuple[int, ...] = ()
) -> Float[Tensor, "*rows"]:
    """Return the log-probability of each token among those that are not suppressed."""
    logits = at_least_float32(logits)
    if suppress_tokens:
        suppressed = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        suppressed[list(suppress_tokens)] = True
        logits = logits.masked_fill(suppressed, float("-inf"))
    chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)
