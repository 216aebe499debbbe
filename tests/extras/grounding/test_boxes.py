"""Boxes overlap, are learnt and are counted as by MCAN's grounding code, and by hand."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file

from legenda.extractors.detection import decode_deltas
from legenda.extras.grounding.data import box_iou, grounding_accuracy, score_targets
from legenda.extras.grounding.model import DELTA_SCALE, clip_boxes, encode_deltas


def boxes(*rows: tuple[float, float, float, float]) -> np.ndarray:
    return np.array(rows, np.float64)


@pytest.mark.parametrize(
    ("a", "b", "overlap"),
    [
        ((0, 0, 9, 9), (0, 0, 9, 4), 50 / 100),  # on the border of a hit, by the convention alone
        ((0, 0, 10, 10), (20, 20, 30, 30), 0.0),
        ((0, 0, 4, 4), (4, 4, 8, 8), 1 / 49),  # they share one pixel
        ((1, 1, 3, 3), (0, 0, 4, 4), 9 / 25),
        ((2, 2, 2, 2), (2, 2, 2, 2), 1.0),  # one pixel
    ],
)
def test_overlaps_by_hand(a, b, overlap):
    assert box_iou(boxes(a), boxes(b)) == pytest.approx(overlap)


def test_overlaps_and_accuracies_of_the_released_code(shared):
    cases = json.loads((shared / "fixtures/mcan_vg.json").read_text())
    predicted, truth = (np.array([case[key] for case in cases["metric_cases"]]) for key in ("pred_xyxy", "gt_xyxy"))
    overlaps = [case["iou_plus1"] for case in cases["metric_cases"]]
    assert len(overlaps) == 42
    assert box_iou(predicted, truth) == pytest.approx(np.array(overlaps), abs=1e-12)
    assert grounding_accuracy(predicted, truth) == pytest.approx(cases["metric_cases_accuracy_plus1_ge"])


def decoded_boxes(boxes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    return decode_deltas(torch.from_numpy(boxes), torch.from_numpy(deltas * DELTA_SCALE)).numpy()


def test_targets_and_boxes_of_the_released_code(shared):
    arrays = load_file(shared / "fixtures/mcan_vg.safetensors")
    proposals, given = arrays["in.boxes_xyxy"], arrays["in.gt_xywh"]
    truth = np.concatenate([given[:, :2], given[:, :2] + given[:, 2:]], axis=1)
    overlaps = box_iou(proposals, truth[:, None])
    assert overlaps == pytest.approx(arrays["target.iou"], abs=1e-9)
    assert score_targets(overlaps) == pytest.approx(arrays["target.score"], abs=1e-7)
    learnt = encode_deltas(proposals, np.broadcast_to(truth[:, None], proposals.shape))
    assert learnt == pytest.approx(arrays["target.delta_norm"], abs=1e-9)
    decoded = decoded_boxes(proposals, arrays["out.reg"])
    assert decoded == pytest.approx(arrays["out.boxes_decoded"], abs=1e-9)
    clipped = clip_boxes(decoded, arrays["in.image_wh"][:, None])
    assert clipped == pytest.approx(arrays["out.boxes_clipped"], abs=1e-9)
    chosen = clipped[np.arange(len(truth)), arrays["out.best"]]
    assert box_iou(chosen, truth) == pytest.approx(arrays["out.pred_iou"], abs=1e-9)
    accuracy = json.loads((shared / "fixtures/mcan_vg.json").read_text())["accuracy_iou50"]
    assert grounding_accuracy(chosen, truth) == accuracy


corners = arrays(np.float64, (6, 2), elements=st.floats(0, 300))
sides = arrays(np.float64, (6, 2), elements=st.floats(0, 200))


@given(corners, sides, corners, sides)
def test_decoding_undoes_encoding_up_to_the_last_pixel(at, size, true_at, true_size):
    some, truth = np.hstack([at, at + size]), np.hstack([true_at, true_at + true_size])
    again = decoded_boxes(some, encode_deltas(some, truth))
    assert again - np.array([0, 0, 1, 1]) == pytest.approx(truth, abs=1e-6)


@given(corners, sides, corners, sides)
def test_overlap_is_symmetric_and_one_only_with_itself(at, size, other_at, other_size):
    a, b = np.hstack([at, at + size]), np.hstack([other_at, other_at + other_size])
    found = box_iou(a, b)
    assert found == pytest.approx(box_iou(b, a))
    assert ((found >= 0) & (found <= 1)).all()
    assert box_iou(a, a) == pytest.approx(np.ones(6))
