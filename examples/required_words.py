"""Caption an image with words that must occur; "cat|kitten" is one of two.

python examples/required_words.py photo.jpg "cat|kitten" sofa
"""

from pathlib import Path

import tyro

import legenda


def main(image: Path, words: list[str], model: str | Path = "photo") -> tuple[str, str]:
    """Return and print the free caption and the one with the words, each with its log-probability."""
    pipeline = legenda.open(model)
    free, constrained = pipeline.caption(image), pipeline.caption(image, must=words)
    for caption in (free, constrained):
        print(f"{caption.log_prob:.2f}  {caption.text}")
    return free.text, constrained.text


if __name__ == "__main__":
    tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
