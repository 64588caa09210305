"""What a stranger's code may do to the process that runs it: functions for `vitbook_workshop.limited_process.run`."""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time

LONG = [sys.executable, "-c", "import time; time.sleep(70)"]


def greets(tell, name):
    tell(doing="greeting")
    print("hello\nto", name)
    print("ö", file=sys.stderr, end="")
    tell(greeting=f"hello {name}", path=sys.path[0], input=sys.stdin.read())


def ends_python(tell, status):
    print("last words")
    os._exit(status)


def leaves_others(tell, **options):
    """A grandchild, which holds standard output and sleeps."""
    tell(pid=subprocess.Popen(LONG, **options).pid)


def leaves_a_daemon(tell):
    """A process of its own session whose parent has gone."""
    reader, writer = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(writer, str(os.getpid()).encode())
            time.sleep(70)
        os._exit(0)
    os.wait()
    tell(pid=int(os.read(reader, 20)))


def forks(tell, times):
    """Every process makes another, `times` times; all but the first sleep."""
    reader, writer = os.pipe()
    first = os.getpid()
    for _ in range(times):
        os.fork()
    os.write(writer, f"{os.getpid()}\n".encode())
    if os.getpid() != first:
        time.sleep(70)
    with os.fdopen(reader) as pids:
        tell(pids=[int(pids.readline()) for _ in range(2**times)])


def prints(tell, descriptor):
    tell(doing="printing")
    os.write(descriptor, b"first\n")
    while True:
        os.write(descriptor, b"x" * 10_000)


def starts_one_that_prints(tell):
    subprocess.run(["yes"])


def tells(tell, line):
    while True:
        tell(more="x" * 10_000) if line else os.write(_channel(), b"x" * 10_000)


def tells_nonsense(tell):
    for line in (b"[" * 100_000, b"\xff", b'"text"', b'{"doing": ["list"]}', b"9" * 5000, b'{"right": true}'):
        os.write(_channel(), line + b"\n")


def _channel() -> int:
    """The descriptor on which facts are told, which any code can find."""
    return next(number for number in range(3, 20) if os.path.exists(f"/proc/self/fd/{number}") and _is_pipe(number))


def _is_pipe(number: int) -> bool:
    return os.readlink(f"/proc/self/fd/{number}").startswith("pipe:")


def sleeps(tell):
    tell(doing=f"sleeping as {os.getpid()}")
    time.sleep(70)


def escapes(tell):
    """All that a limit could be escaped by from inside."""
    try:
        os.setsid()
    except PermissionError:
        tell(refused="setsid")
    tell(doing="escaping")
    faulthandler.cancel_dump_traceback_later()
    signal.alarm(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=time.sleep, args=(70,)).start()
    while True:
        try:
            time.sleep(70)
        except BaseException:
            pass


def goes_on(tell, steps):
    for step in range(steps):
        tell(doing=step)
        time.sleep(0.2)


def allocates(tell, size):
    try:
        bytes(size)
    except MemoryError:
        tell(refused=True)


def fails(tell):
    raise ImportError("no torch")
