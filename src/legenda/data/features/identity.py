"""The identity of an extractor, as feature stores and runs hold it: name, version, width and fingerprint."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOLERANCE = 0.01
"""The largest difference of two fingerprints of one extractor, relative to the size of its features."""
_DIGEST = re.compile(r"[-@][0-9a-f]{8}(?=@|$)")


@dataclass(frozen=True)
class ExtractorIdentity:
    """What distinguishes extractors.

    name: with the digest of its files, where it has any. fingerprint: the root mean square of its features on the test
    image, then projections of their moments; empty where it is not known. The text of an identity, in stores and
    config.json, is `name` or `name#version:feature_dim:fingerprint`.
    """

    name: str
    version: str = ""
    feature_dim: int = 0
    fingerprint: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ExtractorIdentity:
        """Return the identity of a text; one of another form is a name."""
        name, _, rest = text.partition("#")
        try:
            version, dim, values = rest.rsplit(":", 2)
            return cls(name, version, int(dim), tuple(map(float, values.split(","))))
        except ValueError:
            return cls(text)

    def __str__(self) -> str:
        values = ",".join(f"{value:.4g}" for value in self.fingerprint)
        return f"{self.name}#{self.version}:{self.feature_dim}:{values}" if values else self.name

    @property
    def base_name(self) -> str:
        """The name without the digest of files."""
        return _DIGEST.sub("", self.name)

    def find_difference(self, other: ExtractorIdentity) -> str | None:
        """Return how `other` differs, as the end of a sentence about it, or None for the same extractor.

        Equal names, digests included, are enough; a changed file is the same extractor where version, width and
        fingerprint agree.
        """
        if self.name == other.name:
            return None
        if self.base_name != other.base_name:
            return f"is {other.name}"
        if self.version != other.version:
            return f"has the version {other.version!r}, not {self.version!r}"
        if not self.fingerprint or not other.fingerprint:
            return f"is {other.name}, whose features were not compared"
        if self.feature_dim != other.feature_dim:
            return f"returns {other.feature_dim} channels, not {self.feature_dim}"
        if len(self.fingerprint) != len(other.fingerprint):
            return f"has {len(other.fingerprint)} numbers as fingerprint, not {len(self.fingerprint)}"
        pairs = zip(self.fingerprint, other.fingerprint, strict=True)
        difference = max(abs(a - b) for a, b in pairs) / max(abs(self.fingerprint[0]), 1e-9)
        if difference <= TOLERANCE:
            return None
        return f"differs by {difference:.0%} on the test image, where {TOLERANCE:.0%} is the limit"


def extractor_name(text: str) -> str:
    """Return the name in the text of an identity."""
    return ExtractorIdentity.parse(text).name


def is_same_extractor(first: str, second: str) -> bool:
    """Return whether two texts of identities belong to one extractor."""
    return ExtractorIdentity.parse(first).find_difference(ExtractorIdentity.parse(second)) is None
