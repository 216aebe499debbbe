"""MCAN: visual question answering (Yu et al., CVPR 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import StdLayerNorm
from legenda.errors import CheckpointError, ConfigError
from legenda.models.co_attention import CoAttentionModel, create_pool
from legenda.models.co_attention_config import McanConfig
from legenda.models.eval_mode import eval_mode
from legenda.regions import Regions
from legenda.run_files import ANSWERS
from legenda.text.tokenizers import tokenize_question
from legenda.text.vocabulary import AnswerVocabulary


class Mcan(CoAttentionModel):
    """The backbone, attention pooling of question and image, and a logit for each answer."""

    config: McanConfig
    answers: AnswerVocabulary | None = None
    """The answer of each logit."""

    def __init__(self, config: McanConfig) -> None:
        super().__init__(config)
        self.pool_words = create_pool(config, config.glimpses)
        self.pool_regions = create_pool(config, config.glimpses)
        self.norm = StdLayerNorm(config.pooled_dim)
        self.output = nn.Linear(config.pooled_dim, config.answers)

    def forward(self, regions: Regions, question: Int[Tensor, "B L"]) -> Float[Tensor, "B A"]:
        """Return the logits of all answers; the sigmoid of each predicts the annotators' agreement with it."""
        states = self.attend(regions, question)
        pooled_question = self.pool_words(states.tokens, states.token_mask)
        pooled = pooled_question + self.pool_regions(states.regions, states.region_mask)
        return self.output(self.norm(pooled))

    def answer(self, regions: Regions, questions: Sequence[str]) -> list[str]:
        """Return the most probable answer to each question, one question per image, in evaluation mode.

        Raise LegendaError when the model has no vocabulary or no answers.
        """
        return [answer for answer, _ in self.answer_with_probability(regions, questions)]

    def answer_with_probability(self, regions: Regions, questions: Sequence[str]) -> list[tuple[str, float]]:
        """Return the answers of `answer`, each with the sigmoid of its logit."""
        if self.answers is None:
            raise ConfigError("this model has no list of answers; set model.answers first")
        question = self.ids([tokenize_question(text) for text in questions])
        with eval_mode(self):
            logits, best = self(regions, question).max(dim=-1)
        texts = [self.answers.tokens[number] for number in best.tolist()]
        return list(zip(texts, logits.sigmoid().tolist(), strict=True))

    def save_vocabulary(self, folder: Path) -> None:
        """Write vocabulary.txt and answers.txt, one entry per line; nothing where the model has neither.

        Raise CheckpointError, and write nothing, where it has only one of them.
        """
        self.require_all_or_none("vocabulary", "answers")
        super().save_vocabulary(folder)
        if self.answers is not None:
            self.answers.save(folder / ANSWERS)

    def load_vocabulary(self, folder: Path) -> None:
        """Read both; raise CheckpointError where the number of answers differs from the model's."""
        super().load_vocabulary(folder)
        self.answers = AnswerVocabulary.load(folder / ANSWERS)
        if len(self.answers) != self.config.answers:
            raise CheckpointError(
                f"{folder / ANSWERS} has {len(self.answers)} answers but the model has {self.config.answers}; "
                "use the file that was saved with it"
            )
