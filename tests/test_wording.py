"""One concept has one word, the field's: two lists of words and names that may not appear."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

_WORDS = """
heard hears looked told tells said beside aside ghost ghosts mend mended judged spoken quieten begun theirs shelves
"""
WORDS = frozenset(_WORDS.split())
"""Words that appear nowhere in src, docs and the README, alone or as a part of a name."""

_DEFINITIONS = """
DecodingRule Decodable Decoded GHOST Steps RecordedSteps rule_of memory_of open_steps _put_aside _read_back
_keep_likeliest _completed_trigrams start_with_room steady normalised reads_summary forget_summary project pick_rows
with_word no_words Length looping initialise _Penalty _Captions _Search sample_words _look _looks _attended _remember
_placed _with_places KeysValues place xavier Words WordLayer CoAttended Update FeedForwardAfter _Matrices
read_in_order _choose Branches CEILING cell_places relative_waves FLOOR AttentionOptions positive fits Training judged
measured Prepared spoken _without_collection ReadAhead to_the_end claim_folder state_of _refuse whole shared_like
whole_weights in_place AverageRewards mix_inputs shifted Trained describe_images Shown Said Judged begin_words
in_parts CaptionSet OpenedData JoinedFeatures find_fault without_zero_rows whole_file checked nearest Parts _Proposer
_Predictor give_module read_words pack_heads compose_page quieten heat_of SpokenWords surfaces AnyRun OpenRun Looked
look_up look Heard Tested heads_fit View Views told_of refuse describe_run_data data_of Done Totals _CARELESS culprits
Wish Served side_by_side short_names UserError
"""
DEFINITIONS = frozenset(_DEFINITIONS.split())
"""Old names of classes, functions, methods and constants; none of them may be defined again."""

BRITISH = re.compile(
    r"(?<!aria-)\b(behaviour|catalogue|centre|colour|favour|grey|honour|judgement|labelled|labelling|licence|modelled|modelling|"
    r"neighbour|(normal|initial|optim|organ|recogn|summar|minim|maxim|general|real|token)is(e|ed|es|ing|ation)\b|analys(e|ed|ing)\b)",
    re.IGNORECASE,
)
"""British spellings; names and texts are spelled as in American English."""

FIELDS = {
    "GenerationConfig": "begin_id end_id banned_ids beam_banned_ids bad_endings no_repeat length_rule finished",
    "TrainingConfig": (
        "rows max_words accumulate smoothing average average_decay average_from epsilon clip_norm clip_value best_by "
        "validate_every validation_beam save_every patience rate"
    ),
    "ObjectiveConfig": "rows max_words smoothing",
    "SelfCriticalConfig": "samples sampling mean frequencies end_in_reward reference_length cross_entropy",
    "ScheduledSamplingConfig": "step after every most",
    "Regions": "pooled summary valid",
    "Memory": "pooled summary",
    "Recipe": "options fine_tuning training",
    "CaptionDataset": "identities withheld",
}
"""Old names of fields, by the class that now has another name for them."""

_OPTIONS = """
--with --start --against --df --training --submit --pictures --pictures-folder --half --rate --megabytes --captions
--attention
"""
OPTIONS = frozenset(_OPTIONS.split())
"""Old names of command-line options."""


def _texts() -> Iterator[Path]:
    """Yield the text files of the package and its documentation."""
    suffixes = {".py", ".md", ".ipynb", ".js", ".css", ".html", ".toml", ".svg", ".yml"}
    for folder in (ROOT / "src", ROOT / "docs"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in suffixes and not any(part.endswith(".egg-info") for part in path.parts):
                yield path
    yield ROOT / "README.md"


def _words(text: str) -> set[str]:
    """Return the words of a text in lower case; underscores and capitals split names."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", split)}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_the_words_are_those_of_the_field():
    hits = {
        f"{path.relative_to(ROOT)}:{number}": sorted(found)
        for path in _texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := _words(line) & WORDS)
    }
    assert hits == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [("was_heard", {"heard"}), ("lookedUp()", {"looked"}), ("a bespoke word", set()), ("Aside", {"aside"})],
)
def test_names_are_split_into_words(line, found):
    assert _words(line) & WORDS == found


def test_texts_are_spelled_as_in_american_english():
    hits = {
        f"{path.relative_to(ROOT)}:{number}": found[0]
        for path in _texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := BRITISH.search(line.replace("_", " ")))
    }
    assert hits == {}


def _defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of classes, functions, methods, and of variables of a module or class, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
                yield from ((target.id, target.lineno) for target in targets if isinstance(target, ast.Name))


def test_no_old_name_is_defined_again():
    hits = [f"{path}:{line} {name}" for path, tree in _trees() for name, line in _defined(tree) if name in DEFINITIONS]
    assert hits == []


def test_no_old_field_is_declared_again():
    hits = [
        f"{path}:{line} {node.name}.{name}"
        for path, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in FIELDS
        for name, line in _defined(ast.Module([node], []))
        if name in FIELDS[node.name].split()
    ]
    assert hits == []


def test_no_old_option_is_mentioned_again():
    hits = {
        f"{path.relative_to(ROOT)}:{number}": sorted(found)
        for path in _texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := set(re.findall(r"(?<![\w-])--[a-z][a-z-]*(?![\w.-])", line)) & OPTIONS)
    }
    assert hits == {}
