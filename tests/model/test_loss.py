from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from pruner_ms.model.loss import LOSSES  # noqa: E402

COST = torch.tensor([[0.0, 0.5, 1.0, 0.0, 2.0]])
FAST = torch.exp(-COST)
TASK = torch.tensor([[0, 0, 0, 1, 1]])


@pytest.mark.parametrize("name", LOSSES)
def test_a_right_order_costs_less_than_a_wrong_one(name):
    right, wrong = LOSSES[name](-COST, COST, FAST, TASK), LOSSES[name](COST, COST, FAST, TASK)
    assert 0 <= right < wrong


@pytest.mark.parametrize("name", LOSSES)
def test_an_offset_of_a_whole_task_costs_nothing(name):
    score = -COST + torch.tensor([[0.3, -0.2, 0.1, 0.0, 0.4]])
    moved = score + torch.where(TASK == 1, 7.0, 0.0)
    torch.testing.assert_close(
        LOSSES[name](score, COST, FAST, TASK), LOSSES[name](moved, COST, FAST, TASK)
    )


@pytest.mark.parametrize("name", LOSSES)
def test_members_add_up_and_gradients_are_finite_where_all_is_equal(name):
    score = torch.zeros(2, 5, requires_grad=True)
    loss = LOSSES[name](score, COST.expand(2, 5), FAST.expand(2, 5), TASK.expand(2, 5))
    one = LOSSES[name](torch.zeros(1, 5), COST, FAST, TASK)
    torch.testing.assert_close(loss, 2 * one)
    loss.backward()
    assert torch.isfinite(score.grad).all()
    assert (score.grad[0] == score.grad[1]).all()
    same = LOSSES[name](torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3), TASK[:, :3])
    assert torch.isfinite(same)
