"""A function in a Python process of its own, which may then run code of which nothing is known.

The parent alone enforces the limits. It hears lines of JSON, and however the process ends, so does all that it started.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from vitbook._common.files import refuse_pipes

_GRACE = 2  # seconds beyond a step's limit in which the process may say where it is, before it is ended


@dataclass(frozen=True)
class Limits:
    """What a process may take before it is ended."""

    seconds: float  # in all, of a clock on the wall
    step: float | None = None  # seconds for one step; the first begins when the process tells what it is doing
    printed: int = 10_000_000  # bytes, by whatever it starts, too
    told: int = 10_000_000  # bytes
    memory: int | None = None  # bytes that one process may write to; only Linux keeps to it


@dataclass
class Outcome:
    """What is known of a process that is over."""

    facts: dict[str, Any] = field(default_factory=dict)  # what it told, the latest under each name
    ended: str = ""  # how it came to an end before its function returned, in words
    late: bool = False  # whether that was for the time it took
    where: str = ""  # then its traceback, if it could still give one
    printed: str = ""  # the beginning of what it printed, on either stream
    last: str = ""  # the last line of that


def ordinary_file(path: Path) -> Path:
    """The path of a file that can be read. Raises ValueError for a folder, pipe or device, else OSError."""
    refuse_pipes(path)
    if path.is_dir():
        raise ValueError(f"{path} must be a file, got a folder")
    path.open("rb").close()
    return path


def run(
    work: str,
    asked: dict[str, Any],
    limits: Limits,
    doing: Callable[[str], object] | None = None,
    facts: dict[str, Any] | None = None,
) -> Outcome:
    """Call a function in a new process, and wait until it returns or comes to another end.

    work: its name, "package.module:function". It is called with `tell` and with what is asked, which goes as JSON.
    tell(**facts) gives facts to the parent, as JSON; a new value of tell(doing="…") begins a step. doing: is called
    here with that value; facts: gets what is told as it comes, for whoever is interrupted. The process has the
    environment and the import path of this one, no input, and a session of its own: Ctrl-C reaches this process alone,
    which ends the other.
    """
    mark = f"VITBOOK_PROCESS_{secrets.token_hex(8)}"
    packages = str(Path(__file__).parents[1])
    begin = dict(work=work, asked=asked, path=[packages, *filter(None, sys.path)])
    begin |= dict(step=limits.step or limits.seconds, memory=limits.memory)
    # threads that wait without work take the time of those that work, wherever something else runs beside
    environment = {"OMP_WAIT_POLICY": "passive"} | os.environ | {mark: "1"}
    command = [sys.executable, "-P", "-c", _BEGIN, json.dumps(begin)]
    pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process, began = subprocess.Popen(command, env=environment, **pipes, **_ALONE), 0
    events: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
    heard, streams = _Heard(facts), ((process.stdout, "told", limits.told), (process.stderr, "printed", limits.printed))
    listeners = [threading.Thread(target=_listen, args=(*one, events), daemon=True) for one in streams]
    waiter = threading.Thread(target=lambda: events.put(("exit", str(process.wait()).encode())), daemon=True)
    try:
        if Path("/proc/self/stat").exists():
            began = _state(Path(f"/proc/{process.pid}"))[1]
        for thread in (*listeners, waiter):
            thread.start()
        late, ended = _follow(events, heard, limits, doing)
    finally:
        _end(process, mark, began)
    for thread in listeners:
        thread.join(2)  # at once, but for a pipe that is held by what could not be found
    while not events.empty():
        heard.take(*events.get())
    if heard.where and not late:  # it ended itself, an instant earlier
        late, ended = True, f"stopped after {begin['step']:g} s"
    printed, last = heard.head.strip(), heard.tail.strip().splitlines()[-1:] or [""]
    facts, ended = heard.facts, "" if heard.returned else ended
    return Outcome(facts, ended, bool(ended) and late, heard.where, printed, last[0])


def _follow(events: queue.SimpleQueue, heard: "_Heard", limits: Limits, doing: Callable | None) -> tuple[bool, str]:
    """Take in what comes until the function has returned or there is a reason to end the process.

    Returns whether it was late, and the reason.
    """
    end, end_of_step, step = time.monotonic() + limits.seconds, float("inf"), None
    while not heard.returned:
        left = min(end, end_of_step) - time.monotonic()
        if left <= 0:
            return True, f"stopped after {limits.seconds if end <= end_of_step else limits.step:g} s"
        try:
            kind, content = events.get(timeout=min(left, 0.5))  # Windows hears Ctrl-C in between
        except queue.Empty:
            continue
        heard.take(kind, content)
        if kind == "exit":
            return False, f"Python itself stopped, with exit status {content.decode()}"
        if kind == "too much":
            return False, content.decode()
        if heard.facts.get("doing") != step:
            step = heard.facts["doing"]
            if limits.step:
                end_of_step = time.monotonic() + limits.step + _GRACE
            if doing:
                doing(str(step))
    return False, ""


class _Heard:
    """What has come from a process, in order."""

    def __init__(self, facts: dict[str, Any] | None):
        self.facts: dict[str, Any] = {} if facts is None else facts
        self.where, self.head, self.tail, self.returned, self._line = "", "", "", False, b""

    def take(self, kind: str, content: bytes) -> None:
        """More of what was told or printed; anything else is passed over."""
        if kind == "printed":
            text = content.decode(errors="replace")
            self.head, self.tail = (self.head + text)[:2000], (self.tail + text)[-2000:]
        elif kind == "told":
            *lines, self._line = (self._line + content).split(b"\n")
            for line in lines:
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict):
            self.returned |= bool(said.pop("", False))
            self.facts |= said
        elif self.where or line.startswith(b"Timeout ("):  # faulthandler's
            self.where += f"{line.decode(errors='replace')}\n"


def _listen(stream: IO[bytes], kind: str, limit: int, events: queue.SimpleQueue) -> None:
    """Put what comes from a stream into the queue, up to a limit. What comes beyond it is thrown away."""
    left = limit
    with stream:
        while content := stream.read1(1 << 16):
            if left >= 0:
                events.put((kind, content))
                left -= len(content)
                if left < 0:
                    events.put(("too much", f"stopped: it {kind} more than {limit:,} bytes".encode()))


# The end of a process

# In a session of its own, on Windows in a group of its own: a Ctrl-C reaches it only through its parent.
_ALONE = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}


def _end(process: subprocess.Popen, mark: str, began: int) -> None:
    """End a process and all that it started: its group, and what has left the group as far as it can be found."""
    if os.name != "posix":
        if process.poll() is None:  # with its descendants, of which Windows knows no more when it has ended
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left; on a Mac, nobody alive
            os.killpg(process.pid, signal.SIGKILL)
        for _ in range(100):  # it may start others as fast as they are found
            others, more = _marked(mark, began)
            for other in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
            if not (others or more):
                break
            time.sleep(0.01)
    process.wait()


def _marked(mark: str, began: int) -> tuple[list[int], bool]:
    """The processes with this name in their environment, where the system tells (Linux).

    Also whether there may be more: one that has begun since and has no environment yet may be getting it now.
    """
    found, more = [], False
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            environment = (place / "environ").read_bytes()
            if f"{mark}=".encode() in environment:
                found.append(int(place.name))
            elif not environment:
                state, began_then = _state(place)
                more |= state != "Z" and began_then >= began
    return found, more


def _state(place: Path) -> tuple[str, int]:
    """The state of a process, as "Z" for one that has ended, and when it began, in ticks of the system's clock."""
    fields = (place / "stat").read_text(errors="replace").rpartition(") ")[2].split()
    return fields[0], int(fields[19])


# What runs in the process

# These very packages, wherever they lie; of what else lies there, nothing hides what Python would import.
_BEGIN = """
import json, sys
begin = json.loads(sys.argv.pop())
sys.path[:] = begin.pop("path")
import vitbook, vitbook_workshop
del sys.path[0]
from vitbook_workshop.limited_process import _begin
_begin(**begin)
"""


def _begin(work: str, asked: dict[str, Any], step: float, memory: int | None) -> None:
    """Call the function; tell of it on what was standard output."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the code prints, and what it starts
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    if memory and os.name == "posix":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    def tell(**facts: object) -> None:
        print(json.dumps(facts), file=channel, flush=True)
        if "doing" in facts:  # to say where it is when its time is over, and to end even where no parent is left
            faulthandler.dump_traceback_later(step, exit=True, file=channel)

    module, _, function = work.partition(":")
    getattr(importlib.import_module(module), function)(tell, **asked)
    sys.__stdout__.flush()
    tell(**{"": True})  # it has returned
    time.sleep(_GRACE)  # the parent ends it, while the system still knows what it has started
    os._exit(0)  # nothing that the code registered, and no thread of it, keeps the process
