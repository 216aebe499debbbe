"""Products with a matrix that is laid out beforehand, or turned round, are those of `linear`."""

import pytest
import torch
from torch.nn import functional as F

from legenda.models import packing
from legenda.models.packing import RepeatedProduct


@pytest.fixture(autouse=True)
def small_matrices_are_laid_out(monkeypatch):
    monkeypatch.setattr(packing, "_LARGE", 1)


@pytest.mark.parametrize("most", [1, 9, 50])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-13), (torch.bfloat16, 1e-2)])
def test_every_input_gives_the_product(dtype, error, bias, most):
    torch.manual_seed(0)
    weight, term = torch.randn(33, 20).to(dtype), torch.randn(33).to(dtype) if bias else None
    product = RepeatedProduct(weight, most)
    for rows in (1, 9, 9, 50, 50, 9, 0, 41, 50, 1):
        x = torch.randn(20, rows).to(dtype).T
        found = product(x, term)
        assert found.is_contiguous()
        torch.testing.assert_close(found, F.linear(x, weight, term), rtol=error, atol=10 * error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", [slice(None), slice(20, 180)])
def test_a_transposed_matrix(part, dtype):
    torch.manual_seed(0)
    weight, x = torch.randn(33, 200).to(dtype)[:, part], torch.randn(50, 33).to(dtype)
    product = RepeatedProduct(weight.T, 50)
    for _ in range(2):
        error = {"rtol": 1e-5, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 1e-2, "atol": 1e-1}
        torch.testing.assert_close(product(x).float(), x.float() @ weight.float(), **error)


@pytest.mark.parametrize(
    ("dtype", "most", "rows", "laid_out"),
    [
        (torch.float32, 50, (10, 50, 50, 50), 1),
        (torch.float32, 50, (10, 40, 51), 0),
        (torch.float32, 40, (40, 40), 0),
        (torch.float64, 50, (50, 50), 0),
        (torch.bfloat16, 10, (10, 10, 50), 1),
        (torch.bfloat16, 1, (1, 1), 0),
    ],
)
def test_a_matrix_is_laid_out_once_and_when_that_pays(dtype, most, rows, laid_out, monkeypatch):
    made, pack = [], packing._pack
    assert packing._can_pack(torch.float32) == torch.backends.mkl.is_available()
    if dtype is not torch.float64 and not packing._can_pack(dtype):
        pytest.skip("this torch has no such layouts for this processor")
    monkeypatch.setattr(packing, "_pack", lambda weight, rows: made.append(rows) or pack(weight, rows))
    product = RepeatedProduct(torch.ones(4, 4).to(dtype), most)
    for number in rows:
        product(torch.ones(number, 4).to(dtype))
    assert len(made) == laid_out


def test_a_torch_without_these_layouts_multiplies_as_ever(monkeypatch):
    def missing(*_):
        raise NotImplementedError("Could not run 'mkl::_mkl_reorder_linear_weight'")

    monkeypatch.setattr(packing, "_pack", missing)
    monkeypatch.setattr(packing, "_can_pack", packing._can_pack.__wrapped__)  # what it has found before is not asked
    product, x = RepeatedProduct(torch.eye(8), 50), torch.randn(50, 8)
    assert product(x).equal(x)
