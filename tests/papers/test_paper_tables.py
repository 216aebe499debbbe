"""The papers' tables: the numbers are those of the papers, and the rows are recipes."""

import re

import pytest

from legenda.cli.table import PARAMETERS
from legenda.metrics.evaluation import METRICS
from legenda.models.checkpoint import build_on_meta
from legenda.models.registry import configure
from legenda.papers import all_recipes, all_tables, get_recipe, shared_recipe

TABLES = all_tables()
RECIPES = all_recipes()
ROWS = {
    **{"ngsan.table1": 8, "ngsan.table2": 5, "ngsan.table3": 4, "ngsan.table4": 5, "ngsan.table6": 11},
    **{"ngsan.table5": 5, "ngsan.table7": 3, "ngsan.table8": 4, "ngsan.table9": 5},
    **{"aoanet.table1": 8, "aoanet.table4": 10, "aoanet.table1_xe": 7, "aoanet.table1_ensembles": 5},
    **{"aoanet.table1_ensembles_xe": 4, "aoanet.table2": 7, "aoanet.section4_6": 2},
    **{"xlan.table1": 12, "xlan.table3": 7, "xlan.table1_xe": 12, "xlan.table1_ensembles": 8},
    **{"xlan.table1_ensembles_xe": 7, "xlan.table2": 11},
    **{"mdsan.table1": 7, "mdsan.table1_regions": 12, "mdsan.table4": 5, "mdsan.table5": 4, "mdsan.table6": 6},
    **{"mdsan.table7": 6, "mdsan.table8": 5, "mdsan.table9": 4, "mdsan.table10": 6, "mdsan.table11": 9},
    **{"mdsan.table12": 8, "mdsan.table13": 4, "mdsan.table2": 6, "mdsan.table2_four": 5, "mdsan.table3": 15},
    **{
        "mdsan.table14": 2,
        "mdsan.table14_regions": 6,
        "mdsan.table15_refcoco": 7,
        "mdsan.table15_refcoco_plus": 7,
        "mdsan.table15_refcocog": 5,
    },
}
"""The tables with their numbers of rows."""


def test_every_table_has_all_its_rows():
    assert {name: len(table.rows) for name, table in TABLES.items()} == ROWS


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_recipes_of_different_names_and_models(name):
    rows = [row for row in TABLES[name].rows if row.recipe is not None]
    assert len({row.key for row in rows}) == len(rows) > 0
    assert {row.recipe for row in rows} <= set(RECIPES)
    recipes = [RECIPES[row.recipe] for row in rows]
    models = {repr((r.model, configure(r.model, {**r.model_overrides, "vocab_size": 9}), r.data)) for r in recipes}
    assert len(models) == len(rows)
    if all(row.recipe.startswith(f"{name}.") for row in rows):
        assert len({repr((recipe.data, recipe.stages)) for recipe in recipes}) == 1
    assert {metric for metric in TABLES[name].metrics if not _is_of_a_server_or_task(metric)} <= set(METRICS)


def _is_of_a_server_or_task(metric: str) -> bool:
    tasks = ("BLEU", "tokenized BLEU", "accuracy", "yes/no", "number", "other", PARAMETERS)
    return metric.endswith((" c5", " c40")) or metric.startswith(("test-", "accuracy on ")) or metric in tasks


def test_tables_of_scores_after_cross_entropy_have_rows_of_one_stage():
    one_stage = {
        name for name, recipe in RECIPES.items() if name.rpartition(".")[0] in TABLES and len(recipe.stages) == 1
    }
    assert {name.rpartition(".")[0] for name in one_stage} == {"aoanet.table4", "xlan.table3"}
    assert len(one_stage) == 17


def test_rows_of_equal_configurations_are_trained_once():
    assert shared_recipe("coco.nsan", "all") == ("ngsan.table1.nsan_4", "all")
    assert shared_recipe("ngsan.table2.in", "all") == ("ngsan.table1.nsan_4", "all")
    assert shared_recipe("coco.aoanet", "first") == ("aoanet.table4.full", "all")
    assert shared_recipe("coco.updown", "first") == ("coco.updown", "first")
    assert shared_recipe("ngsan.table2.in", "all", "scenes.") == ("scenes.ngsan.table1.nsan_2", "all")
    rows = [(row.recipe, table.stages) for table in TABLES.values() for row in table.rows if row.recipe]
    assert len({shared_recipe(*row) for row in rows}) < len(set(rows)) - 25


def test_the_beam_of_a_table_is_that_of_its_paper():
    beams = {name: table.search["beam_size"] for name, table in TABLES.items()}
    assert {name: beam for name, beam in beams.items() if beam != 3} == {"ngsan.table8": 4}


def test_what_rows_change():
    overrides = {name: get_recipe(name).model_overrides for name in ("mdsan.table4.layers_5", "ngsan.table2.bn")}
    assert overrides == {"mdsan.table4.layers_5": {"num_layers": 5}, "ngsan.table2.bn": {"norm": "bn"}}
    assert get_recipe("mdsan.table6.drop_20").model_overrides["drop_branch"] == 0.2
    assert get_recipe("mdsan.table11.heads_40").model_overrides["drop_head"] == 0.4
    assert get_recipe("aoanet.table4.base").model_overrides == {
        "num_layers": 0,
        "multi_head": False,
        "context": "linear",
    }


@pytest.mark.parametrize("name", sorted(set(ROWS) - {"aoanet.section4_6"}))
def test_the_numbers_stand_in_the_papers_text_in_one_line_and_in_this_order(shared, name):
    table = TABLES[name]
    text = _plain((shared / "papers" / f"{name.split('.')[0]}.txt").read_text(encoding="utf-8"))
    place = 0
    for row in table.rows:
        if any(row.scores):
            numbers = "\t".join("-" if score is None else str(score) for score in row.scores).lstrip("-\t")
            position = text.find(numbers, place)
            assert position >= 0, row.label
            place = position + len(numbers)


def _plain(text: str) -> str:
    text = text.replace("\t817\t", "\t81.7\t")  # the point of X-Transformer's BLEU-1 is lost
    numbers = re.sub(r"(\.\d+)M\b", r"\1", re.sub(r"</?b>|\*\*", "", text).replace("–", "-"))
    return re.sub(r"(\.\d)0(?=\s)", r"\1", numbers)


WORDS = {(6, "karpathy"): 9_488, (5, "karpathy"): 10_370, (5, "spacy"): 10_201}
"""Size of each vocabulary of the papers, by the least frequency of a word and the tokenizer."""
OTHER_SIZES = {"key": 41.3, "query": 41.3, "gsan": 41.3, "ngsan": 41.3} | {
    name + ending: size for name, size in (("meshed", 38.4), ("xtransformer", 137.5)) for ending in ("", "_grid")
}
"""Where the papers print other sizes: 41.5, as with 80 channels of geometry, and those of other vocabularies."""


def test_models_have_the_numbers_of_parameters_of_the_papers():
    compared = 0
    for table in TABLES.values():
        for row in table.rows if PARAMETERS in table.metrics else ():
            printed = row.scores[table.metrics.index(PARAMETERS)]
            recipe = RECIPES.get(row.recipe)
            if printed and recipe and recipe.task == "captioning":
                size = {"vocab_size": WORDS[recipe.data.min_count, recipe.data.tokenizer], "feature_dim": 2048}
                parameters = build_on_meta(recipe.model, {**recipe.model_overrides, **size}).parameter_count
                assert round(parameters / 1e6, 1) == OTHER_SIZES.get(row.key, printed), (table.name, row.key)
                compared += 1
    assert compared == 43
