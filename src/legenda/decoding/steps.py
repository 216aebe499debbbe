"""Steps of generation: log-probabilities of the next tokens with the constraints of a configuration."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.decoder import Decoder, State
from legenda.decoding.generation_config import GenerationConfig
from legenda.decoding.logits_processors import count_repeated_ngrams, forbid_last_tokens_
from legenda.errors import ConfigError
from legenda.regions import Memory


class Stepper:
    """Run a decoder token by token and keep the state of its rows in between."""

    def __init__(
        self,
        decoder: Decoder,
        memory: Memory,
        num_rows: int,
        config: GenerationConfig,
        *,
        beam: bool,
        temperature: float = 1.0,
    ) -> None:
        """Start with `num_rows` empty rows per image.

        beam: suppress `beam_suppress_tokens` too, and apply no `trigram_penalty`. temperature: of all tokens but the
        first, as in AoANet's release. Raises ConfigError where the decoder's step is compiled but it has no state of
        fixed size.
        """
        self.decoder, self.memory, self.config, self.temperature = decoder, memory, config, temperature
        self.state = self._init_state(num_rows)
        self.started = False
        self.trigram_penalty = 0.0 if beam else config.trigram_penalty
        needs_history = self.trigram_penalty > 0 or config.no_repeat_ngram_size > 0
        self.history = memory.mask.new_zeros(len(memory), num_rows, 0, dtype=torch.long) if needs_history else None
        """Tokens of the rows, kept where repeated n-grams are penalized or blocked."""

        def ids(tokens: tuple[int, ...]) -> Tensor | None:
            return torch.tensor(tokens, device=memory.mask.device) if tokens else None

        self.suppressed = ids(config.suppress_tokens + (config.beam_suppress_tokens if beam else ()))
        self.forbidden_last = ids(config.forbidden_last_tokens)

    def step(
        self, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """Return the log-probabilities of the tokens after `tokens`, in at least float32, and the attention weights.

        Suppressed tokens have -inf; the others are not normalized again. parents: the earlier row that each row of
        `tokens` continues, by default the row of the same index.
        """
        state = self.state if parents is None else self.state.reorder(parents)
        logits, self.state = self._decode(tokens, state)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_probs = logits.clone() if self.decoder.returns_log_probs else logits.log_softmax(dim=-1)
        if self.started and self.temperature != 1:
            log_probs = (log_probs / self.temperature).log_softmax(dim=-1)
        if self.suppressed is not None:
            log_probs.index_fill_(-1, self.suppressed, float("-inf"))
        if self.started and self.config.no_immediate_repeat:
            log_probs.scatter_(-1, tokens.unsqueeze(-1), float("-inf"))
        if self.started and self.forbidden_last is not None:
            forbid_last_tokens_(log_probs, tokens, self.forbidden_last, self.config.eos_token_id)
        if self.history is not None and self.started:
            self._handle_repetition(log_probs, tokens, parents)
        self.started = True
        return log_probs, self.state.attention

    def _init_state(self, num_rows: int) -> State:
        if self.decoder.compiled_step is None:
            return self.decoder.init_state(self.memory, num_rows)
        state = self.decoder.init_static_state(self.memory, num_rows, self.config.max_length)
        if state is None:
            raise ConfigError(
                f"compiled decoding takes a state of fixed size, which this model does not have for "
                f"{self.config.max_length} tokens; shorten max_length or leave compile out"
            )
        return state

    def _decode(self, tokens: Int[Tensor, "B K"], state: Any) -> tuple[Float[Tensor, "B K V"], State]:
        if self.decoder.compiled_step is None:
            return self.decoder.step(tokens, state, self.memory)
        torch.compiler.cudagraph_mark_step_begin()
        # the next run of a CUDA graph overwrites its outputs
        return deepcopy(self.decoder.compiled_step(tokens, state, self.memory))

    def _handle_repetition(
        self, log_probs: Float[Tensor, "B K V"], tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None
    ) -> None:
        """Append the tokens to the history; penalize or block in place what repeats an n-gram."""
        assert self.history is not None
        history = self.history
        if parents is not None:
            history = history.gather(1, parents.unsqueeze(-1).expand(-1, -1, history.shape[-1]))
        self.history = history = torch.cat([history, tokens.unsqueeze(-1)], dim=-1)
        if self.trigram_penalty:
            log_probs -= self.trigram_penalty * count_repeated_ngrams(log_probs, history, 3)
        if size := self.config.no_repeat_ngram_size:
            log_probs.masked_fill_(count_repeated_ngrams(log_probs, history, size) > 0, float("-inf"))
