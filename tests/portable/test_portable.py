"""The emitted C++ on other processors and systems: it runs on aarch64 as here, and compiles for macOS and Windows.

The processor is emulated; plain torch on this one is the reference.
"""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulation import OTHER_SYSTEMS, TARGET, compile_for, macros, missing

import numerate.recurrent
import numerate.units
from numerate.recurrent import CellLayer
from numerate.units import Unit

HERE = Path(__file__).parent
needs_zig = pytest.mark.skipif("ziglang" in missing, reason="needs the package ziglang, the extra numerate[compiler]")
emulated = pytest.mark.skipif(bool(missing), reason=f"not on this machine: {', '.join(missing)}")
PLAIN = ("DNC", "EURNN", "GORU", "RMA", "RMC", "UnitRNN")
"""Layers without a compiled loop."""


def subclasses(package, base):
    found = {name: getattr(package, name) for name in package.__all__}
    kinds = {n: kind for n, kind in found.items() if inspect.isclass(kind) and issubclass(kind, base)}
    return [name for name, kind in kinds.items() if kind is not base and kind.__name__ == name]


def check(folder, *checks):
    paths = [str(HERE), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NUMERATE_CACHE": str(folder / "cache")}
    call = [sys.executable, HERE / "emulated_checks.py", folder, *checks]
    done = subprocess.run(call, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [*checks], done.stderr[-3000:]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Sources of the streams, a unit, a cell and the matrix products, which have been run."""
    folder = tmp_path_factory.mktemp("portable")
    check(folder, "streams", "unit:NALU", "cell:URLSTM")
    return [text for path in folder.glob("*.cpp") if "FUNCTIONS" not in (text := path.read_text())]


@emulated
def test_streams_a_unit_and_a_cell_run_on_aarch64(sources):
    assert len(sources) == 4


@emulated
@pytest.mark.parametrize("target", OTHER_SYSTEMS)
def test_the_same_sources_compile_for_other_systems(target, sources, tmp_path):
    for source in sources:
        assert compile_for(target, source, tmp_path).stat().st_size > 1000


@needs_zig
@pytest.mark.parametrize(
    ("target", "flags", "lanes"),
    [
        (TARGET, [], 4),
        ("aarch64-macos", [], 4),
        ("x86_64-linux-musl", [], 4),
        ("x86_64-windows-gnu", ["-mcpu=x86_64_v3"], 8),
        ("x86_64-linux-musl", ["-mcpu=x86_64_v4"], 16),
    ],
)
def test_the_width_of_a_vector_follows_the_processor(target, flags, lanes):
    assert macros(target, *flags)["LANES"] == str(lanes)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("name", subclasses(numerate.units, Unit))
def test_units_run_on_aarch64(name, tmp_path):
    check(tmp_path, f"unit:{name}")


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in subclasses(numerate.recurrent, CellLayer) if name not in PLAIN])
def test_cells_run_on_aarch64(name, tmp_path):
    check(tmp_path, f"cell:{name}")
