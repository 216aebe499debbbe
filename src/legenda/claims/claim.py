"""A claim: its question, the models that are compared, what is measured, and what the paper predicts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from legenda.config import merge
from legenda.errors import ConfigError, did_you_mean
from legenda.io import read_text

_PARTS = ("data", "model", "training", "fine_tuning")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One of the models that are compared; changes: of the recipe's fields, by the parts of `legenda.train`."""

    key: str
    label: str
    recipe: str
    changes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number of each run.

    score: the name of a score of the test split, by default the key. reaches: the number is instead that of the steps
    after which this score, as validation writes it (in percent for tasks other than captioning), stays at this value or
    above. probe: a name in `probes.PROBES`, which computes it instead. chance: what a model reaches that cannot know.
    """

    key: str
    label: str
    score: str | None = None
    reaches: float | None = None
    probe: str | None = None
    chance: float | None = None

    @property
    def name(self) -> str:
        """The name of the score."""
        return self.score or self.key


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The paired difference of two arms, or of an arm and a number, and the sign that the paper predicts."""

    arm: str
    against: str | float
    measure: str
    predicted: Literal["higher", "lower"]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper as an experiment; the fields are those of its file, see `legenda.claims`."""

    name: str
    title: str
    question: str
    source: str
    world: str
    notes: tuple[str, ...]
    arms: Mapping[str, Arm]
    measures: Mapping[str, Measure]
    comparisons: tuple[Comparison, ...]

    def __post_init__(self) -> None:
        for comparison in self.comparisons:
            against = [comparison.against] if isinstance(comparison.against, str) else []
            self.check_arms([comparison.arm, *against])
            self._check([comparison.measure], self.measures)

    def check_arms(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a name that is not the key of an arm."""
        self._check(names, self.arms)

    def _check(self, names: Iterable[str], known: Mapping[str, object]) -> None:
        for name in names:
            if name not in known:
                raise ConfigError(f"the claim {self.name} has no {name!r}; {did_you_mean(name, known)}")


def list_claims() -> tuple[str, ...]:
    """Return the names of all claims."""
    found = (entry.name for entry in files("legenda.claims").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


@cache
def get_claim(name: str) -> Claim:
    """Return a claim of the package, or that of a TOML file by its path.

    Raise ConfigError with the closest name when there is none, and for a file that holds no claim.
    """
    if name.endswith(".toml"):
        text = read_text(name, "name a claim of legenda claim, or a TOML file like those of the package")
    elif name in list_claims():
        text = files("legenda.claims").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(f"there is no claim {name!r}; {did_you_mean(name, list_claims())}")
    try:
        return _read_claim(name, text)
    except KeyError as error:
        raise ConfigError(f"{name} lacks {error}; see the claims of the package") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name} is no claim: {error}; see the claims of the package") from error


def _read_claim(name: str, text: str) -> Claim:
    content = tomllib.loads(text)
    shared = {part: content.pop(part) for part in _PARTS if part in content}
    arms = [_read_arm(name, arm, shared) for arm in content.pop("arms")]
    measures = [merge(Measure, measure, f"{name}.measures") for measure in content.pop("measures")]
    parts = {
        "name": name,
        "notes": content.pop("notes", ()),
        "arms": {arm.key: arm for arm in arms},
        "measures": {measure.key: measure for measure in measures},
        "comparisons": [merge(Comparison, part, f"{name}.comparisons") for part in content.pop("comparisons")],
    }
    return merge(Claim, {**content, **parts}, name)


def _read_arm(name: str, arm: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]) -> Arm:
    given = dict(arm)
    own = {part: given.pop(part) for part in _PARTS if part in given}
    changes = {part: {**shared.get(part, {}), **own.get(part, {})} for part in _PARTS if part in shared or part in own}
    return merge(Arm, {**given, "changes": changes}, f"{name}.arms")
