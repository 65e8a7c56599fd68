"""Processes that share the runs of a group on a CPU, where Python lets the threads of one process take turns.

They keep nothing. An order brings the state of a run, and its answer the next one: whatever becomes of a process, the
run goes on in this one, with the same bits. A network that a process cannot make is left to threads.

Orders and answers are those of a cluster's workers: a training as text, which the process makes anew and proves by its
hash, and arrays as raw numbers. Nothing is pickled. Each process imports torch, and is 260 MB of memory and more; a
data set is in memory once for all.
"""

import logging
import mmap
import os
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from numerate import processes
from numerate.results.arrays import pack, unpack
from numerate.train.allocator import keep_freed_memory
from numerate.train.backends import notice
from numerate.train.networks.member import Tensors
from numerate.train.networks.specification import NetworkRun
from numerate.train.networks.stack import Stack
from numerate.train.plain import from_text, to_text

WORTHWHILE = 10.0
"""Seconds of training from which on processes are started; each takes one or two to begin."""
LARGEST = 1_000_000
"""Numbers of a network. Those of larger ones take long to send, and their operations leave Python's lock to others."""
_ALIGNED = 64  # bytes

Arrays = Mapping[str, np.ndarray]


class Refused(Exception):
    """A process cannot compute a run; the message says why."""


class NoneIdle(Exception):
    """No process is there to compute a run."""


class _Worker(NamedTuple):
    process: processes.Process
    knows: list["Runs"]  # the runs it was sent last


class Runs:
    """The runs of a group as they are sent to a process, once.

    Args:
        runs: of the group, one for each stack.
        data: the task's.
    """

    def __init__(self, runs: Sequence[NetworkRun], data: Tensors) -> None:
        self.runs, self.data = tuple(runs), data
        self._order: bytes | None = None

    def order(self, file: "_DataFile") -> bytes:
        """Raises Refused if they cannot be sent."""
        if self._order is None:
            trainings = {id(run.training): run.training for run in self.runs}
            places = {name: place for place, name in enumerate(trainings)}
            try:
                texts = [to_text(training) for training in trainings.values()]
            except ValueError as error:
                raise Refused(str(error)) from error
            self._order = _order(
                "take",
                trainings=texts,
                runs=[(places[id(run.training)], run.seed) for run in self.runs],
                data=file.put(self.data),
                dtype=str(torch.get_default_dtype()).removeprefix("torch."),
                precision=torch.get_float32_matmul_precision(),
            )
        return self._order


def _order(name: str, arrays: Arrays | None = None, **arguments: Any) -> bytes:
    """An order to call a method of :class:`_Served`."""
    return processes.joined({"name": name, "arguments": arguments}, pack(arrays or {}))


class Workers:
    """Processes for the time of one call of :func:`numerate.train.train`.

    Args:
        count: how many there are once they are started.
    """

    def __init__(self, count: int) -> None:
        self.count, self.made = count, time.perf_counter()
        self.processes: list[processes.Process] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._greeting: list[Thread] = []
        self._lock, self._file, self._closing = Lock(), _DataFile(), False

    def expect(self, seconds: float) -> None:
        """Start the processes, unless the work of ``seconds`` that is left, and that done so far, are too little."""
        if not self.processes and max(seconds, time.perf_counter() - self.made) >= WORTHWHILE:
            self.start()

    def start(self) -> None:
        """Start the processes, and do not wait for them."""
        for _ in range(self.count):
            try:
                environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
                process = processes.start(f"{__name__}:main", environment, self._file.handles)
            except OSError as error:
                notice(f"a worker process could not be started ({error.strerror}); threads share the runs")
                return
            self.processes.append(process)
            self._greeting.append(Thread(target=self._greet, args=[_Worker(process, [])], daemon=True))
            self._greeting[-1].start()

    def wait(self) -> None:
        """Until every process is there, or is gone."""
        for thread in self._greeting:
            thread.join()

    def _greet(self, worker: _Worker) -> None:
        try:
            self._answer(worker, _order("greet"))
        except (NoneIdle, Refused):
            return
        self._idle.put(worker)

    def call(self, runs: Runs, place: int, stack: Stack, method: str, *arguments: Any) -> Arrays:
        """What a method of the stack at this place gives, computed by a process; the stack is then as after it.

        Raises NoneIdle if there is no process to do it, Refused if one cannot.
        """
        try:
            worker = self._idle.get_nowait()
        except Empty:
            raise NoneIdle from None
        try:
            if worker.knows != [runs]:
                with self._lock:
                    order = runs.order(self._file)
                worker.knows[:] = []
                self._answer(worker, order)
                worker.knows[:] = [runs]
            call = {"place": place, "begun": stack.begun, "method": method, "arguments": arguments}
            answer = self._answer(worker, _order("compute", stack.arrays(), **call))
        except Refused:
            self._idle.put(worker)
            raise
        stack.restore(_part(answer, "state"))
        self._idle.put(worker)
        return _part(answer, "found")

    def _answer(self, worker: _Worker, order: bytes) -> Arrays:
        try:
            reply = processes.exchange(worker.process, order)
        except OSError:
            reply = None
        if reply is None and self._closing:
            raise NoneIdle
        if reply is None:
            ended = processes.how_it_ended(processes.end(worker.process))
            notice(f"a worker process {ended}; its runs go on in this process")
            raise NoneIdle
        header, block = processes.parted(reply)
        if header["refused"]:
            raise Refused(header["refused"])
        return unpack(block)

    def close(self) -> None:
        """End the processes; they have nothing to lose."""
        self._closing = True
        for process in self.processes:
            process.kill()
        self.wait()
        for process in self.processes:
            processes.end(process)
        self._file.close()


# ------------------------------------------------------------ the data set, once for all processes

Places = dict[str, tuple[int, str, tuple[int, ...]]]
"""Name of a tensor -> where its bytes begin, their type, its shape."""


class DataPart(NamedTuple):
    """A data set in the file: an open file, and which part of it."""

    handle: int
    start: int
    length: int
    places: Places


class _DataFile:
    """A file without a name that all processes map into their memory; the system drops it with the last of them."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        with suppress(OSError):  # no folder for it
            self._file = tempfile.TemporaryFile() if os.name == "posix" else None  # noqa: SIM115 (see close)
        self._parts: list[tuple[Tensors, DataPart]] = []

    @property
    def handles(self) -> tuple[int, ...]:
        return () if self._file is None else (self._file.fileno(),)

    def put(self, data: Tensors) -> DataPart | None:
        """Where the data are; None if every process has to read them by itself."""
        known = next((part for there, part in self._parts if _are_one(there, data)), None)
        if known is None and self._file is not None:
            try:
                known = self._written(data, self._file.fileno())
            except (OSError, TypeError):  # no room, or a type that numpy does not have
                return None
            self._parts.append((data, known))
        return known

    def _written(self, data: Tensors, handle: int) -> DataPart:
        end = os.fstat(handle).st_size
        start = end + -end % mmap.ALLOCATIONGRANULARITY
        at, places = start, Places()
        for name, value in data.items():
            array = np.ascontiguousarray(value.numpy())
            places[name] = at - start, array.dtype.str, value.shape
            rest = array.reshape(-1).view(np.uint8).data
            while rest:
                written = os.pwrite(handle, rest, at)
                at, rest = at + written, rest[written:]
            at += -at % _ALIGNED
        os.ftruncate(handle, max(at, end))
        return DataPart(handle, start, at - start, places)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _are_one(data: Tensors, other: Tensors) -> bool:
    return data.keys() == other.keys() and all(value is other[name] for name, value in data.items())


def mapped(part: DataPart) -> Tensors:
    """The tensors of a part; their memory is that of all processes that map it."""
    if not part.length:
        return {}
    memory = mmap.mmap(part.handle, part.length, access=mmap.ACCESS_COPY, offset=part.start)
    arrays = {name: np.ndarray(shape, kind, memory, at) for name, (at, kind, shape) in part.places.items()}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


# ------------------------------------------------------------ in such a process


class _Served:
    """Answers orders; what goes wrong is an answer too."""

    def __init__(self) -> None:
        self.runs: Sequence[NetworkRun] = ()
        self.stacks: dict[int, Stack] = {}
        self.data: Tensors | None = None

    def __call__(self, order: bytes) -> bytes:
        try:
            header, block = processes.parted(order)
            found = getattr(self, header["name"])(unpack(block), **header["arguments"])
            return processes.joined({"refused": ""}, pack(found))
        except Exception as error:
            return processes.joined({"refused": f"{type(error).__name__}: {error}"})

    def greet(self, arrays: Arrays) -> Arrays:
        """Everything is imported."""
        return arrays

    def take(
        self,
        arrays: Arrays,
        trainings: Sequence[str],
        runs: Sequence[tuple[int, int]],
        data: Sequence[Any] | None,
        dtype: str,
        precision: str,
    ) -> Arrays:
        """Make ready for the runs of a group. Raises ValueError if their code is another here."""
        seeds = [tuple(seed for k, seed in runs if k == place) for place in range(len(trainings))]
        made = [from_text(*each) for each in zip(trainings, seeds)]
        torch.set_default_dtype(getattr(torch, dtype))
        if precision != torch.get_float32_matmul_precision():
            torch.set_float32_matmul_precision(precision)
        self.runs = [NetworkRun(made[place], seed) for place, seed in runs]  # type: ignore[arg-type]
        self.stacks, self.data = {}, None if data is None else mapped(DataPart(*data))
        return arrays

    def compute(self, arrays: Arrays, place: int, begun: int, method: str, arguments: Sequence[Any]) -> Arrays:
        """What a method gives, and the state after it."""
        if place not in self.stacks:
            self.stacks[place] = Stack([self.runs[place]], "cpu", self.data)
        stack = self.stacks[place]
        stack.begun = begun
        stack.restore(arrays)
        found = getattr(stack, method)(*arguments)
        return _named("found", found) | _named("state", stack.arrays())


def _named(part: str, arrays: Arrays) -> dict[str, np.ndarray]:
    return {f"{part}/{name}": value for name, value in arrays.items()}


def _part(arrays: Arrays, part: str) -> dict[str, np.ndarray]:
    """What :func:`_named` was given."""
    return {name.removeprefix(f"{part}/"): value for name, value in arrays.items() if name.startswith(f"{part}/")}


def main() -> None:
    """What a process does from its start to its end."""
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")  # another process has trained these networks for a while, and said what there was
    logging.getLogger("numerate").setLevel(logging.ERROR)
    processes.serve(_Served())
