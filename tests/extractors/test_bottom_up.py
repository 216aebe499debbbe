"""The Visual Genome detector: names, shapes and arithmetic of the public weights, on tiny random ones."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.ops import nms

from legenda.errors import LegendaError
from legenda.extractors import load_extractor
from legenda.extractors.bottom_up import (
    BottomUp,
    base_anchors,
    extract_regions,
    grid_anchors,
    select_boxes,
    suppressed,
)
from legenda.extractors.detection import decode_deltas
from legenda.extras.grounding.data import box_iou
from legenda.report.images import packaged_photographs

WEIGHTS = os.environ.get("LEGENDA_BOTTOM_UP")
"""The public weights, bua-caffe-frcn-r101_with_attributes.pth, where someone has them."""

TINY = {"width": 2, "blocks": (1, 1, 1, 1), "rpn_width": 4, "classes": 7}


def tiny(seed: int = 0) -> BottomUp:
    torch.manual_seed(seed)
    return BottomUp(**TINY).eval()


def image(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8))


def test_state_dict_matches_the_public_weights():
    with torch.device("meta"):
        state = BottomUp().state_dict()
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    # of bua-caffe-frcn-r101_with_attributes.pth
    expected = {
        "backbone.stem.conv1.weight": (64, 3, 7, 7),
        "backbone.stem.conv1.norm.running_var": (64,),
        "backbone.res2.0.shortcut.weight": (256, 64, 1, 1),
        "backbone.res3.0.conv1.weight": (128, 256, 1, 1),
        "backbone.res4.22.conv3.norm.bias": (1024,),
        "proposal_generator.rpn_head.conv.weight": (512, 1024, 3, 3),
        "proposal_generator.rpn_head.objectness_logits.weight": (24, 512, 1, 1),
        "proposal_generator.rpn_head.anchor_deltas.bias": (48,),
        "roi_heads.res5.0.shortcut.norm.weight": (2048,),
        "roi_heads.res5.2.conv2.weight": (512, 512, 3, 3),
        "roi_heads.box_predictor.cls_score.weight": (1601, 2048),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    assert sum(name.startswith("backbone.res4.") and name.endswith("conv2.weight") for name in shapes) == 23


@pytest.mark.slow
@pytest.mark.skipif(WEIGHTS is None, reason="needs the public weights, as in LEGENDA_BOTTOM_UP=FILE")
def test_the_public_weights_see_the_cup():
    (path,) = (path for path in packaged_photographs() if path.stem == "coffee")
    photograph = Image.open(path).convert("RGB")
    ((features, boxes),) = load_extractor(f"bottom-up:{WEIGHTS}").extract([photograph])
    assert 10 <= len(features) <= 100
    assert features.shape[1] == 2048
    assert features.min() >= 0  # means after ReLU
    norms = np.linalg.norm(features, axis=1)
    assert np.isfinite(norms).all()
    assert norms.min() > 0
    cup, size = np.array([0.28, 0.04, 0.70, 0.71]), np.array(photograph.size * 2)
    assert box_iou(boxes * size, cup * size).max() > 0.6


def test_anchors_are_those_of_caffe():
    # the table that py-faster-rcnn's generate_anchors.py prints in its source, less one: pixels count from 0 here
    known = [[-84, -40, 99, 55], [-176, -88, 191, 103], [-360, -184, 375, 199], [-56, -56, 71, 71]]
    known += [[-120, -120, 135, 135], [-248, -248, 263, 263], [-36, -80, 51, 95], [-80, -168, 95, 183]]
    anchors = base_anchors()
    assert anchors.shape == (12, 4)
    assert anchors[[1, 2, 3, 5, 6, 7, 9, 10]].tolist() == known
    placed = grid_anchors(2, 3).reshape(2, 3, 12, 4)
    torch.testing.assert_close(placed[1, 2], anchors + torch.tensor([32.0, 16.0, 32.0, 16.0]))


def test_deltas_move_and_scale_boxes():
    boxes = torch.tensor([[0.0, 0.0, 9.0, 19.0]])
    assert decode_deltas(boxes, torch.zeros(1, 4)).tolist() == [[0, 0, 10, 20]]
    moved = decode_deltas(boxes, torch.tensor([[0.5, -0.25, torch.log(torch.tensor(2.0)), 0.0]]))
    torch.testing.assert_close(moved, torch.tensor([[0.0, -5.0, 20.0, 15.0]]))


@pytest.mark.parametrize("seed", range(4))
def test_suppression_of_all_classes_matches_nms_per_class(seed):
    torch.manual_seed(seed)
    corners = torch.rand(30, 2) * 60
    boxes = torch.cat([corners, corners + 5 + torch.rand(30, 2) * 40], dim=1)
    probs = torch.rand(30, 6)
    out = suppressed(boxes, probs)
    for kind in range(6):
        kept = nms(boxes + torch.tensor([0.0, 0, 1, 1]), probs[:, kind], 0.3)
        assert sorted(kept.tolist()) == (~out[:, kind]).nonzero().flatten().tolist()


@pytest.mark.parametrize(("sure", "expected"), [(0, 10), (5, 10), (40, 40), (130, 100)])
def test_10_to_100_regions_are_selected_or_a_fixed_number_the_surest_first(sure, expected):
    far = torch.arange(150.0).unsqueeze(1) * 100
    boxes = torch.cat([far, far, far + 10, far + 10], dim=1)
    probs = torch.full((150, 2), 0.01)
    probs[:sure, 1] = 0.5 + torch.arange(sure) / 1000
    for count, fixed in ((expected, ()), (36, (36,)), (100, (100,))):
        selected = select_boxes(boxes, probs, *fixed)
        assert len(selected) == len(set(selected.tolist())) == count
        assert len(set(selected.tolist()) & set(range(sure))) == min(sure, count)


@pytest.mark.parametrize("num_regions", [12, pytest.param(None, marks=pytest.mark.slow)])
def test_a_batch_equals_its_images_one_by_one(monkeypatch, num_regions):
    """Images of two sizes, of which two are resized to the same."""
    monkeypatch.setattr("legenda.extractors.detection.SHORT_SIDE", 200)
    images, model = [image(96, 64), image(64, 96), image(48, 32)], tiny()
    batch = extract_regions(model, images, num_regions)
    for (features, boxes), each in zip(batch, images, strict=True):
        ((alone, alone_boxes),) = extract_regions(model, [each], num_regions)
        assert len(features) == (num_regions or len(features))
        assert alone_boxes is not None
        np.testing.assert_allclose(boxes, alone_boxes, atol=1e-5)
        np.testing.assert_allclose(features, alone, rtol=1e-3, atol=1e-5)


def test_missing_damaged_and_executable_weights_raise(tmp_path):
    with pytest.raises(LegendaError, match=r"gone\.pth.*bua-caffe"):
        load_extractor(f"bottom-up:{tmp_path / 'gone.pth'}")
    with pytest.raises(LegendaError, match="bottom-up"):
        load_extractor("bottom-up")
    (tmp_path / "text.pth").write_text("no weights")
    torch.save({"model": Image.Image}, tmp_path / "code.pth")
    for name in ("text.pth", "code.pth"):
        with pytest.raises(LegendaError, match=name):
            load_extractor(f"bottom-up:{tmp_path / name}")
