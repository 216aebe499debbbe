"""The settings of a request to caption an image, over those of the server."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Form

from legenda.search_options import SearchOptions
from legenda.serve.engine import Request

_Model = Annotated[str, Form(description="the name of a model, by default the first")]
_Beam = Annotated[int | None, Form(ge=1, le=20, description="beam size of the search")]
_Count = Annotated[int, Form(ge=1, le=10, description="number of captions")]
_Temperature = Annotated[float | None, Form(ge=0, le=5, description="0 for beam search; above 0, captions are sampled")]
_Seed = Annotated[int | None, Form(ge=0, le=2**31, description="seed of the sampling; equal seeds give equal captions")]


@dataclass(frozen=True)
class RequestSettings:
    """The settings of a request; those that are None are the server's."""

    model: str
    beam_size: int | None
    num_captions: int
    temperature: float | None
    seed: int | None

    def request(self, model: str, search: SearchOptions) -> Request:
        """Return the request to a model with the settings over those of the server."""
        given = {"seed": self.seed, "beam_size": self.beam_size, "temperature": self.temperature or None}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.temperature is not None:
            changes["do_sample"] = self.temperature > 0
            changes.setdefault("temperature", 1.0 if search.do_sample else search.temperature)
        if not changes.get("do_sample", search.do_sample):
            changes["beam_size"] = max(self.beam_size or search.beam_size, self.num_captions)
        return Request(model, self.num_captions, replace(search, **changes))


def read_settings(
    model: _Model = "",
    beam_size: _Beam = None,
    num_captions: _Count = 1,
    temperature: _Temperature = None,
    seed: _Seed = None,
) -> RequestSettings:
    """Return the settings in the form of a request."""
    return RequestSettings(model, beam_size, num_captions, temperature, seed)
