"""Native loops against plain steps: outputs and all gradients, for every cell that has one and every way to call it."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils.checkpoint import checkpoint

import numerate.recurrent as recurrent
from numerate.loops.timeloops import timeloop
from numerate.loops.toolchain import native
from numerate.recurrent import GRU, LSTM, NRU, URGRU, URLSTM, CellLayer, Recurrent, StatisticalRU, use_loop
from numerate.recurrent.dispatch import choose
from numerate.recurrent.dispatch.fused import run_fused
from numerate.recurrent.dispatch.mode import SHORTEST, Mode
from numerate.recurrent.dispatch.plain import plain_steps

needs_compiler = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
pytestmark = needs_compiler

T, B, I, H = 6, 5, 3, 8  # noqa: E741  the papers' letters

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "RNN": [{}, {"activation": "relu", "bias": False}, {"layer_norm": True}],
    "LSTM": [{}, {"bias": False}, {"tied": True}],
    "GRU": [{}, {"tied": False}],
    "URGRU": [{}, {"recurrent_bias": True}],
    "NRU": [
        {"memory_size": 64, "heads": 4},
        {"memory_size": 16, "heads": 4, "head_inputs": "xhm", "head_reduce": "sum"},
        {"memory_size": 9, "heads": 1},
        {"memory_size": 64, "heads": 4, "relu_heads": True},
        {"memory_size": 9, "heads": 1, "relu_heads": True, "head_inputs": "xhm", "head_reduce": "sum"},
    ],
    "StatisticalRU": [
        {"statistics_size": 7, "summary_size": 5},
        {"statistics_size": 19, "summary_size": 9, "activation": "tanh", "learn_scales": True, "append_input": True},
        {"statistics_size": 16, "activation": "sigmoid", "bias": False, "scales": (0.5,), "output_sees_input": True},
    ],
    **{name: [{"timescale": 20}] for name in ("CLSTM", "CGRU")},
    **{gate + base: [{"downsize": 2}] for gate in ("OM", "UM") for base in ("LSTM", "GRU")},
    **{name: [{}] for name in ("OLSTM", "ORLSTM", "ULSTM", "RLSTM", "URLSTM", "OGRU", "ORGRU", "UGRU", "RGRU")},
    **{name: [{}] for name in ("JANET", "UGRNN", "GORU")},
    "EURNN": [{}, {"dense": True}, {"dense": False, "eps": 0.1}, {"hidden": 2}, {"hidden": 64}],  # 64: several vectors
}
CASES = [pytest.param(name, options, id=f"{name}{options or ''}") for name in OPTIONS for options in OPTIONS[name]]


def make(name: str, dtype: torch.dtype = torch.float64, hidden: int = H, **options: Any) -> Recurrent:
    torch.manual_seed(5)
    layer = getattr(recurrent, name)(I, hidden, dtype=dtype, **options)
    for parameter in layer.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)  # biases too, that start at 0
    return layer


def states(layer: Recurrent, batch: int = B) -> tuple[Tensor, ...]:
    dtype = next(layer.parameters()).dtype
    shapes = layer.cell.state_shapes
    return tuple(torch.randn(len(layer.part_names), batch, *shape, dtype=dtype) / 2 for shape in shapes)


def run(layer: nn.Module, x: Any, hx: tuple[Tensor, ...] | None, mode: Mode, seed: int = 0) -> list[Tensor]:
    """Outputs, final state and the gradients of input, initial state and parameters."""
    data = x.data if isinstance(x, PackedSequence) else x
    data = data.clone().requires_grad_()
    x = PackedSequence(data, *x[1:]) if isinstance(x, PackedSequence) else data
    hx = None if hx is None else tuple(entry.clone().requires_grad_() for entry in hx)
    torch.manual_seed(seed)  # for dropout
    with use_loop(mode):
        outputs, final = layer(x, hx)
    results = [outputs.data if isinstance(outputs, PackedSequence) else outputs, *final]
    generator = torch.Generator().manual_seed(9)
    above = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results]
    inputs = [data, *(hx or ()), *layer.parameters()]
    found = torch.autograd.grad(results, inputs, above, allow_unused=True)
    return [*(r.detach() for r in results), *(torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs))]


def assert_equal_runs(layer: nn.Module, x: Any, hx: tuple[Tensor, ...] | None = None) -> None:
    for expected, found in zip(run(layer, x, hx, "plain"), run(layer, x, hx, "native")):
        torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-10)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a native loop has run."""
    calls: list[int] = []
    original = timeloop.run

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(timeloop, "run", counted)
    return calls


@pytest.mark.parametrize(("name", "options"), CASES)
def test_native_loop_equals_plain_steps(name: str, options: dict[str, Any], count: list[int]) -> None:
    layer = make(name, **options)
    assert_equal_runs(layer, torch.randn(T, B, I, dtype=torch.float64), states(layer))
    assert count


@pytest.mark.parametrize(
    ("name", "options"), [("GRU", {}), ("RNN", {"layer_norm": True}), ("URLSTM", {}), ("OGRU", {})]
)
def test_one_unit_has_a_native_loop_too(name: str, options: dict[str, Any], count: list[int]) -> None:
    layer = make(name, hidden=1, **options)
    assert_equal_runs(layer, torch.randn(T, B, I, dtype=torch.float64), states(layer))
    assert count


@pytest.mark.parametrize("name", ["URLSTM", "GRU", "OMLSTM", "NRU"])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=str)
def test_other_precisions_stay_close(name: str, dtype: torch.dtype, bound: float, count: list[int]) -> None:
    layer = make(name, dtype, **OPTIONS[name][0])
    exact = make(name, torch.float64, **OPTIONS[name][0])
    exact.load_state_dict(layer.state_dict())
    x, hx = torch.randn(T, B, I, dtype=dtype), states(layer)
    expected = run(exact, x.double(), tuple(entry.double() for entry in hx), "plain")
    for wanted, found in zip(expected, run(layer, x, hx, "native")):
        assert found.dtype == dtype
        assert float((found.double() - wanted).norm()) <= bound * float(wanted.norm())
    assert count


# ---------------------------------------------------------------- ways to call

LAYERS: list[tuple[type[CellLayer], dict[str, Any]]] = [
    (URLSTM, {}),
    (URGRU, {}),
    (NRU, {"memory_size": 16, "heads": 4}),
    (NRU, {"memory_size": 16, "heads": 4, "relu_heads": True}),
    (StatisticalRU, {"statistics_size": 7, "summary_size": 5, "learn_scales": True}),
]
WAYS: dict[str, dict[str, Any]] = {
    "batch first": {"batch_first": True},
    "two directions": {"bidirectional": True},
    "layers": {"num_layers": 2, "dropout": 0.5},
    "weight dropout": {"weight_dropout": 0.5},
}
each_layer = pytest.mark.parametrize(("kind", "options"), LAYERS, ids=lambda value: getattr(value, "__name__", ""))


@each_layer
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_build_it(kind: type[CellLayer], options: dict[str, Any], way: str, count: list[int]) -> None:
    if kind is StatisticalRU and way == "weight dropout":
        pytest.skip("the unit has no weight_hh")
    layer = make(kind.__name__, **options, **WAYS[way])
    x = torch.randn(B, T, I, dtype=torch.float64)
    assert_equal_runs(layer, x if layer.batch_first else x.transpose(0, 1))
    assert len(count) == len(layer.part_names)


@each_layer
@pytest.mark.parametrize("ordered", [True, False], ids=["sorted", "unsorted"])
def test_packed_sequences(kind: type[CellLayer], options: dict[str, Any], ordered: bool, count: list[int]) -> None:
    layer = make(kind.__name__, bidirectional=True, **options)
    lengths = torch.tensor([6, 6, 4, 2, 1] if ordered else [2, 6, 1, 4, 6])
    x = pack_padded_sequence(torch.randn(T, B, I, dtype=torch.float64), lengths, enforce_sorted=ordered)
    assert_equal_runs(layer, x, states(layer))
    assert count


@each_layer
def test_one_sequence_alone(kind: type[CellLayer], options: dict[str, Any]) -> None:
    assert_equal_runs(make(kind.__name__, **options), torch.randn(T, I, dtype=torch.float64))


@each_layer
def test_one_result_alone_can_be_used(kind: type[CellLayer], options: dict[str, Any]) -> None:
    layer, x = make(kind.__name__, **options), torch.randn(T, B, I, dtype=torch.float64)
    for which in (0, 1):
        found = []
        for mode in ("plain", "native"):
            with use_loop(mode):
                outputs, final = layer(x)
            found.append(torch.autograd.grad((outputs, final[-1])[which].sum(), layer.get_parameter("weight_ih_l0"))[0])
        torch.testing.assert_close(*found, atol=1e-11, rtol=1e-10)


def test_only_some_parameters_are_trained() -> None:
    layer, x = make("URLSTM"), torch.randn(T, B, I, dtype=torch.float64)
    layer.weight_hh_l0.requires_grad_(False)  # type: ignore[union-attr]
    found = []
    for mode in ("plain", "native"):
        with use_loop(mode):
            found.append(torch.autograd.grad(layer(x)[0].sum(), layer.weight_ih_l0)[0])  # type: ignore[arg-type]
    torch.testing.assert_close(*found, atol=1e-11, rtol=1e-10)


@each_layer
def test_same_bits_again_and_rows_by_themselves(kind: type[CellLayer], options: dict[str, Any]) -> None:
    layer, x = make(kind.__name__, torch.float32, **options), torch.randn(T, B, I)
    first, second = (run(layer, x, None, "native") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    with use_loop("native"), torch.no_grad():
        torch.testing.assert_close(layer(x[:, 1:4])[0], first[0][:, 1:4])


def test_gradients_can_be_taken_twice_from_one_graph() -> None:
    layer, x = make("URLSTM"), torch.randn(T, B, I, dtype=torch.float64)
    with use_loop("native"):
        loss = layer(x)[0].square().sum()
    first, second = (torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


@each_layer
def test_second_derivatives(kind: type[CellLayer], options: dict[str, Any], count: list[int]) -> None:
    layer = make(kind.__name__, **options)
    x = torch.randn(3, 2, I, dtype=torch.float64)
    found = []
    for mode in ("plain", "native"):
        with use_loop(mode):
            loss = layer(x)[0].square().sum()
        gradient = torch.autograd.grad(loss, list(layer.parameters()), create_graph=True)
        pulled = torch.autograd.grad(sum(g.square().sum() for g in gradient), list(layer.parameters()))  # type: ignore
        found.append([*gradient, *pulled])
    for expected, got in zip(*found):
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-9)
    assert count


@each_layer
def test_batches_of_gradients(kind: type[CellLayer], options: dict[str, Any], count: list[int]) -> None:
    layer, x = make(kind.__name__, **options), torch.randn(3, 2, I, dtype=torch.float64)
    above, found = torch.randn(4, 3, 2, H, dtype=torch.float64), []
    for mode in ("plain", "native"):
        with use_loop(mode):
            outputs = layer(x)[0]
            jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0].sum(-1), x, vectorize=True)

        def pulled(g: Tensor, outputs: Tensor = outputs) -> Any:
            return torch.autograd.grad(outputs, list(layer.parameters()), g, retain_graph=True)

        batched = torch.autograd.grad(
            outputs, list(layer.parameters()), above, is_grads_batched=True, retain_graph=True
        )
        found.append([jacobian, *batched, *vmap(pulled)(above)])
    for expected, got in zip(*found):
        torch.testing.assert_close(got, expected, atol=1e-11, rtol=1e-10)
    assert count


def test_first_use_from_several_threads() -> None:
    layers = [kind(I, 37) for kind in (URLSTM, URGRU, GRU, GRU)]  # a size that no other test has traced
    x = torch.randn(SHORTEST, B, I)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda layer: layer(x)[0], layers))
    for layer, outputs in zip(layers, found):
        with use_loop("plain"):
            torch.testing.assert_close(outputs, layer(x)[0])


def test_a_loop_is_built_once_whichever_threads_ask() -> None:
    cell = URLSTM(1, 39).cell
    with ThreadPoolExecutor(4) as pool:
        loops = set(pool.map(lambda _: choose.compiled_loop(cell, torch.device("cpu"), torch.float32), range(4)))
    assert len(loops) == 1


def test_first_use_under_activation_checkpoints(count: list[int]) -> None:
    layer, x = URLSTM(I, 43), torch.randn(SHORTEST, B, I)  # a size that no other test has traced
    outputs: Any = checkpoint(lambda x: layer(x)[0], x, use_reentrant=False)
    found = torch.autograd.grad(outputs.sum(), list(layer.parameters()))
    assert len(count) == 2  # forwards, and again on the way back
    with use_loop("plain"):
        torch.testing.assert_close(found, torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters())))


def test_first_use_while_looking_for_nan(count: list[int]) -> None:
    layer, x = URLSTM(I, 44), torch.randn(SHORTEST, B, I)
    with torch.autograd.set_detect_anomaly(True):
        layer(x)[0].sum().backward()
    assert count


def test_first_use_draws_the_same_dropout_as_the_second() -> None:
    layer, x, outputs = LSTM(I, 45, 2, dropout=0.5), torch.randn(SHORTEST, B, I), []
    for _ in range(2):
        torch.manual_seed(1)
        outputs.append(layer(x)[0])
    assert torch.equal(*outputs)


@each_layer
def test_autocast_on_a_cpu_keeps_single_precision(kind: type[CellLayer], options: dict[str, Any]) -> None:
    layer, x = make(kind.__name__, torch.float32, **options), torch.randn(T, B, I)
    expected = run(layer, x, None, "native")
    with torch.autocast("cpu", torch.bfloat16):
        found = run(layer, x, None, "native")
        with use_loop("native"):
            narrow, final = layer(x.bfloat16(), tuple(torch.zeros(1, B, *s) for s in layer.cell.state_shapes))
    assert torch.equal(found[0], expected[0])
    for wanted, got in zip(expected, found):  # torch's own products backwards are in bfloat16
        assert got.dtype == torch.float32
        assert (wanted - got).norm() <= 1e-2 * wanted.norm()
    assert (narrow.dtype, final[0].dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(narrow.float(), expected[0], atol=0.02, rtol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["RNN", "NRU", "GRU", "EURNN", "LSTM"])
def test_autocast_gives_back_the_types_that_came_in(name: str, dtype: torch.dtype, count: list[int]) -> None:
    layer = make(name, torch.float32, **OPTIONS[name][0])
    for steps in (SHORTEST - 1, SHORTEST):
        x, hx = torch.randn(steps, B, I, dtype=dtype), states(layer)
        with torch.autocast("cpu", torch.bfloat16):
            outputs, final = layer(x)
            assert {entry.dtype for entry in (outputs, *final)} == {dtype}
            outputs, final = layer(x, hx)
            assert (outputs.dtype, *(entry.dtype for entry in final)) == (dtype, *(entry.dtype for entry in hx))
    assert len(count) == 2


# ---------------------------------------------------------------- what takes plain steps


def zoned(x: Tensor) -> Any:
    return make("LSTM", torch.float32, zoneout=0.1)(x)


def inspected(x: Tensor) -> Any:
    return make("LSTM", torch.float32).inspect(x)


def mapped_twice(x: Tensor) -> Any:
    layer = make("LSTM", torch.float32)
    return vmap(vmap(lambda one: layer(one)[0], in_dims=1))(torch.stack((x, x)))


def mapped_gradients(x: Tensor) -> Any:
    layer = make("LSTM", torch.float32)
    return vmap(torch.func.grad(lambda one: layer(one)[0].sum()), in_dims=1)(x)


def traced(x: Tensor) -> Any:
    return make_fx(lambda x: make("LSTM", torch.float32)(x)[0], tracing_mode="fake")(x)


def meta(x: Tensor) -> Any:
    return LSTM(I, H, device="meta")(x.to("meta"))


def general(x: Tensor) -> Any:
    return make("GRU", torch.float32, reset_after=False)(x), make("RMC", torch.float32, slots=2, heads=2)(x)


def other_heads(x: Tensor) -> Any:
    for options in ({"norm_order": 3}, {"layer_norm": True}, {"factored": False}, {"shared_q": False, "heads": 1}):
        make("NRU", torch.float32, **{"memory_size": 16, "heads": 4, **options})(x)


def without_summary(x: Tensor) -> Any:
    return make("StatisticalRU", torch.float32, summary_size=0)(x)


def asked(x: Tensor) -> Any:
    with use_loop("plain"):
        return make("LSTM", torch.float32)(x)


PLAIN = (zoned, inspected, mapped_twice, mapped_gradients, traced, meta, general, other_heads, without_summary, asked)


@pytest.mark.parametrize("use", PLAIN, ids=lambda use: use.__name__)
def test_takes_plain_steps(use: Callable[[Tensor], Any], count: list[int]) -> None:
    with use_loop("native"):
        use(torch.randn(T, B, I))
    assert not count


def test_one_function_says_which_loop_runs_and_why() -> None:
    layer = make("LSTM", torch.float32)

    def chosen(x: Tensor, dtype: torch.dtype = torch.float32, stepwise: bool = False, layer: Recurrent = layer) -> Any:
        state = tuple(torch.zeros(x.shape[1], H, dtype=dtype, device=x.device) for _ in range(2))
        return choose.choose(layer.cell, layer.parts(), x, state, None, False, stepwise)

    long, short = torch.randn(SHORTEST, B, I), torch.randn(SHORTEST - 1, B, I)
    assert chosen(long).kind == "native"
    assert chosen(long).dtype == torch.float32
    assert chosen(short) == ("plain", "the sequence is short", None, None)
    assert chosen(long[:, :0]).reason == "the sequence is short"
    assert chosen(long, stepwise=True).reason == "zoneout or inspection acts between steps"
    assert chosen(long, torch.float64).reason == "types of number differ"
    assert chosen(long.to("meta")).reason == "no native loop runs on meta"
    seen = []
    vmap(lambda x: seen.append(chosen(x)) or x, in_dims=3)(long[..., None])
    vmap(vmap(lambda x: seen.append(chosen(x)) or x))(long[None, None])
    vmap(lambda x: seen.append(chosen(long)) or x)(long)
    torch.func.grad(lambda x: (seen.append(chosen(x)) or x).sum())(long)
    assert [choice.reason for choice in seen] == ["", *["tensors are traced or transformed"] * 3]  # "": native
    with use_loop("plain"):
        assert chosen(long).reason == "plain steps were asked for"
    with use_loop("native"):
        assert chosen(short).kind == "native"
    with torch.autocast("cpu", torch.bfloat16):
        assert chosen(long.bfloat16()).dtype == torch.float32
    general = make("GRU", torch.float32, reset_after=False)
    state = (torch.zeros(B, H),)
    assert choose.choose(general.cell, general.parts(), long, state, None, False, False).reason == (
        "the cell has no native loop"
    )


def test_short_sequences_are_not_worth_compiling_for(count: list[int]) -> None:
    layer = make("LSTM", torch.float32)
    layer(torch.randn(SHORTEST - 1, B, I))
    assert not count
    layer(torch.randn(SHORTEST, B, I))
    assert count


def test_environment_chooses_the_loop(monkeypatch: pytest.MonkeyPatch, count: list[int]) -> None:
    monkeypatch.setenv("NUMERATE_LOOP", "plain")
    make("LSTM", torch.float32)(torch.randn(SHORTEST, B, I))
    assert not count
    monkeypatch.setenv("NUMERATE_LOOP", "fastest")
    with pytest.raises(ValueError, match="NUMERATE_LOOP must be one of auto, plain, native, got 'fastest'"):
        make("LSTM", torch.float32)(torch.randn(T, B, I))
    with pytest.raises(ValueError, match="mode must be one of"), use_loop("fastest"):  # type: ignore[arg-type]
        pass


def test_without_a_compiler_one_notice_and_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, count: list[int]
) -> None:
    def missing() -> tuple[str, ...]:
        raise native.NoCompiler("no C++ compiler found")

    layers, x = [make(name, torch.float32) for name in ("UGRNN", "JANET", "NRU")], torch.randn(SHORTEST, B, I)
    expected = [layer(x)[0] for layer in layers]
    monkeypatch.setattr(native, "find_compiler", missing)
    choose._compiled.cache_clear()
    choose._told.clear()
    count.clear()
    try:
        with caplog.at_level(logging.WARNING, "numerate"):
            found = [layer(x)[0] for layer in layers]
    finally:
        choose._compiled.cache_clear()
    torch.testing.assert_close(found, expected)
    assert not count
    assert [r.message for r in caplog.records if r.name == "numerate"] == [
        "no native time loop (no C++ compiler found); steps run one by one, which is slower"
    ]


def test_a_compiler_that_fails_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    script = tmp_path / "c++"
    fails = "case \"$*\" in *-shared*) printf 'In file\\nerror: no space\\n' >&2; exit 1;; esac"
    script.write_text(f"#!/bin/sh\n{fails}\necho '#define __cplusplus 201703L'\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "cache"))
    choose._compiled.cache_clear()
    choose._told.clear()
    try:
        with caplog.at_level(logging.WARNING, "numerate"):
            for name in ("UGRNN", "JANET"):
                make(name, torch.float32)(torch.randn(SHORTEST, B, I))
    finally:
        choose._compiled.cache_clear()
    assert [r.message for r in caplog.records if r.name == "numerate"] == [
        f"no native time loop ({script} failed: error: no space); steps run one by one, which is slower"
    ]


# ---------------------------------------------------------------- torch's fused operations


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "CLSTM", "ULSTM", "GRU", "CGRU", "UGRU"])
def test_fused_operations_are_the_same_mathematics(name: str, reverse: bool) -> None:
    layer = make(name, **OPTIONS.get(name, [{}])[0])
    cell, p = layer.cell, dict(layer.parts())
    assert cell.has_fused
    x = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
    start = tuple(entry[0].requires_grad_() for entry in states(layer))

    def plain(gx: Tensor, prepared: Any, state: Any) -> Any:
        return plain_steps(cell, gx, prepared, state, reverse=reverse)

    ways = [plain(cell.project(x, p), cell.prepare(p), start), run_fused(cell, p, x, start, reverse, plain)]
    inputs, found = [x, *start, *p.values()], []
    for outputs, final in ways:
        loss = outputs.square().sum() + sum(entry.pow(3).sum() for entry in final)
        once = torch.autograd.grad(loss, inputs, retain_graph=True)
        gradient = torch.autograd.grad(loss, inputs, create_graph=True)
        above = outputs.detach().expand(2, T, B, H)
        batch = torch.autograd.grad(outputs, inputs, above, is_grads_batched=True, retain_graph=True)
        twice = torch.autograd.grad(sum(g.square().sum() for g in gradient), inputs)  # type: ignore[arg-type]
        found.append([outputs, *final, *once, *gradient, *twice, *batch])
    for expected, got in zip(*found):
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{"tied": True}, {"gate": "R"}, {"gate": "O"}, {"gate": "OM", "downsize": 2}], ids=str
)
def test_other_gates_have_no_fused_operation(options: dict[str, Any]) -> None:
    assert not LSTM(I, H, **options).cell.has_fused
    assert not GRU(I, H, **{**options, "tied": None}, reset_after=False).cell.has_fused
