"""The text of a kernel, and how it wants to be launched."""

from dataclasses import dataclass
from pathlib import Path

from numerate.loops.cuda.tuning import BLOCK
from numerate.loops.kernel.form import Kernel
from numerate.loops.printers.cuda import CudaPrinter


@dataclass(frozen=True)
class Source:
    """A kernel before compilation.

    Args:
        name: of the kernel in the text.
        text: CUDA C++.
        threads: of one member.
        block: threads of one block.
        shared: bytes of shared memory of one block.
        rows: examples that a thread takes at once.
        tiled: whether sums over the batch go through shared memory.
        side_by_side: members that a thread takes at once.
    """

    name: str
    text: str
    threads: int
    block: int
    shared: int
    rows: int = 1
    tiled: bool = False
    side_by_side: int = 1

    @property
    def members(self) -> int:
        """Of one block."""
        return self.block // self.threads * self.side_by_side


def prelude() -> str:
    """The CUDA C++ that all sources start with."""
    return Path(__file__).with_name("prelude.cuh").read_text()


def source_of(
    name: str, kernel: Kernel, threads: int, floats: int, *, rows: int = 1, tiled: bool = False, side_by_side: int = 1
) -> Source:
    """Print a kernel whose members need ``floats`` numbers in shared memory."""
    block = threads if floats else max(threads, BLOCK)
    lines = [f"#define THREADS {threads}", f"#define BLOCK {block}", prelude(), *CudaPrinter().kernel(kernel), ""]
    return Source(name, "\n".join(lines), threads, block, 4 * floats * (block // threads), rows, tiled, side_by_side)
