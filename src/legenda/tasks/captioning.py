"""The task of captioning: models and objectives, the captions of a split, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from legenda.data.captions import CaptionDataset, DataModule
from legenda.decoding import Ensemble, GenerationOutput
from legenda.decoding.search import search
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.metrics import evaluate
from legenda.models import Captioner, create_model
from legenda.models.base import inference
from legenda.models.packing import PackedWeights
from legenda.regions import Regions
from legenda.run_folder import VOCABULARY
from legenda.runtime.settings import GenerationConfig, Overrides, override
from legenda.tasks.base import Objective, ObjectiveConfig, Task, check_boxes, set_vocabulary
from legenda.tasks.objectives import CrossEntropy
from legenda.tasks.self_critical import Rewards, SelfCriticalObjective, check_rewards
from legenda.text import Vocabulary


def generate_captions(
    model: Captioner | Ensemble,
    split: CaptionDataset,
    *,
    config: GenerationConfig | None = None,
    vocabulary: Vocabulary | None = None,
    batch_size: int = 50,
    need_attention: bool = False,
    indices: np.ndarray | None = None,
    callback: Callable[[np.ndarray, Regions, GenerationOutput], None] | None = None,
) -> dict[str, str]:
    """Return the caption of each image of a split by its id: the best of beam search, or a sample.

    config: settings of the search, by default the model's. vocabulary: for an ensemble; a model has its own. indices:
    the images to caption; all by default. callback: called after each batch with the indices, their regions and the
    output of the search. Raise DataError where the features do not fit the model.
    """
    vocabulary = model.require_vocabulary() if vocabulary is None and isinstance(model, Captioner) else vocabulary
    if vocabulary is None:
        raise ConfigError("name the vocabulary of the ensemble")
    config = model.generation_config if config is None else config
    device = next(model.parameters()).device
    captions: dict[str, str] = {}
    selected = np.arange(len(split)) if indices is None else indices
    with inference(model, PackedWeights()) as captioner:
        for batch in np.array_split(selected, -(-len(selected) // batch_size)) if len(selected) else ():
            regions = split.read(batch).to(device)
            if isinstance(captioner, Captioner):  # attention is that to the cells of a backbone
                regions = captioner.prepare(regions)
            try:
                memory = captioner.encode(regions)
            except LegendaError as error:
                name = getattr(model, "name", "the ensemble")
                raise DataError(f"{split.source} does not fit {name}: {error}") from error
            names = [split.ids[index] for index in batch]
            output = search(captioner, memory, config, names=names, need_attention=need_attention)
            for name, tokens in zip(names, output.tokens[:, 0].tolist(), strict=True):
                captions[name] = vocabulary.decode(tokens)
            if callback is not None:
                callback(batch, regions, output)
    return captions


def collapse_repeats(captions: Mapping[str, str]) -> dict[str, str]:
    """Return the captions, of tokens joined by spaces, without tokens that equal the token before them."""
    return {id_: " ".join(token for token, _ in groupby(caption.split(" "))) for id_, caption in captions.items()}


def score_captions(predictions: Mapping[str, str], split: CaptionDataset) -> dict[str, float | None]:
    """Return the corpus scores that need no Java, those of registered metrics, and the split's own scores."""
    references = dict(zip(split.ids, split.references, strict=True))
    scores = evaluate(predictions, references, metrics="fast", df=split.frequencies).corpus
    return scores | (split.score(predictions) if split.score is not None else {})


class Captioning(Task[CaptionDataset, Captioner, str]):
    """Image and video captioning."""

    name = "captioning"
    objectives = ("cross_entropy", "self_critical")
    objective_class = CrossEntropy
    examples = CaptionDataset
    data: DataModule  # pyrefly: ignore[bad-override-mutable-attribute]  # set once

    def create(self, model: str, options: Mapping[str, object], init_from: Path | None = None) -> Captioner:
        """Return a captioner that never generates the unknown token."""
        data = self.data
        vocabulary = data.vocabulary if init_from is None else Vocabulary.load(init_from / VOCABULARY)
        own = {} if data.backbone is None else {"backbone": data.backbone.config}
        captioner = create_model(model, **options, **own, vocab_size=len(vocabulary), feature_dim=data.feature_dim)
        if data.backbone is not None:
            captioner.backbone = deepcopy(data.backbone)
        if not data.has_boxes:
            unboxed = Regions(data.train.read(np.arange(1)).features)
            is_grid = captioner.encoder.with_default_boxes(unboxed).boxes is not None
            check_boxes(captioner, is_grid, data.train.source)
        set_vocabulary(captioner, vocabulary)
        self.set_max_length(captioner)
        return captioner

    def set_max_length(self, model: Captioner) -> None:
        """Set the longest caption that a model generates to `data.max_length`, if that is given."""
        if self.data.max_length is not None:
            model.generation_config = model.generation_config.replace(max_length=self.data.max_length)

    def check_objective(self, config: ObjectiveConfig, stage: str) -> None:
        """Raise ConfigError, also for a reward that is unknown or that the data do not support."""
        super().check_objective(config, stage)
        if config.objective == "self_critical":
            check_rewards(config.self_critical, self.data.train)

    def objective(self, model: Captioner, config: ObjectiveConfig) -> Objective[CaptionDataset, Captioner]:
        """Return the configured objective."""
        if config.objective == "cross_entropy":
            return super().objective(model, config)
        weighted = Rewards.from_config(config.self_critical, self.data.train, model.require_vocabulary())
        return SelfCriticalObjective(model, config, self.data.train, weighted)

    def metric_names(self) -> Collection[str]:
        """Return the names of the scores, found by scoring one image's own reference."""
        split = self.data.validation
        subset = replace(split, ids=split.ids[:1], references=split.references[:1])
        return score_captions({subset.ids[0]: subset.references[0][0]}, subset).keys()

    @staticmethod
    def predict(model: Captioner, split: CaptionDataset, indices: np.ndarray, search: Overrides) -> dict[str, str]:
        """Return the best caption of each image by its id."""
        config = override(model.generation_config, search, model.require_vocabulary())
        return generate_captions(model, split, config=config, indices=indices)

    score = staticmethod(score_captions)
