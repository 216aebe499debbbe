"""What the API of `legenda serve` answers with."""

from pydantic import BaseModel, Field


class ServedModel(BaseModel):
    """A model that can be asked."""

    name: str
    kind: str
    summary: str
    parameters: int
    extractor: str


class Caption(BaseModel):
    """One caption of a picture."""

    text: str
    words: list[str]
    score: float = Field(description="the sum of its log-probabilities under the model, in nats")
    attention: list[list[float]] | None = Field(
        description="a row for each word, a weight for each box, all heads averaged"
    )
    heads: list[list[list[float]]] | None = Field(
        description="for each word a row for each head; null unless asked for, and where the model has one head only"
    )


class Captions(BaseModel):
    """What a model says of a picture."""

    model: str
    boxes: list[list[float]] | None = Field(description="x1 y1 x2 y2 in 0..1 of the picture; null where there are none")
    captions: list[Caption]
    seconds: float


class Problem(BaseModel):
    """What went wrong, in a sentence."""

    detail: str


class Health(BaseModel):
    """Whether the server lives, and what it has done."""

    status: str
    version: str
    models: list[str]
    waiting: int
    answered: int
    batches: int
