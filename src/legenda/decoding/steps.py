"""The steps of one search: log-probabilities of the next tokens, without those that the rule forbids."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.decoder import Decoder, DecodingRule
from legenda.regions import Memory


class Stepper:
    """Run a decoder token by token and keep the state of its rows in between."""

    def __init__(
        self, decoder: Decoder, memory: Memory, rows: int, rule: DecodingRule, *, beam: bool, temperature: float = 1.0
    ) -> None:
        """Start with `rows` empty rows per image.

        beam: also suppress the tokens that the rule bans from beam search. temperature: divides all log-probabilities
        but those of the first token; they are normalized again.
        """
        device = memory.mask.device
        suppressed = rule.banned_ids + rule.beam_banned_ids if beam else rule.banned_ids
        self.decoder, self.memory, self.rule, self.temperature = decoder, memory, rule, temperature
        self.state = decoder.start(memory, rows)
        self.started = False
        self.suppressed = torch.tensor(suppressed, device=device) if suppressed else None
        self.forbidden_last = torch.tensor(rule.bad_endings, device=device) if rule.bad_endings else None

    def step(
        self, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """Return the log-probabilities of the tokens after `tokens`, in at least float32, and the attention weights.

        Forbidden tokens have -inf; the others are not normalized again. parents: the earlier row that each row of
        `tokens` continues, by default the row of the same number.
        """
        state = self.state if parents is None else self.state.reorder(parents)
        logits, self.state = self.decoder.step(tokens, state, self.memory)
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_probs = precise.clone() if self.decoder.normalised else precise.log_softmax(dim=-1)
        if self.started and self.temperature != 1:
            log_probs = (log_probs / self.temperature).log_softmax(dim=-1)
        if self.suppressed is not None:
            log_probs.index_fill_(-1, self.suppressed, float("-inf"))
        if self.started and self.rule.no_repeat:
            log_probs.scatter_(-1, tokens.unsqueeze(-1), float("-inf"))
        if self.started and self.forbidden_last is not None:
            forbidden = tokens.unsqueeze(-1).eq(self.forbidden_last).any(dim=-1)
            log_probs[..., self.rule.end_id].masked_fill_(forbidden, float("-inf"))
        self.started = True
        return log_probs, self.state.attention
