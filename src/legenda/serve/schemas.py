"""Response schemas of the API."""

from pydantic import BaseModel, Field


class ModelInfo(BaseModel):
    """A served model."""

    name: str
    architecture: str
    summary: str
    parameters: int
    extractor: str


class Caption(BaseModel):
    """One caption of an image."""

    text: str
    words: list[str]
    log_prob: float = Field(description="the sum of the log-probabilities of its tokens, in nats")
    attention: list[list[float]] | None = Field(
        description="for each word a weight for each box, the mean of all heads; null without boxes"
    )
    heads: list[list[list[float]]] | None = Field(
        description="for each word the weights of each head; null unless requested, and for a single head"
    )


class Captions(BaseModel):
    """The captions of an image by one model."""

    model: str
    boxes: list[list[float]] | None = Field(description="x1 y1 x2 y2 in 0..1 of the image; null without boxes")
    captions: list[Caption]
    warning: str | None = Field(description="why the captions should not be relied on; null where nothing is known")
    seconds: float


class ErrorMessage(BaseModel):
    """An error, in one sentence."""

    detail: str


class Health(BaseModel):
    """The state of the server."""

    status: str
    version: str
    models: list[str]
    queued: int
    completed: int
    batches: int
