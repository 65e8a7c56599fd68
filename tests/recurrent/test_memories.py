"""DNC and RMC: the parts of their memories, each against its definition."""

import pytest
import torch
import torch.nn.functional as F

from numerate.recurrent import DNC, GATES, LSTM, RMC
from numerate.recurrent.dnc import allocation, content_weights, link, read_weights, usage, write_weights
from numerate.recurrent.rmc import attend

f64 = torch.float64


def simplex(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=f64).softmax(-1)


def test_allocation_fills_free_slots_in_order_of_usage():
    u = torch.tensor([[0.5, 0.0, 0.9, 0.2]], dtype=f64)
    expected = [0.5 * 0.2 * 0.0, 1.0, 0.1 * 0.5 * 0.2 * 0.0, 0.8 * 0.0]  # (1 - u) times the smaller usages
    torch.testing.assert_close(allocation(u)[0], torch.tensor(expected, dtype=f64), atol=1e-5, rtol=0)
    u = torch.rand(7, 6, dtype=f64)
    by_hand = torch.stack([(1 - row) * torch.stack([row[row < v].prod() for v in row]) for row in u])
    torch.testing.assert_close(allocation(u), by_hand, atol=1e-5, rtol=0)


def test_usage_grows_where_written_and_falls_where_freely_read():
    before, write, read = (
        torch.full((1, 3), 0.5, dtype=f64),
        torch.eye(3, dtype=f64)[None, :1],
        torch.eye(3, dtype=f64)[None, 2:],
    )
    assert usage(before, write, torch.ones(1, 1, dtype=f64), read).tolist() == [[1.0, 0.5, 0.0]]
    assert usage(before, write, torch.zeros(1, 1, dtype=f64), read).tolist() == [[1.0, 0.5, 0.5]]
    write.requires_grad_()
    before.requires_grad_()
    usage(before, write, torch.ones(1, 1, dtype=f64), read).sum().backward()
    assert write.grad is None


def test_links_remember_the_order_of_writing():
    n = 4
    links, precedence = torch.zeros(1, 1, n, n, dtype=f64), torch.zeros(1, 1, n, dtype=f64)
    order = [2, 0, 3]
    for slot in order:
        w = F.one_hot(torch.tensor([[slot]]), n).to(f64)
        links = link(links, precedence, w)
        precedence = (1 - w.sum(-1, keepdim=True)) * precedence + w
    assert links[0, 0].nonzero().tolist() == [[0, 2], [3, 0]]  # L[i, j]: i was written right after j
    at_zero = F.one_hot(torch.tensor([[0]]), n).to(f64)
    content = torch.full((1, 1, n), 0.25, dtype=f64)
    for mode, slot in ((0, 2), (1, 3)):  # backward finds 2, forward finds 3
        modes = F.one_hot(torch.tensor([[mode]]), 3).to(f64)
        assert read_weights(at_zero, links, content, modes)[0, 0].argmax() == slot
    modes = F.one_hot(torch.tensor([[2]]), 3).to(f64)
    torch.testing.assert_close(read_weights(at_zero, links, content, modes), content)


def test_links_keep_a_zero_diagonal_and_sums_below_one():
    links, precedence = torch.zeros(2, 1, 5, 5, dtype=f64), torch.zeros(2, 1, 5, dtype=f64)
    for seed in range(20):
        w = 0.9 * simplex(2, 1, 5, seed=seed)
        links = link(links, precedence, w)
        precedence = (1 - w.sum(-1, keepdim=True)) * precedence + w
    assert not links.diagonal(dim1=-2, dim2=-1).any()
    assert links.min() >= 0
    assert links.sum(-1).max() <= 1
    assert links.sum(-2).max() <= 1


def test_a_sharp_key_finds_its_row():
    memory = torch.randn(3, 6, 4, dtype=f64)
    weights = content_weights(memory, 7 * memory[:, 2:3], torch.full((3, 1), 200.0, dtype=f64))
    assert (weights[:, 0, 2] > 0.9).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, dtype=f64))


def test_two_write_heads_do_not_take_the_same_slot():
    used = torch.zeros(1, 4, dtype=f64)
    one = torch.ones(1, 2, dtype=f64)
    w = write_weights(used, simplex(1, 2, 4), one, one)
    assert (w[0, 0] * w[0, 1]).max() < 1e-4
    torch.testing.assert_close(w.sum(-1), one, atol=1e-4, rtol=0)


def test_what_is_written_can_be_read():
    """A step with the write gate shut leaves the memory alone; with it open, slots take the written vector."""
    layer = DNC(2, 6, slots=5, width=3, read_heads=1, dtype=f64)
    p = layer.parts()
    gate = sum(torch.Size(s).numel() for s in list(layer.cell.interface.values())[:4])  # pyright: ignore[reportAttributeAccessIssue]
    x = torch.randn(1, 2, 2, dtype=f64)
    _, state = layer(torch.randn(4, 2, 2, dtype=f64))
    with torch.no_grad():
        p["bias_interface"][gate] = -1e3
    torch.testing.assert_close(layer(x, state)[1][3], state[3])
    with torch.no_grad():
        p["bias_interface"][gate] = 1e3
    assert not torch.allclose(layer(x, state)[1][3], state[3])


def test_dnc_state_holds_weights():
    layer = DNC(2, 6, slots=5, width=3, read_heads=2, write_heads=2, dtype=f64)
    _, (_, _, reads, memory, used, _, _, reading, writing) = layer(torch.randn(9, 4, 2, dtype=f64))
    for weights in (reading, writing):
        assert weights.min() >= 0
        assert weights.sum(-1).max() <= 1 + 1e-9
    assert used.min() >= 0
    assert used.max() <= 1
    torch.testing.assert_close(reads, (reading @ memory).flatten(-2))


def test_dnc_output_is_clipped():
    layer, x = DNC(2, 4, clip=0.01), torch.randn(5, 3, 2)
    assert layer(x)[0].abs().max() <= 0.01
    assert DNC(2, 4, outputs=7)(x)[0].shape == (5, 3, 7)


def test_what_a_dnc_cannot_be_gets_one_clear_sentence():
    with pytest.raises(ValueError, match="outputs must be a positive whole number, got 0"):
        DNC(2, 4, outputs=0)
    with pytest.raises(ValueError, match=r"clip must be a number above 0, got -1\.0"):
        DNC(2, 4, clip=-1.0)


def test_attention_is_that_of_torch():
    qkv = torch.randn(2, 5, 3 * 6, dtype=f64)
    q, k, v = qkv.unflatten(-1, (3, 6)).transpose(1, 2).chunk(3, -1)
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(attend(qkv, 3), expected)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("style", ["unit", "memory"])
def test_rmc_step_is_its_equations(name, style):
    if style == "memory" and not GATES[name].elementwise:
        return
    torch.manual_seed(0)
    size, slots, heads = 4, 3, 2
    masters, timed = GATES[name].master is not None, GATES[name].takes_timescale
    options = {"gate": name, "downsize": 2 if masters else None, "timescale": 9 if timed else None, "dtype": f64}
    layer = RMC(2, size, slots=slots, heads=heads, blocks=2, gate_style=style, **options)
    with torch.no_grad():
        for key, p in layer.named_parameters():
            if key.startswith(("gain", "shift", "bias")):
                p.add_(0.1 * torch.randn_like(p))
    p, x, memory = layer.parts(), torch.randn(5, 2, dtype=f64), torch.randn(5, slots, size, dtype=f64)
    e = F.linear(x, p["weight_ih"], p["bias_ih"])
    a = torch.cat((memory, e[:, None]), 1)
    for block in range(2):
        qkv = F.linear(a, p["weight_qkv"][block], p["bias_qkv"][block])
        qkv = F.layer_norm(qkv, (3 * size,), p["gain_qkv"][block], p["shift_qkv"][block])
        a = F.layer_norm(a + attend(qkv, heads), (size,), p["gain_attended"][block], p["shift_attended"][block])
        hidden = F.linear(a, p["weight_mlp"][0], p["bias_mlp"][0]).relu()
        out = F.linear(hidden, p["weight_mlp"][1], p["bias_mlp"][1])
        a = F.layer_norm(a + out, (size,), p["gain_mlp"][block], p["shift_mlp"][block])
    maps = F.linear(e, p["weight_gate_x"], p["bias_gate_x"])[:, None]
    maps = maps + F.linear(memory.tanh(), p["weight_gate_m"], p["bias_gate_m"])
    # the gates themselves are those of the LSTM, tested there: give each slot to an LSTM step as a row of the batch
    width = size if style == "unit" else 1
    seen = layer.inspect(x[None], memory[None])
    f, i = seen.activations[0]["forget"][0], seen.activations[0]["input"][0]
    assert f.shape == (5, slots, width)
    rows = LSTM(1, width, recurrent_bias=False, **options)
    columns = maps.flatten(0, 1)
    full = torch.cat((columns[:, : 2 * width], torch.zeros(15, 2 * width, dtype=f64), columns[:, 2 * width :]), -1)
    shift = rows.cell.gate_shift({"gate_bias": p.get("gate_bias")})  # pyright: ignore[reportAttributeAccessIssue]
    gates = rows.cell.open_gates(rows.cell.named(full if shift is None else full + shift))  # pyright: ignore[reportAttributeAccessIssue]
    torch.testing.assert_close(f.flatten(0, 1), gates[0])
    torch.testing.assert_close(i.flatten(0, 1), gates[1])
    torch.testing.assert_close(seen.output[0], (f * memory + i * a[:, :-1].tanh()).flatten(1))


def test_rmc_memory_starts_as_the_identity():
    (memory,) = RMC(2, 4, slots=6, heads=2).cell.initial_state(3, torch.zeros(()), {})
    assert torch.equal(memory[1], torch.eye(6, 4))
    with pytest.raises(ValueError, match="heads=3 must divide the width of a slot, hidden_size=4"):
        RMC(2, 4, heads=3)
