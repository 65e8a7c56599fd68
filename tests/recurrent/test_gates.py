"""Facts about the gates of Gu et al. (2020)."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from numerate.recurrent import (
    DNC,
    GATES,
    GRU,
    JANET,
    LSTM,
    OMLSTM,
    ONLSTM,
    RMC,
    RNN,
    UGRNN,
    ULSTM,
    URLSTM,
    Gate,
    Inspection,
    Recurrent,
    cumax,
    refine,
    timescale,
)

grid = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)


def for_gate(name: str, downsize: int) -> dict[str, Any]:
    """The gate, its ``downsize`` if it has masters, and a timescale if it starts from one."""
    masters = {"downsize": downsize} if name in ("OM", "UM") else {}
    return {"gate": name} | masters | ({"timescale": 30} if name in ("-", "C", "R") else {})


def effective(f: Tensor, r: Tensor) -> Tensor:
    return r * (1 - (1 - f) ** 2) + (1 - r) * f**2


def test_refine_gate_is_the_printed_mixture():
    f, r = torch.meshgrid(grid, grid, indexing="ij")
    torch.testing.assert_close(refine(f, r), effective(f, r))
    torch.testing.assert_close(refine(f, r), f + f * (1 - f) * (2 * r - 1))


def test_refine_gate_gradient_has_the_printed_closed_form():
    a, b = torch.meshgrid(grid.logit(), grid.logit(), indexing="ij")
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    f, r = a.sigmoid(), b.sigmoid()
    got = torch.autograd.grad(refine(f, r).sum(), (a, b))
    expected = 2 * f * (1 - f) * (r + (1 - 2 * r) * f), 2 * f * (1 - f) * r * (1 - r)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("g", "low", "high"), [(0.5, 0.278, 0.293), (0.9, 0.0922, 0.1367), (0.99, 0.00992, 0.018), (0.999, 0.001, 0.00194)]
)
def test_refine_gate_gains_at_most_twice_the_gradient(g, low, high):
    """For a fixed effective gate g: its gradient over all f that can reach it, against the sigmoid's g (1 - g)."""
    f = torch.linspace(1 - math.sqrt(1 - g), math.sqrt(g), 20_001, dtype=torch.float64)[1:-1]
    r = (g - f**2) / (2 * f * (1 - f))
    size = torch.hypot(2 * f * (1 - f) * (r + (1 - 2 * r) * f), 2 * f * (1 - f) * r * (1 - r))
    torch.testing.assert_close(size.min().item(), low, rtol=6e-3, atol=0)
    torch.testing.assert_close(size.max().item(), high, rtol=6e-3, atol=0)
    assert g * (1 - g) < size.min()
    assert size.max() < 2 * g * (1 - g)
    assert f[size.argmax()] < f.mean()  # the gain is at the smaller f, with r near 1


def test_refinement_moves_a_timescale_between_half_and_its_square():
    f, r = torch.meshgrid(grid, torch.tensor([0.0, 1.0], dtype=torch.float64), indexing="ij")
    least, most = timescale(refine(f, r)).unbind(-1)
    d = timescale(grid)
    assert (least > d / 2).all()
    torch.testing.assert_close(most, d**2)


def test_tied_and_rescaled_master_gates_are_the_refine_gate():
    """Proposition 4, with the end formula f (1 - (1 - m)²) + (1 - f) m²."""
    f, m = torch.meshgrid(grid, grid, indexing="ij")
    gate = GATES["UM"]
    one = Gate("UM", master="sigmoid", bias="uniform", downsize=1)
    assert gate.master == one.master
    forget, _ = one(f.logit(), (1 - f).logit(), m.logit(), (1 - m).logit())
    overlap = m * (1 - m)
    torch.testing.assert_close(forget, f * overlap + m - overlap)
    rescaled = f * 2 * overlap + (m - overlap)  # the overlap counted twice
    torch.testing.assert_close(rescaled, refine(m, f))


def test_uniform_gates_have_a_mean_of_a_half_and_timescales_of_density_one_over_square():
    b = ULSTM(1, 100_000, weight_init="uniform", device="meta").parts()["gate_bias"]
    b = torch.empty(b.shape, dtype=torch.float64)
    GATES["U"].reset_bias_(b, None, b.numel(), torch.Generator().manual_seed(0))
    f = b.sigmoid()
    assert abs(f.mean() - 0.5) < 0.005
    d = timescale(f)
    for x in (2, 5, 20, 100):
        assert abs((d > x).double().mean() - 1 / x) < 0.006


def test_cumax_at_zero_logits_is_a_ramp():
    torch.testing.assert_close(cumax(torch.zeros(8)), torch.arange(1, 9) / 8)


def test_cumax_rises_to_one():
    f = cumax(torch.randn(50, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert (f.diff(dim=-1) > 0).all()
    torch.testing.assert_close(f[:, -1], torch.ones(50, dtype=torch.float64))


def test_ordered_master_gates_start_with_a_mean_sum_of_five_sixths():
    """Proposition 3 by its proof: mean of F + I is 5/6; F alone averages 5/12, not the printed 5/6."""
    ordinary = torch.rand(2, 400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).logit()
    forget, inlet = Gate("OM", master="cumax", downsize=1)(*ordinary, *torch.zeros_like(ordinary))
    assert abs((forget + inlet).mean() - 5 / 6) < 0.002
    assert abs(forget.mean() - 5 / 12) < 0.002


REFINED, MASTERED = {"f", "r"}, {"master_forget", "master_input"}
SEEN = {"R": REFINED, "OR": REFINED, "UR": REFINED, "OM": MASTERED, "UM": MASTERED}  # beside the effective pair


@pytest.mark.parametrize("name", GATES)
def test_each_gate_is_its_row_of_the_table(name):
    """Each activation written out again from the maps of one LSTM step."""
    torch.manual_seed(0)
    n, d, c = 3, 8, 2
    layer = LSTM(n, d, **for_gate(name, c), dtype=torch.float64)
    x, h, cell = (torch.randn(2, k, dtype=torch.float64) for k in (n, d, d))
    p = layer.parts()
    maps = x @ p["weight_ih"].T + h @ p["weight_hh"].T + p["bias_ih"] + p.get("bias_hh", 0)
    partner, forget, u, o, *rest = maps.split([d, d, d, d, *([d // c, d // c] if "M" in name else [])], -1)
    b = p.get("gate_bias", 0)
    if name == "-":
        f, i = forget.sigmoid(), partner.sigmoid()
    elif name in ("C", "U"):
        f, i = (forget + b).sigmoid(), (partner - b).sigmoid()
    elif name == "O":
        f, i = cumax(forget), 1 - cumax(partner)
    elif name in ("R", "UR"):
        f = effective((forget + b).sigmoid(), (partner - b).sigmoid())
        i = 1 - f
    elif name == "OR":
        f = effective(cumax(forget), partner.sigmoid())
        i = 1 - f
    else:
        low, high = rest
        ft, it = (cumax(low), 1 - cumax(high)) if name == "OM" else ((low + b).sigmoid(), (high - b).sigmoid())
        ft, it = ft.repeat_interleave(c, -1), it.repeat_interleave(c, -1)
        w = ft * it
        f, i = forget.sigmoid() * w + ft - w, partner.sigmoid() * w + it - w
    cell_new = f * cell + i * u.tanh()
    output, (h_new, c_new) = layer(x[None], (h[None], cell[None]))
    torch.testing.assert_close(c_new[0], cell_new)
    torch.testing.assert_close(h_new[0], o.sigmoid() * cell_new.tanh())
    assert torch.equal(output[0], h_new[0])
    seen = layer.inspect(x[None], (h[None], cell[None])).activations[0]
    torch.testing.assert_close((seen["forget"][0], seen["input"][0], seen["output"][0]), (f, i, o.sigmoid()))
    assert set(seen) - {"forget", "input", "output"} == SEEN.get(name, set())


def with_biases(layer: Recurrent, **values: list[float]) -> Inspection:
    """What one step shows when all maps are these biases alone."""
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        blocks = layer.cell.named(layer.parts()["bias_ih"])  # pyright: ignore[reportAttributeAccessIssue]
        for name, value in values.items():
            blocks[name].copy_(torch.tensor(value))
    return layer.inspect(torch.zeros(3, 2, 1, dtype=torch.float64))


@pytest.mark.parametrize("base", [LSTM, GRU])
def test_inspection_shows_what_a_refined_gate_is_made_of(base):
    logit = math.log(0.8 / 0.2)  # f = 0.8, r = 0.2: g = 0.8 + 0.8 * 0.2 * (2 * 0.2 - 1) = 0.704
    options = {"forget": [logit] * 2, "partner": [-logit] * 2}
    seen = with_biases(base(1, 2, gate="R", dtype=torch.float64), **options).activations[0]
    for name, value in {"f": 0.8, "r": 0.2, "forget": 0.704, "input": 0.296}.items():
        torch.testing.assert_close(seen[name], torch.full((3, 2, 2), value, dtype=torch.float64))
    ordered = with_biases(base(1, 2, gate="OR", dtype=torch.float64), forget=[0, math.log(3)], partner=[-logit] * 2)
    assert ordered.activations[0]["f"][0, 0].tolist() == pytest.approx([0.25, 1.0])  # cumulative sum of 1/4, 3/4
    shifted = base(1, 2, gate="UR", dtype=torch.float64)
    with_biases(shifted)
    with torch.no_grad():
        shifted.parts()["gate_bias"].fill_(logit)
    seen = shifted.inspect(torch.zeros(1, 1, 1, dtype=torch.float64)).activations[0]
    assert [seen[name].mean().item() for name in ("f", "r")] == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize("base", [LSTM, GRU])
def test_distances_are_means_over_the_chunks_of_the_master_gates(base):
    options = {"downsize": 2, "dtype": torch.float64}
    seen = with_biases(base(1, 8, gate="OM", **options), master_forget=[0] * 4, master_input=[0, 0, 0, math.log(3)])
    gates = seen.activations[0]
    assert gates["master_forget"].shape == (3, 2, 4)
    assert gates["master_forget"][0, 0].tolist() == pytest.approx([1 / 4, 1 / 2, 3 / 4, 1])
    assert gates["master_input"][0, 0].tolist() == pytest.approx([5 / 6, 2 / 3, 1 / 2, 0])
    forget, inlet = seen.distances()
    torch.testing.assert_close(forget, torch.full((3, 2), 3 / 8, dtype=torch.float64))  # mean of 3/4, 1/2, 1/4, 0
    torch.testing.assert_close(inlet, torch.full((3, 2), 1 / 2, dtype=torch.float64))
    # the effective pair is made of them, each for its two neighbours: F = f w + (m - w), f = 1/2, w = m n
    effective = [m - m * n / 2 for m, n in zip([1 / 4, 1 / 2, 3 / 4, 1], [5 / 6, 2 / 3, 1 / 2, 0])]
    assert gates["forget"][0, 0].tolist() == pytest.approx([v for v in effective for _ in range(2)])
    flat = with_biases(base(1, 8, gate="UM", **options), master_forget=[math.log(3)] * 4, master_input=[0] * 4)
    assert [d.mean().item() for d in flat.distances()] == pytest.approx([1 / 4, 1 / 2])
    with pytest.raises(ValueError, match=r"no master gates; it shows .*'forget'"):
        base(1, 4).inspect(torch.zeros(2, 1, 1)).distances()


def test_slots_of_a_relational_memory_show_their_gates_too():
    layer = RMC(2, 4, slots=3, heads=2, gate="OM", downsize=2)
    seen = layer.inspect(torch.randn(5, 6, 2))
    assert seen.activations[0]["master_forget"].shape == (5, 6, 3, 2)
    assert seen.distances()[0].shape == (5, 6, 3)
    assert {"f", "r"} <= RMC(2, 4, heads=2, gate="UR").inspect(torch.randn(1, 1, 2)).activations[0].keys()


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("after", [True, False])
def test_each_gate_serves_the_update_of_a_gru(name, after):
    torch.manual_seed(0)
    n, d = 3, 8
    layer = GRU(n, d, **for_gate(name, 2), reset_after=after, recurrent_bias=False, dtype=torch.float64)
    x, h = torch.randn(2, n, dtype=torch.float64), torch.randn(2, d, dtype=torch.float64)
    seen = layer.inspect(x[None], h[None])
    gates = {key: value[0] for key, value in seen.activations[0].items()}
    p = layer.parts()
    w, u, b = (p[key][2 * d : 3 * d] for key in ("weight_ih", "weight_hh", "bias_ih"))
    recalled = gates["reset"] * (h @ u.T) if after else (gates["reset"] * h) @ u.T
    candidate = (x @ w.T + b + recalled).tanh()
    torch.testing.assert_close(seen.output[0], gates["forget"] * h + gates["input"] * candidate)
    tied = name in ("-", "C", "U", "R", "UR", "OR")
    assert torch.allclose(gates["forget"] + gates["input"], torch.ones_like(h)) == tied


MAP, MASTERS = 16 * (16 + 5 + 1), 2 * 4 * (16 + 5 + 1)  # 5 inputs, 16 units, masters of 4
MAPS = {"-": 0, "C": 16, "U": 16, "UR": 16, "R": 0, "O": 0, "OR": 0, "OM": MASTERS, "UM": MASTERS + 4}


@pytest.mark.parametrize("name", MAPS)
def test_parameter_counts(name):
    options = for_gate(name, 4) | {"recurrent_bias": False}
    for layer, maps in ((LSTM, 4), (GRU, 3 if name in ("-", "C", "U") else 4)):
        assert sum(p.numel() for p in layer(5, 16, **options).parameters()) == maps * MAP + MAPS[name]


def test_on_lstm_is_om_lstm_with_another_start():
    one, two = ONLSTM(3, 32), OMLSTM(3, 32, recurrent_bias=True)
    two.load_state_dict(one.state_dict())
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(one(x), two(x))


@pytest.mark.parametrize("name", ["C", "U", "UR", "UM"])
def test_the_bias_vector_is_learnt_from_both_gates(name):
    layer = LSTM(2, 4, **for_gate(name, 2))
    layer(torch.randn(3, 2, 2))[0].sum().backward()
    p = layer.parts()
    blocks = (4, 4, 4, 4, 2, 2) if name == "UM" else (4, 4, 4, 4)
    grads = p["bias_ih"].grad.split(blocks)
    minus, plus = (grads[5], grads[4]) if name == "UM" else (grads[0], grads[1])
    torch.testing.assert_close(p["gate_bias"].grad, plus - minus)


def test_forget_bias_starts_at_one_for_standard_and_refine_gates_only():
    for name, start in {"-": 1.0, "R": 1.0, "O": 0.0, "U": 0.0, "UR": 0.0, "OM": 0.0}.items():
        bias = LSTM(2, 4, gate=name, downsize=2 if name == "OM" else None).parts()["bias_ih"]
        assert torch.equal(bias[4:8], torch.full((4,), start))
        assert not bias[:4].any()
        assert not bias[8:].any()
    assert LSTM(2, 4, forget_bias=6.0).parts()["bias_ih"][4:8].eq(6).all()
    assert (
        RMC(2, 4, heads=1, forget_bias=3.0, input_bias=-1.0).parts()["bias_gate_x"].tolist() == [-1.0] * 4 + [3.0] * 4
    )


def test_a_gate_of_ones_own():
    slow = Gate("slow", forget_bias=5.0, refined=True, bias="uniform")
    layer = LSTM(2, 4, gate=slow)
    assert layer.parts()["bias_ih"][4:8].eq(5).all()
    assert layer(torch.randn(3, 1, 2))[0].shape == (3, 1, 4)


def test_a_forget_gate_near_one_keeps_the_state_for_its_timescale():
    layer = URLSTM(1, 4, dtype=torch.float64)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        layer.parts()["gate_bias"].fill_(math.log(0.9 / 0.1))
    seen = layer.inspect(torch.zeros(20, 1, 1, dtype=torch.float64), tuple(torch.ones(2, 1, 1, 4, dtype=torch.float64)))
    g = 0.9 * (0.9 + 2 * 0.1 * 0.1)
    torch.testing.assert_close(seen.state[1], torch.full((1, 1, 4), g**20, dtype=torch.float64))
    torch.testing.assert_close(seen.timescales(), torch.full((20, 1, 4), 1 / (1 - g), dtype=torch.float64))


def test_gates_that_cannot_be_get_one_clear_sentence():
    for layer in (LSTM, GRU, RMC, DNC):
        for wrong in ("X", None, 3):
            with pytest.raises(ValueError, match=f"gate must be one of '-', 'C'.* or a Gate, got {wrong!r}"):
                layer(2, 4, gate=wrong)
    with pytest.raises(ValueError, match="gate 'C' needs timescale"):
        LSTM(2, 4, gate="C")
    with pytest.raises(ValueError, match="downsize=3 units, which must divide the hidden size 4"):
        LSTM(2, 4, gate="OM", downsize=3)
    with pytest.raises(ValueError, match="gate 'UR' cannot be tied"):
        LSTM(2, 4, gate="UR", tied=True)
    for downsize in (-2, 0):
        with pytest.raises(ValueError, match=f"downsize must be a positive whole number, got {downsize}"):
            LSTM(2, 4, gate="OM", downsize=downsize)
    with pytest.raises(ValueError, match="needs gate_style='unit'"):
        RMC(2, 4, gate="O", gate_style="memory")


@pytest.mark.parametrize("name", ["O", "U", "OM", "OR", "UM", "UR"])
def test_a_gate_without_a_chrono_start_refuses_a_timescale(name):
    for layer in (LSTM, GRU, RMC, DNC):
        with pytest.raises(ValueError, match=f"gate '{name}' does not start from a timescale: leave out timescale=30"):
            layer(2, 4, **for_gate(name, 2), timescale=30)


@pytest.mark.parametrize(
    ("layer", "options", "sentence"),
    [
        (LSTM, {"bias": False, "forget_bias": 2.0}, "forget_bias=2.0 says .* it needs bias=True"),
        (GRU, {"bias": False, "timescale": 30}, "timescale=30 says .* it needs bias=True"),
        (JANET, {"bias": False, "timescale": 30}, "timescale=30 says .* it needs bias=True"),
        (UGRNN, {"bias": False, "forget_bias": 1.0}, "forget_bias=1.0 says .* it needs bias=True"),
        (LSTM, {"bias": False, "recurrent_bias": True}, "recurrent_bias=True is a second bias .* needs bias=True"),
        (LSTM, {"forget_bias": 2.0, "timescale": 30}, "forget_bias=2.0 and timescale=30 both say where"),
        (JANET, {"forget_bias": 2.0, "timescale": 30}, "forget_bias=2.0 and timescale=30 both say where"),
        (RMC, {"forget_bias": 2.0, "timescale": 30}, "forget_bias=2.0 and timescale=30 both say where"),
        (RMC, {"input_bias": 2.0, "timescale": 30}, "input_bias=2.0 has no place here: timescale says where"),
        (RMC, {"input_bias": 2.0, "gate": Gate("T", tied=True)}, "input_bias=2.0 has no place here: the gate is tied"),
        (URLSTM, {"downsize": 2}, "gate 'UR' has no master gates to share: leave out downsize=2"),
        (LSTM, {"timescale": "foo"}, "timescale must be a number of at least 2 or 'unknown', got 'foo'"),
        (LSTM, {"gate": "O", "forget_bias": 5.0}, "the softmax of gate 'O': leave out forget_bias=5.0"),
        (GRU, {"gate": "OR", "forget_bias": 0.0}, "the softmax of gate 'OR': leave out forget_bias=0.0"),
        (RMC, {"gate": "O", "forget_bias": 5.0}, "the softmax of gate 'O': leave out forget_bias=5.0"),
        (RMC, {"gate": "O", "input_bias": 5.0}, "input_bias=5.0 has no place here: a constant does not change"),
        (LSTM, {"gate": Gate("o", squash="cumax", forget_bias=2.0)}, "gate 'o': leave out forget_bias=2.0"),
        (RNN, {"eps": 0.1}, "eps=0.1 is part of layer norm: it needs layer_norm=True"),
    ],
    ids=str,
)
def test_an_option_that_could_do_nothing_gets_one_clear_sentence(layer, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        layer(2, 4, **options)


def test_other_biases_of_ordered_gates_do_something():
    """Of the second map where it is a refine gate, and of the ordinary maps beside ordered masters."""
    x = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0))
    cases: list[tuple[Callable[..., Recurrent], dict[str, Any], dict[str, Any]]] = [
        (RMC, {"gate": "OR"}, {"input_bias": 1.0}),
        (LSTM, {"gate": "OM", "downsize": 2}, {"forget_bias": 1.0}),
    ]
    for layer, options, given in cases:
        models = [layer(2, 4, **options), layer(2, 4, **options, **given)]
        for model in models:
            model.reset_parameters(torch.Generator().manual_seed(0))
        assert not torch.allclose(*(model(x)[0] for model in models))


def test_the_vector_of_a_chrono_gate_needs_no_other_bias():
    parts = LSTM(2, 4, gate="C", timescale=30, bias=False).parts()
    assert set(parts) == {"weight_ih", "weight_hh", "gate_bias"}
    assert parts["gate_bias"].unique().numel() > 1


@pytest.mark.parametrize("bias", [None, "uniform"])
def test_a_tied_gate_of_a_relational_memory_has_one_map(bias):
    layer = RMC(2, 4, heads=2, gate=Gate("T", tied=True, bias=bias))
    assert layer.parts()["weight_gate_m"].shape == (4, 4)
    seen = layer.inspect(torch.randn(3, 2, 2)).activations[0]
    torch.testing.assert_close(seen["input"], 1 - seen["forget"])
