"""Laws of all models, whatever their attention: steps equal the parallel pass, and padding has no influence."""

import copy
import dataclasses

import pytest
import torch
from model_cases import (
    CASES,
    COUNTS,
    FEATURES,
    ORDERED,
    REPRESENTATIVES,
    ROWS,
    VOCABULARY,
    WORDS,
    build_model,
    run_steps,
)

import legenda
from legenda import Regions
from legenda.attention import AdditiveAttention, MaskedBatchNorm, MultiHeadAttention, XLinearAttention
from legenda.attention.memory import MemoryAttention
from legenda.attention.normalization import MaskedInstanceNorm
from legenda.errors import LegendaError
from legenda.models import Captioner
from legenda.models.packing import PackedWeights, packed


@pytest.fixture(
    params=[pytest.param(case, marks=[] if case in REPRESENTATIVES else [pytest.mark.slow]) for case in CASES]
)
def case(request) -> str:
    return request.param


@pytest.fixture
def model(case) -> Captioner:
    return build_model(case)


@pytest.fixture
def regions(draw_regions) -> Regions:
    return draw_regions(COUNTS, dim=FEATURES)


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(VOCABULARY, (len(COUNTS), ROWS, WORDS), generator=torch.Generator().manual_seed(1))


def assert_close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def in_float64(model, regions):
    """Return copies in which rounding is far below the tolerance on any processor."""
    return copy.deepcopy(model).double(), Regions(
        regions.features.double(), regions.boxes.double(), regions.mask_or_ones
    )


@torch.no_grad()
def test_steps_equal_all_positions_at_once(model, regions, tokens):
    logits = model(regions, tokens)
    assert logits.shape == (len(COUNTS), ROWS, WORDS, VOCABULARY)
    stepped, state = run_steps(model, model.encode(regions), tokens)
    assert_close(stepped, logits)
    assert logits.std() > 0.1  # the tolerance means something
    attention = state.attention
    assert attention.shape[:2] == (len(COUNTS), ROWS)
    assert_close(attention.sum(dim=-1), torch.ones(attention.shape[:3]))
    assert (attention * ~regions.mask_or_ones[:, None, None, :] == 0).all()


@torch.no_grad()
def test_rows_do_not_see_each_other_nor_what_comes_later(model, regions, tokens):
    logits = model(regions, tokens)
    for row in range(ROWS):
        assert_close(model(regions, tokens[:, row : row + 1]), logits[:, row : row + 1])
    other = tokens.clone()
    other[:, 0, 3:] = (other[:, 0, 3:] + 1) % VOCABULARY
    changed = model(regions, other)
    assert_close(changed[:, 1], logits[:, 1], 1e-6)
    assert_close(changed[:, 0, :3], logits[:, 0, :3], 1e-6)
    assert (changed[:, 0, 3:] - logits[:, 0, 3:]).abs().amax(dim=(-1, -2)).gt(1e-3).all()


@torch.no_grad()
@pytest.mark.parametrize("garbage", [1e3, float("nan")])
def test_padding_may_hold_anything(model, regions, tokens, garbage):
    padding = ~regions.mask_or_ones.unsqueeze(-1)
    spoilt = Regions(
        regions.features.masked_fill(padding, garbage),
        regions.boxes.masked_fill(padding, garbage),
        regions.mask_or_ones,
    )
    logits = model(regions, tokens)
    assert_close(model(spoilt, tokens), logits, 1e-6)
    assert_close(run_steps(model, model.encode(spoilt), tokens)[0], logits)


@torch.no_grad()
def test_keys_and_values_lie_as_each_step_reads_them(model, regions):
    memory = model.encode(regions)
    assert all(part.is_contiguous() for pair in memory.cross_kv for part in pair)


@torch.no_grad()
def test_an_image_is_the_same_alone_and_in_a_batch(model, regions, tokens):
    model, regions = in_float64(model, regions)
    logits, memory = model(regions, tokens), model.encode(regions)
    for image, count in enumerate(COUNTS):
        alone = Regions(regions.features[image : image + 1, :count], regions.boxes[image : image + 1, :count])
        part = slice(image, image + 1)
        assert_close(model(alone, tokens[part]), logits[part], 1e-9)
        assert_close(model.decoder(tokens[part], memory[part]), logits[part], 1e-9)


@torch.no_grad()
def test_regions_have_no_order_but_frames_do(case, model, regions, tokens):
    model, regions = in_float64(model, regions)
    if case in ORDERED:  # padding follows the frames
        regions, tokens = regions[:1], tokens[:1]
    order = torch.tensor([3, 0, 4, 2, 1])
    turned = Regions(regions.features[:, order], regions.boxes[:, order], regions.mask_or_ones[:, order])
    found, expected = model(turned, tokens), model(regions, tokens)
    if case in ORDERED:
        assert not torch.allclose(found, expected, atol=1e-3)
    else:
        assert_close(found, expected, 1e-9)


@torch.no_grad()
def test_boxes_are_read_where_they_are_asked_for(model, regions, tokens):
    changed = Regions(regions.features, regions.boxes.flip(1), regions.mask_or_ones)
    change = (model(changed, tokens) - model(regions, tokens)).abs().max()
    assert (change > 1e-4) == model.needs_boxes
    without = Regions(regions.features, None, regions.mask_or_ones)
    if model.needs_boxes:
        with pytest.raises(LegendaError, match="boxes"):
            model.encode(without)
    else:
        assert_close(model(without, tokens), model(regions, tokens), 0)


def test_features_of_another_width_are_refused(model, draw_regions):
    with pytest.raises(LegendaError, match=f"7.*{model.name}.*{FEATURES}"):
        model.encode(draw_regions(COUNTS, dim=7))


def _without_effect(model) -> set[str]:
    """The parameters that by algebra change nothing.

    What is added to all keys alike adds the same to all scores of a query, and softmax forgets it: the bias of the
    keys, and the shift of their norm. Instance normalisation takes away what is added to all queries or keys alike.
    """
    found = set()
    for name, module in model.named_modules():
        if isinstance(module, AdditiveAttention) and module.score.bias is not None:
            found.add(f"{name}.score.bias")
        if isinstance(module, XLinearAttention) and module.spatial.bias is not None:
            found.add(f"{name}.spatial.bias")
        if not isinstance(module, MultiHeadAttention):
            continue
        if isinstance(module.query_norm, MaskedInstanceNorm) and module.query.bias is not None:
            found.add(f"{name}.query.bias")
        # Layer normalisation is not linear in what is added: there the bias counts, though the shift after it does not.
        if isinstance(module, MemoryAttention):  # the bias is added to the keys of regions, not to those of slots
            continue
        linear = module.key_norm is None or isinstance(module.key_norm, MaskedInstanceNorm | MaskedBatchNorm)
        if linear and module.rescale is None and module.key.bias is not None:
            found.add(f"{name}.key.bias")
        if module.key_norm is not None:
            shifts = (part for part, _ in module.key_norm.named_parameters() if part.split(".")[-1] == "bias")
            found.update(f"{name}.key_norm.{part}" for part in shifts)
    return found


def test_gradients_reach_every_parameter_that_has_an_effect(model, regions, tokens):
    model, regions = in_float64(model, regions)
    logits = model(regions, tokens)
    factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (logits * factors).sum().backward()
    sizes = {name: parameter.grad.abs().max().item() for name, parameter in model.named_parameters()}
    largest = max(sizes.values())
    assert {name for name, size in sizes.items() if size < 1e-12 * largest} == _without_effect(model)
    assert all(size > 1e-8 * largest for name, size in sizes.items() if name not in _without_effect(model))


@torch.no_grad()
def test_a_saved_model_comes_back_the_same(model, regions, tokens, tmp_path):
    model.save(tmp_path)
    loaded = legenda.load(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.name == model.name
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(regions, tokens), model(regions, tokens))


@torch.no_grad()
def test_a_reordered_state_is_that_of_the_rows_it_names(model, regions, tokens):
    memory = model.encode(regions)
    prefix, following = tokens[..., :3], tokens[..., 3]
    _, state = run_steps(model, memory, prefix)
    expected, _ = model.decoder.step(following, state, memory)
    beams = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
    rows = beams.unsqueeze(-1).expand(-1, -1, 3)
    turned = state.reorder(beams)
    assert_close(turned.attention, state.attention[torch.arange(len(COUNTS)).unsqueeze(1), beams], 0)
    found, grown = model.decoder.step(following.gather(1, beams), turned, memory)
    whole = torch.cat([prefix.gather(1, rows), following.gather(1, beams).unsqueeze(-1)], dim=-1)
    assert_close(found, model.decoder(whole, memory)[:, :, -1])
    # Neither reorder nor step has touched the state they were given.
    assert_close(model.decoder.step(following, state, memory)[0], expected, 0)
    again, _ = model.decoder.step(following.gather(1, beams), grown, memory)
    longer = torch.cat([whole, following.gather(1, beams).unsqueeze(-1)], dim=-1)
    assert_close(again, model.decoder(longer, memory)[:, :, -1])


@torch.no_grad()
def test_a_static_cache_gives_the_same_and_keeps_its_shapes(model, regions, tokens):
    memory = model.encode(regions)
    growing, static = model.decoder.init_state(memory, ROWS), model.decoder.init_static_state(memory, ROWS, WORDS)
    swapped = torch.tensor([[1, 0]] * len(COUNTS))
    before = None
    for word in tokens.unbind(dim=-1):
        expected, growing = model.decoder.step(word, growing, memory)
        found, static = model.decoder.step(word, static, memory)
        assert_close(found, expected)
        assert_close(static.attention, growing.attention)
        kinds = [(tensor.shape, tensor.dtype) for tensor in tensors_of(static)]
        assert before is None or kinds == before
        before = kinds
        growing, static = growing.reorder(swapped), static.reorder(swapped)


def tensors_of(state):
    """All tensors of nested tuples and dataclasses; a number, whose value a compiled step would keep, is refused."""
    if state is None or isinstance(state, torch.Tensor):
        return [] if state is None else [state]
    parts = state if isinstance(state, tuple) else [getattr(state, part.name) for part in dataclasses.fields(state)]
    return [tensor for part in parts for tensor in tensors_of(part)]


def test_dropout_is_for_training_only(model, regions, tokens):
    trained = copy.deepcopy(model).train()
    assert not torch.allclose(trained(regions, tokens), trained(regions, tokens))
    assert torch.equal(model(regions, tokens), model(regions, tokens))


def test_training_hides_regions_only_where_asked(model, regions):
    trained = copy.deepcopy(model).train()
    assert all(torch.equal(trained.encode(regions).mask, model.encode(regions).mask) for _ in range(10))


def test_regions_are_never_repeated_for_rows(model, draw_regions, largest):
    """No tensor of images x rows x regions x channels where images x regions x channels would do."""
    model = copy.deepcopy(model)
    for block in (part for part in model.modules() if isinstance(part, XLinearAttention)):
        block.chunk_size = 1  # the models are so small that all would be done at once
    if any(isinstance(part, AdditiveAttention) for part in model.modules()):
        pytest.skip("additive attention takes the tanh of each row with each region: no smaller tensor would do")
    images, rows, count = 2, 120, 13
    regions = draw_regions((count,) * images, dim=FEATURES)
    first = torch.zeros(images, rows, dtype=torch.long)
    with largest() as found:
        memory = model.encode(regions)
        model.decoder.step(first, model.decoder.init_state(memory, rows), memory)
    assert found.elements < images * rows * count * model.config.dim
    with largest() as found:
        model(regions, first.unsqueeze(-1)).sum().backward()
    assert found.elements < images * rows * count * model.config.dim


@pytest.mark.filterwarnings("error")
def test_an_empty_batch_gives_empty_outputs(model):
    model = copy.deepcopy(model)
    regions = Regions(torch.zeros(0, 4, FEATURES), torch.zeros(0, 4, 4))
    logits = model(regions, torch.zeros(0, 2, 5, dtype=torch.long))
    assert logits.shape == (0, 2, 5, VOCABULARY)
    logits.sum().backward()
    output = legenda.decoding.beam_search(model, regions, beam_size=2, max_length=4)
    assert (output.tokens.shape[0], output.scores.shape) == (0, (0, 2))


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "error"), [(torch.float16, 0.03), (torch.bfloat16, 0.2)])
@pytest.mark.parametrize("boxes_too", [False, True])
def test_models_compute_in_half_precision(model, regions, tokens, dtype, error, boxes_too):
    half = regions.to(dtype) if boxes_too else dataclasses.replace(regions, features=regions.features.to(dtype))
    logits = copy.deepcopy(model).to(dtype)(half, tokens)
    assert logits.dtype == dtype
    rounded = dataclasses.replace(regions, boxes=None if half.boxes is None else half.boxes.float())
    expected = model(rounded, tokens)
    assert (logits.float() - expected).norm() < error * expected.norm()


@torch.no_grad()
def test_packed_weights_give_the_same_and_leave_the_model_whole(model, regions, tokens):
    expected, state = model(regions, tokens), {name: id(tensor) for name, tensor in model.named_parameters()}
    view = packed(model, PackedWeights(min_numel=1))
    assert view is not model
    assert_close(view(regions, tokens), expected, 1e-4)
    assert list(view.state_dict()) == list(model.state_dict())
    assert {name: id(tensor) for name, tensor in view.named_parameters()} == state
    assert torch.equal(model(regions, tokens), expected)


@torch.no_grad()
def test_a_static_cache_has_the_dtype_of_the_keys(model, regions):
    """Under autocast, normalized states are float32 and keys and values bfloat16."""
    memory = model.encode(regions)
    half = dataclasses.replace(memory, cross_kv=tuple((k.bfloat16(), v.bfloat16()) for k, v in memory.cross_kv))
    caches = getattr(model.decoder.init_static_state(half, 2, 4), "kv_cache", ())
    assert {part.dtype for pair in caches for part in pair} <= {torch.bfloat16}
