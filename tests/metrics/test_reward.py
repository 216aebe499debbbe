"""The rewards on token ids against the released codes' values, against the scores of text, and under hard use."""

import json
import multiprocessing
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.metrics import reward
from legenda.metrics.bleu import bleu
from legenda.metrics.cider import DocumentFrequencies, cider_d
from legenda.metrics.reward import BleuReward, CiderD

CAPTION = st.lists(st.integers(1, 4), max_size=7)
IMAGES = st.lists(st.tuples(CAPTION, st.lists(CAPTION, min_size=1, max_size=3)), min_size=2, max_size=4)
REFERENCES = {"cat": [[1, 2, 3, 0], [1, 2, 0]], 7: [[4, 2, 3, 5, 0]], "sea": [[6], [6, 6, 1, 0]]}
SAMPLES = np.array(
    [
        [[1, 2, 3, 0, 9], [1, 2, 0, 3, 3]],
        [[4, 2, 0, 0, 0], [8, 8, 8, 8, 8]],
    ]
)


@pytest.fixture(params=["numba", "numpy"])
def engine(request, monkeypatch):
    """Both ways to the same values; without numba there is only one."""
    if request.param == "numba":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(reward, "_numba", lambda: None)
    return request.param


def padded(captions, end=0):
    """Captions as rows that end in the end id, each for an image of its own."""
    rows = np.full((len(captions), 1, max(map(len, captions), default=0) + 1), end)
    for row, caption in zip(rows, captions, strict=True):
        row[0, : len(caption)] = caption
    return rows


@pytest.mark.usefixtures("engine")
def test_the_reward_of_x_lan(shared):
    case = json.loads((shared / "fixtures/xlan_ciderd.json").read_text(encoding="utf-8"))
    samples = np.array(case["hypothesis_rows"])[:, np.newaxis]
    rewards = CiderD(case["references"])(case["hypothesis_image"], samples)
    assert rewards[:, 0].tolist() == pytest.approx(case["rewards"], abs=1e-9)


@pytest.mark.parametrize("name", ["corpus_df", "scst_fixed_df", "corpus_df_1", "corpus_df_2"])
@pytest.mark.usefixtures("engine")
def test_the_reference_program(shared, name):
    sets = json.loads((shared / "fixtures/ciderd_cases.json").read_text(encoding="utf-8"))["sets"]
    [found] = [each for each in sets if each["name"] == name]
    numbers: dict[str, int] = {}

    def ids(caption):
        return [numbers.setdefault(word, len(numbers) + 1) for word in caption.split()]

    references = [[ids(caption) for caption in case["refs"]] for case in found["cases"]]
    documents = found.get("df_documents")
    df = (
        DocumentFrequencies.from_references([[ids(caption) for caption in group] for group in documents])
        if documents
        else "references"
    )
    # An end id that never occurs: these candidates are whole, whatever they hold.
    cider = CiderD(references, eos_token_id=0, eos="drop", df=df)
    rewards = cider(range(len(references)), padded([ids(case["candidate"]) for case in found["cases"]]))
    assert rewards[:, 0].tolist() == pytest.approx([case["cider_d"] for case in found["cases"]], abs=1e-9)


def test_bleu_of_each_image_as_in_pycocoevalcap(shared):
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text(encoding="utf-8"))
    numbers: dict[str, int] = {}

    def ids(caption):
        return [numbers.setdefault(word, len(numbers) + 1) for word in caption.split()]

    references = {image: [ids(caption) for caption in group] for image, group in fixture["tok_refs"].items()}
    samples = padded([ids(caption) for caption in fixture["tok_candidates"].values()])
    scores = BleuReward(references, eos="drop")(fixture["tok_candidates"], samples)
    assert scores[:, 0].tolist() == pytest.approx(list(fixture["per_image"]["Bleu_4"].values()), abs=1e-9)


@given(IMAGES)
def test_the_rewards_are_the_scores_of_text(images):
    candidates, groups = zip(*images, strict=True)
    frequencies = DocumentFrequencies.from_references(groups)
    expected = [cider_d(candidate, group, frequencies) for candidate, group in images]
    samples = padded(candidates)
    cider = CiderD(groups, eos="drop")
    lengths = cider.index.sample_lengths(samples[:, 0])
    assert cider(range(len(images)), samples)[:, 0].tolist() == pytest.approx(expected, abs=1e-9)
    by_numpy = cider.score_with_numpy(np.arange(len(images)), samples[:, 0], lengths)
    assert by_numpy.tolist() == pytest.approx(expected, abs=1e-9)
    expected = [scores[3] for scores in bleu(candidates, groups)[1]]
    assert BleuReward.from_index(cider.index)(range(len(images)), samples)[:, 0].tolist() == pytest.approx(
        expected, abs=1e-12
    )


def score(candidate, references, documents):
    return cider_d(candidate, references, DocumentFrequencies.from_references(documents))


WHOLE = [[1, 2, 3, 0], [1, 2, 0]], [[4, 2, 3, 5, 0]], [[6, 0], [6, 6, 1, 0]]
CUT = [[1, 2, 3], [1, 2, 0]], [[4, 2, 3]], [[6, 0], [6, 6, 1]]
GIVEN = [[1, 2, 3, 0], [1, 2, 0]], [[4, 2, 3, 5, 0]], [[6], [6, 6, 1, 0]]
WORDS = [[1, 2, 3], [1, 2]], [[4, 2, 3, 5]], [[6], [6, 6, 1]]


@pytest.mark.parametrize(
    ("options", "references", "documents", "ends"),
    [
        ({}, GIVEN, GIVEN, [0]),
        ({"eos": "append"}, WHOLE, WHOLE, [0]),
        ({"eos": "append", "max_reference_length": 3}, CUT, WHOLE, [0]),  # AoANet, which clips at 16
        ({"eos": "drop"}, WORDS, WORDS, []),
        (
            {"eos": "drop", "df": "captions"},
            WORDS,
            [[caption] for group in WORDS for caption in group],
            [],
        ),  # MD-SAN
    ],
)
@pytest.mark.usefixtures("engine")
def test_the_conventions_of_the_released_codes(options, references, documents, ends):
    rewards = CiderD(REFERENCES, **options)(["cat", 7], SAMPLES)
    samples = [[1, 2, 3, *ends], [1, 2, *ends], [4, 2, *ends], [8] * 5]
    images = [references[0], references[0], references[1], references[1]]
    expected = [score(sample, group, documents) for sample, group in zip(samples, images, strict=True)]
    assert rewards.shape == (2, 2)
    assert rewards.ravel().tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.usefixtures("engine")
def test_another_eos_token_id():
    shifted = {name: [[token + 1 for token in caption] for caption in group] for name, group in REFERENCES.items()}
    assert CiderD(shifted, eos_token_id=1)(["cat", 7], SAMPLES + 1) == pytest.approx(
        CiderD(REFERENCES)(["cat", 7], SAMPLES)
    )


@pytest.mark.usefixtures("engine")
def test_images_in_any_order_and_more_than_once():
    cider = CiderD(REFERENCES)
    one, two = cider(["cat", 7], SAMPLES)
    both = cider([7, "cat", 7], SAMPLES[[1, 0, 1]])
    assert np.array_equal(both, [two, one, two])
    assert np.array_equal(CiderD(list(REFERENCES.values()))(np.array([0, 1]), SAMPLES), [one, two])


@pytest.mark.parametrize("vocabulary", [70_000, 2**31 - 1])
@pytest.mark.usefixtures("engine")
def test_great_vocabularies_are_exact(vocabulary):
    great = {name: [[token and vocabulary - token for token in c] for c in g] for name, g in REFERENCES.items()}
    samples = np.where(SAMPLES > 0, vocabulary - SAMPLES, 0)
    expected = CiderD(REFERENCES)(["cat", 7], SAMPLES)
    assert CiderD(great)(["cat", 7], samples) == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("engine")
def test_frequencies_counted_before_know_n_grams_that_no_reference_has():
    documents = [[[1, 9, 9]], [[9, 1, 2, 3]], [[2, 3]]]
    cider = CiderD(REFERENCES, df=DocumentFrequencies.from_references(documents))
    assert cider(["cat"], [[[1, 9, 9, 1, 2, 0]]])[0, 0] == pytest.approx(
        score([1, 9, 9, 1, 2, 0], REFERENCES["cat"], documents)
    )


@pytest.mark.usefixtures("engine")
def test_nothing_to_compare_is_no_reward():
    cider = CiderD([[[1]], [[2, 3]]], eos="drop")
    assert cider([0, 1], np.zeros((2, 3, 0), int)).tolist() == [[0.0] * 3] * 2
    assert cider([0, 0], [[[5, 6, 7]], [[0, 1, 1]]]).tolist() == [[0.0], [0.0]]
    assert cider([], np.zeros((0, 3, 4), int)).shape == (0, 3)


@pytest.mark.usefixtures("engine")
def test_a_reward_survives_a_file(tmp_path):
    cider = CiderD(REFERENCES, eos="append", max_reference_length=3)
    cider.save(tmp_path / "index.safetensors")
    again = CiderD.load(tmp_path / "index.safetensors")
    assert np.array_equal(again(["cat", 7], SAMPLES), cider(["cat", 7], SAMPLES))
    scores = BleuReward.from_index(cider.index)(["cat", 7], SAMPLES)
    assert np.array_equal(BleuReward.load(tmp_path / "index.safetensors")(["cat", 7], SAMPLES), scores)


@pytest.mark.usefixtures("engine")
def test_nothing_grows_with_unknown_n_grams():
    cider = CiderD(REFERENCES)
    before = sum(map(len, cider.index.table.keys))
    draw = np.random.default_rng(0)
    first = cider(["cat", 7], SAMPLES)
    for _ in range(20):
        cider(["cat", 7], draw.integers(1, 1000, (2, 5, 12)))
    assert sum(map(len, cider.index.table.keys)) == before
    assert np.array_equal(cider(["cat", 7], SAMPLES), first)


@pytest.mark.usefixtures("engine")
def test_threads_share_a_reward():
    cider = CiderD(REFERENCES)
    expected = CiderD(REFERENCES)(["cat", 7], SAMPLES)
    wrong = []

    def work():
        wrong.extend(True for _ in range(50) if not np.array_equal(cider(["cat", 7], SAMPLES), expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def reply(cider, pipe):
    pipe.send(cider(["cat", 7], SAMPLES))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_share_a_reward(start):
    cider = CiderD(REFERENCES)
    expected = cider(["cat", 7], SAMPLES)
    context = multiprocessing.get_context(start)
    here, there = context.Pipe()
    process = context.Process(target=reply, args=(cider, there))
    process.start()
    assert here.poll(60)
    assert np.array_equal(here.recv(), expected)
    process.join()


@pytest.mark.parametrize(
    ("images", "samples", "message"),
    [
        (["dog"], SAMPLES[:1], "no references for image 'dog'"),
        (["cat"], SAMPLES, r"shape \(2, 2, 5\) .* shape \(1, K, T\)"),
        (["cat"], SAMPLES[0], "give integers of the shape"),
        (["cat"], SAMPLES[:1] / 2, "type float64"),
        (["cat"], [[[1, -1, 0]]], "contains the id -1"),
        (["cat"], [[[1, 2**31, 0]]], "contains the id 2147483648"),
    ],
)
def test_invalid_calls_are_named(images, samples, message):
    with pytest.raises(LegendaError, match=message):
        CiderD(REFERENCES)(images, samples)


@pytest.mark.parametrize(
    ("references", "options", "message"),
    [
        ({"cat": []}, {}, "'cat' has no references"),
        (REFERENCES, {"eos": "count"}, "eos is 'count'"),
        (REFERENCES, {"df": "image"}, "df is 'image'"),
        ([[[1, -5]]], {}, r"reference \[1, -5\] has an id"),
        ([[[1]]], {"df": DocumentFrequencies.from_references([[["a"]]])}, "of words, not of token ids"),
    ],
)
def test_mistakes_in_references_are_named(references, options, message):
    with pytest.raises(LegendaError, match=message):
        CiderD(references, **options)


def test_save_names_invalid_image_ids(tmp_path):
    with pytest.raises(LegendaError, match="image ids include"):
        CiderD({(1, 2): [[1]]}).save(tmp_path / "index.safetensors")
    assert list(tmp_path.iterdir()) == []
