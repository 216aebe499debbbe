"""Greedy decoding and sampling: each row of an image goes its own way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.common import Decodable, Decoded, memory_of, rule_of, stack_attention
from legenda.decoding.decoder import DecodingRule
from legenda.decoding.steps import Stepper
from legenda.errors import UserError
from legenda.regions import Memory, Regions


@torch.no_grad()
def greedy(
    model: Decodable,
    images: Regions | Memory,
    *,
    max_length: int | None = None,
    need_attention: bool = False,
    rule: DecodingRule | None = None,
) -> Decoded:
    """The likeliest word at each step, one caption per image (K = 1).

    Deterministic where the model is in evaluation mode, which is the caller's business. `rule` is `model.decoding`
    unless told.
    """
    rule = rule_of(model, rule, max_length=max_length)
    return _decode(model, images, 1, rule, need_attention, lambda log_probs: log_probs.argmax(dim=-1))


@torch.no_grad()
def sample(
    model: Decodable,
    images: Regions | Memory,
    *,
    rows: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    max_length: int | None = None,
    generator: torch.Generator | None = None,
    need_attention: bool = False,
    rule: DecodingRule | None = None,
) -> Decoded:
    """`rows` captions per image drawn word by word.

    temperature divides the log-probabilities; top_k keeps the k likeliest words; top_p (nucleus) keeps the fewest
    words whose probabilities reach p. `log_probs` are the model's own, before any of these. Two calls with equal
    generators give equal captions. Raises UserError for values out of range.
    """
    if rows < 1:
        raise UserError(f"rows must be at least 1, not {rows}")
    if temperature <= 0:
        raise UserError(f"temperature must be above 0, not {temperature}; for the likeliest word use greedy")
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k must be at least 1, not {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"top_p must lie in 0..1, above 0, not {top_p}")

    def choose(log_probs: Float[Tensor, "B K V"]) -> Int[Tensor, "B K"]:
        return sample_words(_keep_likeliest(log_probs / temperature, top_k, top_p), generator)

    return _decode(model, images, rows, rule_of(model, rule, max_length=max_length), need_attention, choose)


def sample_words(scores: Float[Tensor, "B K V"], generator: torch.Generator | None = None) -> Int[Tensor, "B K"]:
    """A word for each row, with probability softmax(scores).

    One number is drawn a row and looked up among the probabilities, summed in float64 so that none is lost;
    torch.multinomial draws a number for every word, which takes several times as long.
    """
    chances = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    precise = torch.float32 if chances.device.type == "mps" else torch.float64  # which Apple's GPUs have not
    summed = chances.cumsum(dim=-1, dtype=precise)
    most = summed[..., -1:]
    drawn = torch.rand(most.shape, dtype=most.dtype, device=most.device, generator=generator) * most
    below = torch.minimum(drawn, most.nextafter(torch.zeros_like(most)))  # the product may be rounded up to the sum
    words = torch.searchsorted(summed, below, right=True).squeeze(-1)
    return words.clamp(max=scores.shape[-1] - 1)  # where the scores are no numbers none is found; the loss will tell


def _decode(
    model: Decodable,
    images: Regions | Memory,
    rows: int,
    rule: DecodingRule,
    need_attention: bool,
    choose: Callable[[Float[Tensor, "B K V"]], Int[Tensor, "B K"]],
) -> Decoded:
    memory = memory_of(model, images)
    token = torch.full((len(memory), rows), rule.begin_id, device=memory.mask.device)
    ended = torch.zeros_like(token, dtype=torch.bool)
    tokens, chosen, alive, looked = [], [], [], []
    stepper = Stepper(model.decoder, memory, rows, rule, beam=False)
    for _ in range(rule.max_length):
        log_probs, seen = stepper.step(token)
        if rule.trigram_penalty and len(tokens) > 2:
            completed = _completed_trigrams(torch.stack(tokens, dim=-1), log_probs)
            log_probs = log_probs - rule.trigram_penalty * completed
        token = choose(log_probs).masked_fill(ended, rule.end_id)
        chosen.append(log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1).masked_fill(ended, 0.0))
        tokens.append(token)
        alive.append(~ended)
        if need_attention and seen is not None:
            looked.append(seen)
        ended = ended | (token == rule.end_id)
        if bool(ended.all()):
            break
    log_probs = torch.stack(chosen, dim=-1)
    attention = stack_attention(looked, torch.stack(alive, dim=-1))
    return Decoded(torch.stack(tokens, dim=-1), log_probs, log_probs.sum(dim=-1), attention)


def _completed_trigrams(said: Int[Tensor, "B K T"], log_probs: Float[Tensor, "B K V"]) -> Float[Tensor, "B K V"]:
    """How often each word has followed the last two words of its row before."""
    same = (said[..., :-2] == said[..., -2:-1]) & (said[..., 1:-1] == said[..., -1:])
    return torch.zeros_like(log_probs).scatter_add_(-1, said[..., 2:], same.to(log_probs.dtype))


def _keep_likeliest(
    log_probs: Float[Tensor, "B K V"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "B K V"]:
    """-inf for every word that top_k or top_p shuts out."""
    if top_k is not None and top_k < log_probs.shape[-1]:
        best = log_probs.topk(top_k, dim=-1)
        log_probs = torch.full_like(log_probs, float("-inf")).scatter(-1, best.indices, best.values)
    if top_p is not None and top_p < 1:
        ordered, words = log_probs.sort(dim=-1, descending=True)
        before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
        shut_out = torch.zeros_like(before, dtype=torch.bool).scatter(-1, words, before >= top_p)
        log_probs = log_probs.masked_fill(shut_out, float("-inf"))
    return log_probs
