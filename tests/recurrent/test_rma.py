"""RMA: its memory, its step against the equations in other words, its heads."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.recurrent import RMA, RMAHeads, read_strength_loss
from numerate.recurrent.rma import read_top, write_row

f64 = torch.float64


def tensor(*values: object) -> Tensor:
    return torch.tensor(values, dtype=f64)


def test_the_best_rows_are_averaged_and_no_others():
    """Key (1, 0) has cosines 0.6, 1, 0, -1 with the rows; e^(β 0.4) = 4 gives the best two 1/5 and 4/5."""
    memory = tensor([[3, 4], [1, 0], [0, 2], [-5, 0]])
    keys, strengths = tensor([[2, 0], [0, 7]]), tensor([math.log(4) / 0.4, 0])
    reads, weights, rows = read_top(memory, keys, strengths, 2)
    assert rows.tolist() == [[[1, 0], [2, 0]]]
    torch.testing.assert_close(weights, tensor([[0.8, 0.2], [0.5, 0.5]]), atol=1e-5, rtol=0)
    # 0.8 (1, 0) + 0.2 (3, 4); without strength the second head takes the mean of (0, 2) and (3, 4)
    torch.testing.assert_close(reads, tensor([[1.4, 0.8], [1.5, 3.0]]), atol=1e-5, rtol=0)
    alone = read_top(memory, keys, strengths, 1)[0]
    torch.testing.assert_close(alone, tensor([[1, 0], [0, 2]]))


def test_reading_passes_gradients_to_keys_strengths_and_the_rows_read():
    memory, keys = tensor([[3, 4], [1, 0.5], [0, 2]]).requires_grad_(), tensor([[2, 0.1]]).requires_grad_()
    strengths = tensor([1.5]).requires_grad_()
    torch.autograd.gradcheck(lambda m, k, s: read_top(m, k, s, 2)[0], (memory, keys, strengths))
    read_top(memory, keys, strengths, 2)[0].sum().backward()
    assert memory.grad is not None
    assert memory.grad.any(-1).tolist() == [[True, True, False]]


def test_a_row_is_replaced_exactly_and_without_gradient():
    memory, row, value = torch.ones(1, 3, 2, dtype=f64), tensor([0, 1, 0]), tensor([7, 8]).requires_grad_()
    written = write_row(memory, row, value)
    assert written.tolist() == [[[1, 1], [7, 8], [1, 1]]]
    assert not written.requires_grad


def small(inputs: int = 2, hidden: int = 4, **options: object) -> RMA:
    settings = {"encoder": (5, 3), "heads": 2, "rows": 4, "top_k": 2, "dtype": f64, **options}
    return RMA(inputs, hidden, **settings)


def test_codes_are_written_row_by_row_and_over_the_oldest():
    layer = small(rows=3)
    output, (_, _, _, memory, row) = layer(torch.randn(5, 6, 2, dtype=f64))
    z = output[..., :3]
    assert torch.equal(memory[0], torch.stack((z[3], z[4], z[2]), 1))
    assert row[0].tolist() == [[0, 0, 1]] * 6
    assert not memory.requires_grad
    _, (_, _, _, memory, _) = layer(torch.randn(2, 6, 2, dtype=f64))
    assert not memory[0, :, 2].any()  # not reached yet


def test_more_rows_than_a_short_float_can_count():
    layer = small(rows=300, dtype=torch.bfloat16)
    x = torch.randn(310, 1, 2).bfloat16()
    output, (_, _, _, memory, row) = layer(x)
    assert row[0, 0].nonzero().tolist() == [[10]]
    expected = torch.cat((output[300:, 0, :3], output[10:300, 0, :3]))
    assert torch.equal(memory[0, 0], expected)


@pytest.mark.parametrize(("depth", "activation"), [(2, "tanh"), (3, "relu")])
def test_a_step_is_its_equations(depth, activation):
    torch.manual_seed(0)
    n, hidden, latents, heads, rows = 2, 4, 3, 2, 4
    layer = small(n, hidden, depth=depth, activation=activation)
    p = layer.parts()
    for name, value in p.items():
        if name.startswith("bias"):
            nn.init.normal_(value)
    controller = [nn.LSTMCell(latents + (hidden if k else 0), hidden, dtype=f64) for k in range(depth)]
    for k, cell in enumerate(controller):
        values = {name: p[f"{name}_controller{k}"].detach() for name in ("weight_ih", "weight_hh", "bias_ih")}
        cell.load_state_dict({**values, "bias_hh": torch.zeros(4 * hidden, dtype=f64)})
    x = torch.randn(6, 5, n, dtype=f64)
    states = [(torch.zeros(5, hidden, dtype=f64), torch.zeros(5, hidden, dtype=f64)) for _ in controller]
    reads, memory = torch.zeros(5, heads * latents, dtype=f64), torch.zeros(5, rows, latents, dtype=f64)
    outputs = []
    for t, x_t in enumerate(x):
        first = F.linear(torch.cat((x_t, *(h for h, _ in states), reads), -1), p["weight_encoder0"], p["bias_encoder0"])
        z = F.linear(getattr(torch, activation)(first), p["weight_encoder1"], p["bias_encoder1"])
        for k, cell in enumerate(controller):
            states[k] = cell(z if k == 0 else torch.cat((z, states[k - 1][0]), -1), states[k])
        o = torch.cat([h for h, _ in states], -1)
        maps = F.linear(o, p["weight_reader"], p["bias_reader"])
        found = []
        for r in range(heads):
            key, strength = maps[:, r * latents : (r + 1) * latents], F.softplus(maps[:, heads * latents + r])
            similarity = F.cosine_similarity(key[:, None], memory, -1)
            best = torch.stack([row >= row.sort().values[-2] for row in similarity])
            score = torch.where(best, strength[:, None] * similarity, -math.inf)
            # empty rows are alike: none of them counts more than once, whichever is taken
            spare = best.sum(-1) - 2
            empty = ~memory.any(-1) & best
            for b in range(5):
                for row in empty[b].nonzero().flatten()[: int(spare[b])]:
                    score[b, row] = -math.inf
            found.append((score.softmax(-1)[:, :, None] * memory).sum(1))
        reads = torch.cat(found, -1)
        outputs.append(torch.cat((z, o, reads), -1))
        memory = memory.clone()
        memory[:, t % rows] = z.detach()
    output, state = layer(x)
    torch.testing.assert_close(output, torch.stack(outputs), atol=1e-4, rtol=1e-4)  # 1e-6 under the roots of cosines
    torch.testing.assert_close(state[3][0], memory, atol=1e-4, rtol=1e-4)
    assert layer.output_size == latents + depth * hidden + heads * latents


def test_size_of_the_papers_core():
    n, z, h, heads = 519, 200, 256, 3
    model = RMA(n, h, device="meta")
    encoder = 400 * (n + 2 * h + heads * z + 1) + z * (400 + 1)
    controller = 4 * h * (z + h + 1) + 4 * h * (z + h + h + 1)
    reader = heads * (z + 1) * (2 * h + 1)
    assert sum(p.numel() for p in model.parameters()) == encoder + controller + reader == 2_240_419
    assert model.output_size == 200 + 512 + 600
    assert [tuple(shape) for shape in model.cell.state_shapes] == [(2, 256), (2, 256), (600,), (1000, 200), (1000,)]
    refined = RMA(n, h, gate="UR", device="meta")
    assert sum(p.numel() for p in refined.parameters()) == encoder + controller + reader + 2 * h


def test_inspection_shows_gates_strengths_and_where_it_reads():
    layer, x = small(gate="UR"), torch.randn(6, 5, 2, dtype=f64)
    seen = layer.inspect(x)
    gates = seen.activations[0]
    assert gates["forget"].shape == gates["f"].shape == (6, 5, 2, 4)
    assert gates["strength"].shape == (6, 5, 2)
    assert (gates["strength"] > 0).all()
    assert gates["read"].shape == (6, 5, 2, 4)
    assert ((gates["read"] > 0).sum(-1) == 2).all()
    torch.testing.assert_close(gates["read"].sum(-1), torch.ones(6, 5, 2, dtype=f64))
    memory = torch.zeros(5, 4, 3, dtype=f64)
    for t, weights in enumerate(gates["read"]):  # the rows are the codes, in order
        torch.testing.assert_close(seen.output[t, :, -6:], (weights @ memory).flatten(1))
        memory[:, t % 4] = seen.output[t, :, :3].detach()
    read_strength_loss(gates["strength"]).backward()
    assert layer.parts()["weight_reader"].grad is not None


def test_the_read_penalty_counts_strengths_beyond_its_tolerance():
    strengths = tensor([[1.0, 3.0], [4.0, 0.0]], [[2.5, 0.0], [2.0, 2.0]]).requires_grad_()  # two steps, two rows
    loss = read_strength_loss(strengths)
    assert loss.item() == ((2 + 3 + 2.5 + 2) + (4 + 2 + 2 + 2)) / 2
    loss.backward()
    assert strengths.grad is not None
    assert strengths.grad[0].tolist() == [[0.0, 0.5], [0.5, 0.0]]


def test_heads_are_two_networks_the_second_on_code_and_policy():
    heads = RMAHeads(5, 2, 3, hidden=4, dtype=f64)
    y = torch.randn(7, 6, 5, dtype=f64, requires_grad=True)
    logits, values = heads(y)
    w = {name: p.detach() for name, p in heads.named_parameters()}
    expected = torch.tanh(y @ w["policy.0.weight"].T) @ w["policy.2.weight"].T
    torch.testing.assert_close(logits, expected)
    below = torch.cat((y[..., :2], expected), -1)
    torch.testing.assert_close(values, (torch.tanh(below @ w["value.0.weight"].T) @ w["value.2.weight"].T)[..., 0])
    values.sum().backward()
    assert all(p.grad is None for p in heads.policy.parameters())  # the value does not move the policy
    assert y.grad is not None
    assert not y.grad[..., 2:].any()
    paper = RMAHeads(1312, 200, 6)
    count = 200 * (1312 + 1) + 6 * (200 + 1) + 200 * (200 + 6 + 1) + (200 + 1)
    assert sum(p.numel() for p in paper.parameters()) == count
    paper.reset_parameters(torch.Generator().manual_seed(0))
    weight = paper.get_parameter("policy.0.weight").detach().clone()
    paper.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(weight, paper.get_parameter("policy.0.weight"))
    assert weight.abs().max() <= 2 / math.sqrt(1312)


def test_options_that_cannot_be_get_one_clear_sentence():
    with pytest.raises(ValueError, match="top_k=50 must not be above the number of rows, 10"):
        RMA(2, 4, rows=10)
    with pytest.raises(ValueError, match="encoder must be the widths of at least one layer"):
        RMA(2, 4, encoder=())
    with pytest.raises(ValueError, match="heads must be a positive whole number, got 0"):
        RMA(2, 4, heads=0)
    with pytest.raises(ValueError, match="activation must be one of 'tanh', 'relu', got 'selu'"):
        RMA(2, 4, activation="selu")
    assert RMA(2, 4, rows=10, top_k=None)(torch.randn(3, 1, 2))[0].shape == (3, 1, 200 + 8 + 600)
