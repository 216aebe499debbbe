"""Options of commands: what is set over a model's generation config, and settings of the library's functions."""

import pytest

from legenda.cli.caption import CaptionOptions
from legenda.cli.extract import ExtractOptions
from legenda.cli.options import fields_of, parse
from legenda.cli.score import ScoreCommand
from legenda.errors import ConfigError


def test_only_what_is_set_is_over_the_model_and_zeros_count():
    line = ["a.jpg", "--length-penalty", "0", "--no-repeat-ngram-size", "0", "--must", "dog", "cat|kitten"]
    search = parse(CaptionOptions, line, "caption").search
    assert search == {"length_penalty": 0.0, "no_repeat_ngram_size": 0, "must": ("dog", "cat|kitten")}
    assert parse(CaptionOptions, ["a.jpg", "--do-sample", "--seed", "0"], "caption").search == {
        "do_sample": True,
        "seed": 0,
    }
    assert parse(CaptionOptions, ["a.jpg"], "caption").search == {}


@pytest.mark.parametrize("line", ["--top-k 5", "--do-sample --num-beam-groups 3", "--beam-size 0"])
def test_options_that_do_not_go_together_are_one_sentence(line):
    with pytest.raises(ConfigError):
        parse(CaptionOptions, ["a.jpg", *line.split()], "caption")


def test_a_device_that_is_not_there_is_refused_before_anything_is_read():
    line = ["a.jpg", "--extractor", "scenes", "--device", "cpu,cuda:99"]
    for kind, arguments in ((ExtractOptions, line), (CaptionOptions, ["a.jpg", "--device", "cuda:99"])):
        with pytest.raises(ConfigError, match="cuda:99"):
            parse(kind, arguments, "extract")


def test_the_options_of_nested_settings_are_those_of_the_command():
    assert {"beam_size", "device", "engine", "output_format"} <= fields_of(CaptionOptions).keys()
    options = parse(ScoreCommand, ["captions.json", "references.json", "--resamples", "10"], "score")
    assert (str(options.score.references), options.score.resamples) == ("references.json", 10)
