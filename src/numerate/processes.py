"""Processes of this machine that answer orders, bytes for bytes, through pipes; and the form of orders and replies.

Such a process imports no script that was started: it runs one function of this package. When its pipe is closed it
ends, so none outlives the process that started it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

LENGTH = 8
"""Bytes that tell the length of a message."""
PATIENCE = 5.0
"""Seconds for a process that has closed its pipe to end."""

Process = subprocess.Popen[bytes]


def start(path: str, environment: Mapping[str, str], keep: Sequence[int] = ()) -> Process:
    """A process that calls a function of this package and finds the modules that this one finds.

    Args:
        path: ``module:function``.
        environment: what is special in its environment.
        keep: open files that it gets from this process; not on Windows.
    """
    module, _, function = path.partition(":")
    folders = [folder or os.getcwd() for folder in sys.path]
    command = [sys.executable, "-P", "-c", f"from {module} import {function}; {function}()"]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(folders)},
        start_new_session=True,
        pass_fds=keep,
    )


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer orders from the standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other side's; it ends this process
    orders, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's code prints is no reply
    while (order := receive(orders)) is not None:
        reply = answer(order)
        try:
            send(replies, reply)
        except OSError:  # nobody waits for it any more
            os._exit(1)


def send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(LENGTH, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message; None if the other side is gone."""
    head = stream.read(LENGTH)
    length = int.from_bytes(head, "little")
    data = stream.read(length) if len(head) == LENGTH else b""
    return data if len(head) == LENGTH and len(data) == length else None


def exchange(process: Process, order: bytes) -> bytes | None:
    """The answer to an order; None if the process is gone."""
    assert process.stdin
    assert process.stdout
    send(process.stdin, order)
    return receive(process.stdout)


def end(process: Process) -> int:
    """Its exit code, once it has ended; one that does not is killed."""
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe
            pipe.close()
    return process.wait()


def how_it_ended(code: int) -> str:
    """An exit code as the end of a sentence."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


# ------------------------------------------------------------ what orders and replies are made of


def joined(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A header, as JSON, and a block of bytes as one message; nothing in it is executed."""
    text = json.dumps(header).encode()
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, body])


def parted(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the block of :func:`joined`."""
    end = LENGTH + int.from_bytes(data[:LENGTH], "little")
    return json.loads(data[LENGTH:end]), data[end:]
