"""MCAN: answers to questions about pictures (Yu et al., CVPR 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import StdLayerNorm
from legenda.errors import UserError
from legenda.models.co_attention import AttentionPool, CoAttentionConfig, CoAttentionModel
from legenda.regions import Regions
from legenda.run_files import ANSWERS
from legenda.text.questions import tokenize_question
from legenda.text.vocabulary import AnswerVocabulary


@dataclass(frozen=True, kw_only=True)
class McanConfig(CoAttentionConfig):
    """MCAN as released (MILVLG/mcan-vqa); the defaults are its small model.

    The large one has dim=1024, num_heads=16, ff_dim=4096 and pooled_dim=2048.
    """

    answers: int = 3129
    """Answers to choose from; VQA-v2 has as many as people gave more than eight times."""
    glimpses: int = 1
    """Weighted sums of the words, and of the regions, that stand side by side."""

    derived: ClassVar[tuple[str, ...]] = (*CoAttentionConfig.derived, "answers")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("answers", "glimpses")

    def build(self) -> Mcan:
        """A new model with torch's own random weights, as in the release."""
        return Mcan(self)


class Mcan(CoAttentionModel):
    """The backbone, a pooled question and a pooled picture, and a score for every answer."""

    config: McanConfig
    answers: AnswerVocabulary | None = None
    """What the places of the logits stand for."""

    def __init__(self, config: McanConfig) -> None:
        super().__init__(config)
        self.pool_words = AttentionPool(config, config.glimpses)
        self.pool_regions = AttentionPool(config, config.glimpses)
        self.norm = StdLayerNorm(config.pooled_dim)
        self.output = nn.Linear(config.pooled_dim, config.answers)

    def forward(self, regions: Regions, question: Int[Tensor, "B L"]) -> Float[Tensor, "B A"]:
        """Logits of all answers; the sigmoid of each is how much of people's agreement the answer is worth."""
        seen = self.attend(regions, question)
        pooled = self.pool_words(seen.words, seen.heard) + self.pool_regions(seen.regions, seen.mask)
        return self.output(self.norm(pooled))

    def answer(self, regions: Regions, questions: Sequence[str]) -> list[str]:
        """The most probable answer to each question, the first about the first picture and so on; without dropout.

        Raises UserError when the model has no words or no answers (one that was created, not loaded or trained).
        """
        return [answer for answer, _ in self.answer_with_probability(regions, questions)]

    def answer_with_probability(self, regions: Regions, questions: Sequence[str]) -> list[tuple[str, float]]:
        """The same, each with the sigmoid of its logit: about the share of people who agree."""
        if self.answers is None:
            raise UserError("this model has no list of answers, so it cannot say any; set model.answers first")
        question = self.ids([tokenize_question(text) for text in questions])
        mode = self.training
        self.eval()
        with torch.no_grad():
            logits, best = self(regions, question).max(dim=-1)
        self.train(mode)
        texts = [self.answers.tokens[number] for number in best.tolist()]
        return list(zip(texts, logits.sigmoid().tolist(), strict=True))

    def save_vocabulary(self, folder: Path) -> None:
        """vocabulary.txt, and answers.txt with an answer a line; neither where the model has neither.

        Raises UserError, and writes nothing, where it has but one of them: such a folder could not be loaded.
        """
        self.require_all_or_none("vocabulary", "answers")
        super().save_vocabulary(folder)
        if self.answers is not None:
            self.answers.save(folder / ANSWERS)

    def load_vocabulary(self, folder: Path) -> None:
        """Reads both; UserError where the answers are more or fewer than the model's."""
        super().load_vocabulary(folder)
        self.answers = AnswerVocabulary.load(folder / ANSWERS)
        if len(self.answers) != self.config.answers:
            raise UserError(
                f"{folder / ANSWERS} has {len(self.answers)} answers but the model chooses from {self.config.answers}; "
                "take the file that was saved with it"
            )
