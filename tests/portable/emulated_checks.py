"""``python emulated_checks.py FOLDER CHECK ...``: compare loops on an emulated processor with plain torch here.

A check is ``streams``, ``unit:NMU`` or ``cell:URLSTM``. Prints one line for each; objects are kept in FOLDER.
"""

import logging
import sys
from pathlib import Path

import torch
from emulation import Emulated
from torch import Tensor

FOLDER = Path(sys.argv[1])


def emulate() -> None:
    """From now on native code runs on the other processor."""
    from numerate.loops.toolchain import native

    made: dict[str, Emulated] = {}

    def library(source: str) -> Emulated:
        if source not in made:
            made[source] = Emulated(source, FOLDER, lambda: [each for each in made.values() if each.has_products])
        return made[source]

    native.library = library  # type: ignore[assignment]


def streams() -> None:
    from numerate.loops.toolchain import native
    from numerate.streams import uniform

    seeds = torch.tensor([0, 5, 2**32 - 1, 2**40 + 7])
    for count in (1, 64, 1000):
        expected = torch.stack([uniform(seeds, 3, 2**32 - 1 + t, count) for t in range(2)])
        assert torch.equal(native.philox_uniform(seeds, 3, 2**32 - 1, 2, count), expected)


def unit(name: str) -> None:
    """Three steps of training and an evaluation, against the plain loop."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "loops"))
    import small_steps

    from numerate.loops.cpp.loop import Cpp
    from numerate.loops.plain.eager import Eager

    module = small_steps.unit(name)
    step, members = small_steps.make_step(module, batch=8), small_steps.make_members(6)
    loop, plain = Cpp(step, threads=1), Eager(step)
    assert loop.lanes == 4, f"{loop.lanes} lanes, but a vector of this processor holds 4 numbers"
    states = [small_steps.make_state(module, len(members)) for _ in range(2)]
    for each, state in zip((loop, plain), states):
        each.train(state, members, small_steps.make_weights(step, 3, len(members)), 3)
    for key in step.parameters:
        close(*(state.parameters[key] for state in states))
    uniforms = torch.rand(50, step.draws)
    close(*(each.evaluate(states[0].parameters, members.constants, uniforms) for each in (loop, plain)))


def cell(name: str) -> None:
    """Outputs and gradients of a short sequence, against plain steps."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "contracts"))
    from recurrent_cases import SMALL

    import numerate.recurrent
    from numerate.recurrent import use_loop

    layer = getattr(numerate.recurrent, name)(3, 4, **SMALL.get(name, {}))
    x = torch.randn(4, 3, 3)

    def run(mode):
        with use_loop(mode):
            outputs, _ = layer(x)
        return outputs, *torch.autograd.grad(outputs.square().sum(), list(layer.parameters()), allow_unused=True)

    for one, two in zip(run("native"), run("plain")):
        if one is not None or two is not None:
            close(one, two)


def close(one: Tensor | None, two: Tensor | None) -> None:
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5, equal_nan=True)


if __name__ == "__main__":
    logging.raiseExceptions = True
    logging.basicConfig(format="%(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    emulate()
    for check in sys.argv[2:]:
        kind, _, name = check.partition(":")
        before = Emulated.calls
        streams() if kind == "streams" else {"unit": unit, "cell": cell}[kind](name)
        assert Emulated.calls > before, "nothing ran on the other processor"
        print(check, flush=True)
