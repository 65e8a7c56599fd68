"""What docs/engine.md shows and claims of the emitted loops."""

import re
from pathlib import Path

import pytest
import torch
from small_steps import largest_difference, make_members, make_state, make_step, make_weights

from numerate.loops.cpp.loop import Cpp
from numerate.loops.cuda.pipeline import emit_training
from numerate.loops.lowering.lower import lower
from numerate.loops.plain.eager import Eager
from numerate.loops.tracing.trace import NotLowered, training_step
from numerate.tasks import SingleModule
from numerate.train import Penalty, Training
from numerate.train import stack as training_stack
from numerate.units import MLP, NMU, Ramp, penalty

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text()
PACKAGE = Path(training_stack.__file__).parents[1]


def statements(text: str) -> list[str]:
    """Lines of code without comments, closing braces and marks of omission."""
    lines = [line.split("//")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line not in ("", "}", "...")]


def test_the_excerpt_is_in_the_emitted_source_and_in_its_order():
    weight = Penalty(penalty, Ramp(10.0, 20_000, 35_000))
    step, *_ = training_stack.make_step(Training(NMU, SingleModule("mul"), (0,), penalties=(weight,)))
    emitted = iter(statements(Cpp(step).source))
    (excerpt,) = re.findall(r"```c\+\+\n(.*?)```", PAGE, re.DOTALL)
    shown = statements(excerpt)
    assert len(shown) > 15
    assert [line for line in shown if line not in emitted] == []  # `in` goes on where it last found something


def test_the_named_files_exist():
    named = set(re.findall(r"`((?:loops|train)/[\w/]+\.py)`", PAGE))
    assert {
        "loops/cpp/pipeline.py",
        "loops/cuda/training.py",
        "loops/timeloops/timeloop.py",
        "loops/kernel/form.py",
    } <= named
    assert [name for name in sorted(named) if not (PACKAGE / name).exists()] == []


@pytest.mark.parametrize("width", [64, 128])
def test_wide_networks_follow_the_plain_loop(width):
    torch.manual_seed(0)
    module, count, steps = MLP(2, 1, hidden=(width, width)), 2, 20
    step, members = make_step(module, batch=16), make_members(count, rate=1e-3)
    states = []
    for loop in (Eager(step), Cpp(step)):
        states.append(make_state(module, count))
        loop.train(states[-1], members, make_weights(step, steps, count), steps)
    assert largest_difference(*states) < 5e-6


def test_how_wide_a_network_may_be_on_a_gpu():
    def program(width: int) -> None:
        step = make_step(MLP(2, 1, hidden=(width, width)), batch=128)
        emit_training(step, lower(training_step(step)))

    program(104)
    with pytest.raises(NotLowered, match=r"one member needs .* bytes of shared memory"):
        program(112)
