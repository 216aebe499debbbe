"""The translator: sentences to sentences with the captioner's decoder."""

import pytest
import torch

from legenda.decoding import beam_search
from legenda.errors import LegendaError
from legenda.extras.translation.model import Translator, TranslatorConfig
from legenda.extras.translation.subwords import BPETokenizer, SentencePieceTokenizer
from legenda.models.weights import load_weights, save_weights
from legenda.text import Vocabulary

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = Vocabulary(("<end>", "<unk>", "a", "b", "c", "the@@", "re"))


def small(seed=0, **options):
    torch.manual_seed(seed)
    settings = {"vocab_size": 12, "dim": 16, "num_heads": 4, "num_layers": 2, "ff_dim": 24, "dropout": 0.0}
    return TranslatorConfig(**{**settings, **options}).build().eval()


def sentences(lengths, seed=0):
    """Sentences of words 2 to 11 and the end, padded with -1."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.full((len(lengths), max(lengths)), -1)
    for row, length in enumerate(lengths):
        source[row, :length] = torch.randint(2, 12, (length,), generator=generator)
        source[row, length - 1] = 0
    return source


OPTIONS = [{}, {"norm": "in"}, {"norm_first": True}, {"norm": "ln", "norm_on": "qk"}, {"branches": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_give_what_all_positions_at_once_give(options):
    model = small(**options)
    memory = model.encode(sentences((5, 3)))
    tokens = torch.randint(2, 12, (2, 3, 6), generator=torch.Generator().manual_seed(1))
    state, logits = model.decoder.init_state(memory, 3), []
    for word in tokens.unbind(dim=-1):
        following, state = model.decoder.step(word, state, memory)
        logits.append(following)
    torch.testing.assert_close(torch.stack(logits, dim=2), model(sentences((5, 3)), tokens))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_padding_changes_nothing(options):
    model = small(**options)
    source, tokens = sentences((7, 4, 1)), torch.tensor([[[0, 3, 5]], [[0, 2, 2]], [[0, 4, 9]]])
    together = model(source, tokens)
    for row, length in enumerate((7, 4, 1)):
        torch.testing.assert_close(together[row], model(source[row : row + 1, :length], tokens[row : row + 1])[0])


def by_hand(V, D, F, L):
    """The parameters of fairseq's transformer_wmt_en_de with one shared embedding."""
    attention, feed_forward, norm = 4 * (D * D + D), D * F + F + F * D + D, 2 * D
    return V * D + L * (attention + feed_forward + 2 * norm) + L * (2 * attention + feed_forward + 3 * norm)


def test_transformer_base_has_its_parameters_and_normalised_attention_adds_none():
    with torch.device("meta"):
        base = TranslatorConfig(vocab_size=32768)
        assert by_hand(32768, 512, 2048, 6) == 60_915_712
        assert sum(p.numel() for p in Translator(base).parameters()) == 60_915_712
        normed = Translator(TranslatorConfig(vocab_size=32768, norm="in"))
        assert sum(p.numel() for p in normed.parameters()) == 60_915_712
    assert small().parameter_count == by_hand(12, 16, 24, 2)


def test_one_embedding_serves_source_target_and_output():
    model = small()
    names = [name for name, part in model.named_parameters() if 12 in part.shape]
    assert names == ["decoder.embedding.weight"]
    source, tokens = torch.tensor([[3, 0]]), torch.tensor([[[0, 4]]])
    before, states = model(source, tokens), model.encode(source).states
    with torch.no_grad():
        model.decoder.embedding.weight[7, 0] += 1.0
    after = model(source, tokens)
    changed = ((before - after).abs() > 1e-6).any(dim=2).squeeze()
    assert changed.tolist() == [word == 7 for word in range(12)]  # word 7 is only put out
    with torch.no_grad():
        model.decoder.embedding.weight[3, 0] += 1.0
    assert not torch.equal(states, model.encode(source).states)


def test_beam_search_serves_it_with_fairseqs_length_rule():
    model = small(seed=3)
    assert (model.generation_config.length_penalty, model.generation_config.length_normalization) == (0.6, "power")
    source = sentences((6, 2))
    found = beam_search(model, model.encode(source), beam_size=4, max_length=8)
    for row in range(2):
        for tokens, log_probs, score in zip(found.tokens[row], found.log_probs[row], found.scores[row], strict=True):
            words = tokens.tolist()
            length = words.index(0) + 1 if 0 in words else len(words)
            assert score.item() == pytest.approx(log_probs.sum().item() / length**0.6, rel=1e-4)
            inputs = torch.cat([torch.zeros(1, dtype=torch.long), tokens[:-1]])[None, None, :length]
            expected = model(source[row : row + 1], inputs).log_softmax(-1)[0, 0].gather(1, tokens[:length, None])
            torch.testing.assert_close(log_probs[:length], expected.squeeze(1), rtol=1e-4, atol=1e-4)


def test_words_and_weights_are_saved_and_loaded(tmp_path):
    model, other = small(vocab_size=7), small(seed=1, vocab_size=7)
    model.vocabulary, model.subwords = WORDS, BPETokenizer("#version: 0.2\nr e</w>\n")
    model.save_vocabulary(tmp_path)
    save_weights(model.state_dict(), tmp_path)
    other.load_vocabulary(tmp_path)
    load_weights(other, tmp_path / "model.safetensors")
    assert other.encode_text("a there") == model.encode_text("a there")
    source, tokens = torch.tensor([[2, 5, 0]]), torch.tensor([[[0, 3]]])
    assert torch.equal(other(source, tokens), model(source, tokens))
    (tmp_path / "subwords.model").unlink()
    with pytest.raises(LegendaError, match=r"subwords\.model"):
        other.load_vocabulary(tmp_path)
    SentencePieceTokenizer.train(["a there"], 8).save(tmp_path / "subwords.model")
    with pytest.raises(LegendaError, match=r"subwords\.model.*vocabulary\.txt"):
        other.load_vocabulary(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"geometry": "query"}, "tokens of a sentence have no boxes"),
        ({"distance": "manhattan"}, "tokens of a sentence have no boxes"),
        ({"window": "swin"}, "tokens of a sentence have no boxes"),
        ({"dim": 18}, "dim=18 must be even and a multiple of num_heads=4"),
    ],
)
def test_what_no_translator_can_be_is_refused(options, message):
    with pytest.raises(LegendaError, match=message):
        small(**options)
