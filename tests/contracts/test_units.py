"""What every exported unit promises; a unit added to ``numerate.units`` is checked without a word here.

The units and their options are in ``unit_cases.py``; torch's transformations in ``test_units_transformed.py``.
"""

import copy
import inspect
import io
import math
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from unit_cases import MODULES, UNITS, VARIANTS, I, O, cases, make, parameters, safe, signed, width

from numerate.units import Unit, apply_bounds_, bound_after_step, parameter_bounds

# torch itself scripts a few functions when forward-mode derivatives or its compiler are first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


class Call(nn.Module):
    """A method of a unit as a forward pass, for ``functional_call``."""

    def __init__(self, unit: Unit, method: str) -> None:
        super().__init__()
        self.unit, self.method = unit, method

    def forward(self) -> Any:
        return getattr(self.unit, self.method)()


def test_the_suite_sees_every_unit():
    assert {"NAU", "NMU", "NLRL", "NSR"} <= set(UNITS)
    assert set(VARIANTS) <= set(UNITS)


def test_the_docs_name_every_unit():
    docs = Path(__file__).parents[2] / "docs"
    page, reference = (docs / "units.md").read_text(), (docs / "api.md").read_text()
    assert [name for name in MODULES if f"`{name}`" not in page] == []
    assert [name for name in MODULES if f"numerate.units.{name}\n" not in reference] == []


# --- construction ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNITS)
def test_constructor_takes_sizes_and_then_keywords(name):
    signature = list(inspect.signature(UNITS[name]).parameters.values())
    assert [p.name for p in signature[:2]] == ["in_features", "out_features"]
    assert all(p.kind is p.KEYWORD_ONLY for p in signature[2:])
    assert [p.name for p in signature[-2:]] == ["device", "dtype"]
    assert all(p.default is None for p in signature[-2:])


@cases()
def test_reset_is_a_function_of_its_generator(name, options):
    state = torch.get_rng_state()
    one, two, other = make(name, options), make(name, options), make(name, options, seed=1)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(state)
    for key, value in parameters(one).items():
        assert torch.equal(value, parameters(two)[key])
        assert value.isfinite().all()
    assert any(not torch.equal(value, parameters(other)[key]) for key, value in parameters(one).items())


@cases(UNITS)
def test_repr_builds_the_same_unit(name, options):
    unit = make(name, options)
    text = f"{name}({unit.extra_repr()})"
    again = eval(text, dict(UNITS))
    assert f"{name}({again.extra_repr()})" == text
    assert f"in_features={I}, out_features={O}" in repr(unit)
    keywords = [p for p in inspect.signature(UNITS[name]).parameters if p not in ("device", "dtype")]
    assert all(f"{key}=" in text for key in keywords)
    for key, value in options.items():
        assert f"{key}={value!r}" in text
    assert {k: v.shape for k, v in parameters(again).items()} == {k: v.shape for k, v in parameters(unit).items()}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-2, 3), (2.0, 3), (True, 3), ("2", 3)], ids=str)
def test_wrong_sizes_are_named(name, sizes):
    with pytest.raises(ValueError, match=r"(in|out)_features must be a positive whole number, got"):
        UNITS[name](*sizes)


@pytest.mark.parametrize("name", UNITS)
def test_misspelt_keyword_is_named(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'wieght'"):
        UNITS[name](I, O, wieght=1)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("name", "option"),
    [(n, p.name) for n, u in UNITS.items() for p in inspect.signature(u).parameters.values() if type(p.default) is str],
)
def test_unknown_option_is_answered_with_the_known_ones(name, option):
    with pytest.raises(ValueError, match=rf"{option} must be one of '.*', got 'nonsense'"):
        UNITS[name](I, O, **{option: "nonsense"})


NUMBERS = [
    (name, option)
    for name, unit in UNITS.items()
    for option, parameter in inspect.signature(unit).parameters.items()
    if type(parameter.default) in (int, float)
]


@pytest.mark.parametrize(("name", "option"), NUMBERS)
@pytest.mark.parametrize("value", [-1, -3.5, math.nan, None, "1"], ids=str)
def test_a_number_that_makes_no_sense_is_named(name, option, value):
    with pytest.raises(ValueError, match=rf"^{option} must be .*, got {value!r}$"):
        UNITS[name](I, O, **{option: value})


FLAGS = [
    (name, option)
    for name, unit in UNITS.items()
    for option, parameter in inspect.signature(unit).parameters.items()
    if type(parameter.default) is bool
]


@pytest.mark.parametrize(("name", "option"), FLAGS)
def test_a_switch_is_true_or_false(name, option):
    with pytest.raises(ValueError, match=f"^{option} must be True or False, got 'no'$"):
        UNITS[name](I, O, **{option: "no"})


@cases(UNITS)
@pytest.mark.parametrize("shape", [(), (4,), (3, 2)], ids=str)
def test_wrong_input_is_named(name, options, shape):
    with pytest.raises(ValueError, match=rf"{name} expects 3 features in the last dimension"):
        make(name, options)(torch.ones(shape, dtype=torch.float64))


CHOOSING = {
    "NALU",
    "ComplexNALU",
    "GNALU",
    "GatedNAUNMU",
    "INALU",
    "NATU",
    "NLRL",
    "NSR",
}  # of a sum and a product, or rules


@cases(UNITS)
def test_the_neutral_element_is_the_formula_without_any_input(name, options):
    unit = make(name, options)
    values = {**unit.effective_weights(), **unit.coefficients()}
    nothing = {
        key: sympy.zeros(*(value.shape if value.dim() == 2 else (1, value.numel()))) for key, value in values.items()
    }
    inputs = sympy.symbols("a b c", positive=True)
    if name in CHOOSING:
        assert unit.neutral == 0
    else:
        assert {float(y) for y in unit.expressions(inputs, nothing)} == {unit.neutral}


# --- forward --------------------------------------------------------------------------------------------------------


@cases()
@pytest.mark.parametrize("shape", [(I,), (5, I), (2, 5, I), (0, I), (1, I)], ids=str)
def test_leading_dimensions_are_free(name, options, shape):
    unit, x = make(name, options), safe(*shape)
    y = unit(x)
    assert y.shape == (*shape[:-1], width(options))
    rows = [unit(row) for row in x.reshape(-1, I)]
    if rows:
        torch.testing.assert_close(y.reshape(-1, width(options)), torch.stack(rows))


@cases()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_dtype_is_kept(name, options, dtype, training):
    unit = make(name, options, dtype=dtype).train(training)
    y = unit(safe(4, I, dtype=dtype))
    assert {p.dtype for p in unit.parameters()} == {dtype}
    assert y.dtype == dtype
    assert y.isfinite().all()
    y.sum().backward()
    if not training:
        double = make(name, options).to(torch.float64)
        double.load_state_dict({key: value.double() for key, value in unit.state_dict().items()})
        loose = 0.1 if dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(y.double(), double(safe(4, I, dtype=dtype).double()), rtol=loose, atol=loose)


@cases()
def test_meta_device_gives_shapes_alone(name, options):
    unit = MODULES[name](I, O, **options, device="meta")
    y = unit(torch.empty(4, I, device="meta"))
    assert y.is_meta
    assert y.shape == (4, width(options))
    assert all(p.is_meta for p in unit.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@cases()
def test_cuda_computes_what_the_cpu_computes(name, options):
    cpu = make(name, options)
    cuda = MODULES[name](I, O, **options, device="cuda", dtype=torch.float64).eval()
    assert all(p.is_cuda for p in cuda.parameters())
    cuda.load_state_dict(cpu.state_dict())
    x = safe(5, I)
    y = cuda(x.cuda())
    torch.testing.assert_close(y.cpu(), cpu(x))
    y.sum().backward()
    cpu(x).sum().backward()
    for (key, a), (_, b) in zip(cuda.named_parameters(), cpu.named_parameters()):
        assert a.grad is not None, key
        torch.testing.assert_close(a.grad.cpu(), b.grad)
    cuda.reset_parameters(torch.Generator("cuda").manual_seed(0))
    cuda.snap_()


@cases()
@pytest.mark.parametrize("value", [0.0, -0.7, -1.0, 1e-38, 1e30, -1e30, math.inf], ids=str)
def test_no_input_raises(name, options, value):
    for training in (False, True):
        unit = make(name, options, dtype=torch.float32).train(training)
        x = torch.full((2, I), value, requires_grad=True)
        unit(x).sum().backward()
    unit.eval()
    if abs(value) <= 1 and value != 0:
        mixed = torch.tensor([[value, 0.5, -0.5]])
        assert unit(mixed).shape == (1, width(options))


@cases()
def test_nan_in_gives_nan_out_in_its_row_alone(name, options):
    for training in (False, True):
        for unit in (make(name, options), make(name, options).snap_()):  # a weight of 0 hides no NaN
            unit.train(training)
            x = safe(3, I)
            x[1, 0] = math.nan
            y = unit(x)
            assert y[1].isnan().all()
            if not training:
                assert y[[0, 2]].isfinite().all()


@cases()
def test_autocast_does_not_raise(name, options):
    unit = make(name, options, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = unit(safe(4, I, dtype=torch.float32))
    assert y.isfinite().all()


# --- state ----------------------------------------------------------------------------------------------------------


@cases()
def test_state_dict_round_trip(name, options):
    unit, other, x = make(name, options), make(name, options, seed=1), safe(5, I)
    file = io.BytesIO()
    torch.save(unit.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(unit(x), other(x))


@cases()
def test_deepcopy_is_equal_and_apart(name, options):
    unit, x = make(name, options), safe(5, I)
    twin, y = copy.deepcopy(unit), unit(x)
    assert torch.equal(twin(x), y)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert torch.equal(unit(x), y)


@cases()
def test_weights_are_read_at_every_forward(name, options):
    """A small change of any parameter, in place, moves the output by what its gradient says."""
    unit, step = make(name, options), 1e-6
    x = signed(unit, 5)
    y = unit(x)
    for key, parameter in unit.named_parameters():
        direction = torch.randn(parameter.shape, dtype=parameter.dtype, generator=torch.Generator().manual_seed(3))
        slope = torch.func.jvp(
            lambda value, key=key: functional_call(unit, {key: value}, (x,)), (parameter.detach(),), (direction,)
        )[1]
        with torch.no_grad():
            parameter.add_(step * direction)
            moved = unit(x) - y
            parameter.sub_(step * direction)
        assert (moved != 0).any(), key
        torch.testing.assert_close(
            moved, step * slope, rtol=1e-3, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}"
        )


@cases()
def test_gradients_reach_every_parameter(name, options):
    unit = make(name, options)
    x = signed(unit, 16)
    weights = torch.linspace(1, 2, width(options), dtype=x.dtype)
    (unit(x) * weights).sum().backward()
    for key, parameter in unit.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert (parameter.grad != 0).any(), key


# --- what the unit says of itself -----------------------------------------------------------------------------------


@cases()
@pytest.mark.parametrize("method", ["sparsity_error", "penalty"])
def test_measures_are_finite_scalars_with_gradients(name, options, method):
    unit = make(name, options)
    value = getattr(unit, method)()
    assert value.shape == ()
    assert value.isfinite()
    assert method == "penalty" or value >= 0
    if value.requires_grad:
        value.backward()
        grads = [p.grad for p in unit.parameters() if p.grad is not None]
        assert grads
        assert all(g.isfinite().all() for g in grads)


@cases()
@pytest.mark.parametrize("method", ["sparsity_error", "penalty", "effective_weights", "coefficients"])
def test_measures_stack(name, options, method):
    units, base = [make(name, options, seed=seed) for seed in range(3)], make(name, options)
    params, buffers = stack_module_state([Call(unit, method) for unit in units])
    stacked = vmap(lambda p, b: functional_call(Call(base, method), (p, b), ()))(params, buffers)
    for k, unit in enumerate(units):
        looped = getattr(unit, method)()
        pairs = (
            [(stacked[key][k], looped[key]) for key in looped] if isinstance(looped, dict) else [(stacked[k], looped)]
        )
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-14, atol=0)


@cases()
def test_bounds_hold_once_applied(name, options):
    unit = make(name, options)
    assert set(unit.bounds) <= set(unit._parameters)
    with torch.no_grad():
        for parameter in unit.parameters():
            parameter.mul_(100)
    apply_bounds_(unit)
    for key, (low, high) in parameter_bounds(unit).items():
        value = unit.get_parameter(key)
        assert low <= value.min()
        assert value.max() <= high


@cases()
def test_bounds_hold_after_a_hooked_step(name, options):
    unit = make(name, options)
    optimizer = torch.optim.SGD(unit.parameters(), lr=100.0)
    handle = bound_after_step(optimizer, unit)
    unit(safe(5, I)).sum().backward()
    optimizer.step()
    for key, (low, high) in parameter_bounds(unit).items():
        value = unit.get_parameter(key)
        assert low <= value.min()
        assert value.max() <= high
    handle.remove()


@cases()
def test_snapping_puts_the_weights_on_levels_and_rests_there(name, options):
    for dtype in (torch.float32, torch.float64):
        unit = make(name, options, dtype=dtype)
        before = parameters(copy.deepcopy(unit))
        pure = unit.snapped_parameters()
        assert all(torch.equal(value, before[key]) for key, value in parameters(unit).items())
        assert unit.snap_() is unit
        for key, value in pure.items():
            assert torch.equal(parameters(unit)[key], value)
        weights = unit.effective_weights() | unit.coefficients()
        for key, levels in unit.levels.items():
            if key not in weights:  # an option leaves it out
                continue
            distance = (weights[key].unsqueeze(-1) - torch.tensor(levels, dtype=dtype)).abs().amin(-1)
            assert distance.max() <= 1e-6, key
        once = parameters(copy.deepcopy(unit))
        unit.snap_()
        assert all(torch.equal(value, once[key]) for key, value in parameters(unit).items())


@cases([name for name in UNITS if name not in ("MLP", "Dense")])
def test_snapping_does_not_hide_that_a_unit_has_diverged(name, options):
    unit = make(name, options)
    for parameter in unit.parameters():
        nn.init.constant_(parameter, math.nan)
    unit.snap_()
    assert unit.sparsity_error().isnan()
    assert unit(safe(2, I)).isnan().all()


def evaluated(unit: Unit, x: Tensor, tolerance: float) -> tuple[str, Tensor]:
    found = unit.formula("a b c", tolerance=tolerance)
    outputs = found.flat() if isinstance(found, sympy.MatrixBase) else [found]
    symbols = [sympy.Symbol(letter, real=True) for letter in "abc"]
    functions = [sympy.lambdify(symbols, output.doit(), "math") for output in outputs]
    return str(found), torch.tensor([[f(*row) for f in functions] for row in x.tolist()], dtype=torch.float64)


@cases()
def test_formula_is_what_forward_computes(name, options):
    unit, x = make(name, options), safe(4, I)
    _, values = evaluated(unit, x, tolerance=1e-12)
    torch.testing.assert_close(values, unit(x), rtol=1e-6, atol=1e-6)


@cases()
def test_formula_of_a_snapped_unit_is_exact(name, options):
    for seed in range(3):
        unit, x = make(name, options, seed=seed).snap_(), safe(4, I)
        text, values = evaluated(unit, x, tolerance=1e-6)
        if set(unit.levels) >= {*unit.effective_weights(), *unit.coefficients()}:  # all but a free gate or bias
            assert "≈" not in text
        torch.testing.assert_close(values, unit(x), rtol=1e-5, atol=1e-6)


@cases()
def test_everything_stays_on_the_device_of_the_unit(name, options):
    """On the meta device any tensor made elsewhere shows at once, as it would on a GPU."""
    unit: Any = MODULES[name](I + 1, O, **options, device="meta")
    x = torch.empty(5, I + 1, device="meta")
    answers = [unit(x), unit.eval()(x), unit.penalty(), unit.sparsity_error()]
    answers += [*unit.effective_weights().values(), *unit.snapped_parameters().values()]
    assert {answer.device.type for answer in answers} == {"meta"}
    unit.snap_()
    apply_bounds_(unit)
    unit.reset_parameters()
