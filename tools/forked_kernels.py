"""A pytest plugin: the kernels of chapters are forks of one process, which has imported what most of them import.

    PYTHONPATH=tools python -m pytest -p forked_kernels --nbval … chapters

A kernel of its own takes two to five CPU seconds for imports, the same ones in every chapter. In a fork the modules are
there but have no names: a chapter that does not import what it uses fails as it would. Elsewhere than on Linux, where
forking what torch has loaded is not safe, kernels start as ever.
"""

import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

IMPORTED = """
    torch torch._dynamo torch.testing torch.utils.flop_counter einops jaxtyping safetensors.torch
    ignite.engine ignite.handlers ignite.metrics torch.utils.tensorboard
    numpy scipy.ndimage scipy.optimize sklearn.datasets sklearn.linear_model sklearn.model_selection
    PIL.Image PIL.ImageDraw matplotlib.pyplot
    IPython.display ipykernel.ipkernel ipykernel.kernelapp ipykernel.debugger
"""
LAUNCHER = "ipykernel_launcher"
INLINE = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # matplotlib asks as it is imported, not later
PLACE = "FORKED_KERNELS"  # in the environment of all workers: the socket of the one process that forks
ended_seconds = 0.0  # CPU seconds of the forks that have ended, and of what they started


def serve(place: str) -> None:
    """Fork for every line that gives a command, its folder and environment; answer how one does for its number."""
    del sys.path[0]  # this file's folder
    with socket.socket(socket.AF_UNIX) as asked:
        asked.bind(place)
        asked.listen()
        print(flush=True)
        for name in IMPORTED.split():
            importlib.import_module(name)
        gc.freeze()  # to look at an object would copy the memory where it lies
        while sys.stdin not in select.select([asked, sys.stdin], [], [])[0]:  # it ends with who has started this
            connection, _ = asked.accept()
            with connection, connection.makefile("rw") as line:
                question = json.loads(line.readline())
                if isinstance(question, int):
                    pid, status, used = os.wait4(question, os.WNOHANG)
                    answer = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime] if pid else None
                elif answer := os.fork():
                    os.setpgid(answer, answer)  # of its own, since jupyter_client interrupts all of a kernel's group
                else:
                    break
                print(json.dumps(answer), file=line, flush=True)
        else:
            return
    become(**question)


def become(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be the kernel that this command would have started."""
    with open(os.devnull, "r+b") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    sys.modules["numpy"].random.seed()  # as random does, so that what is left to chance differs between chapters
    sys.argv = command[command.index(LAUNCHER) :]
    runpy.run_module(LAUNCHER, run_name="__main__", alter_sys=True)


class Fork:
    """What `subprocess.Popen` would be for a kernel, as far as jupyter_client asks."""

    stdin = stdout = stderr = open(os.devnull, "r+b")  # noqa: SIM115, closed by jupyter_client

    def __init__(self, command: list[str], cwd: str, env: dict[str, str], **_):
        self.returncode = None
        self.pid = self.ask({"command": command, "folder": str(cwd), "environment": env | INLINE})

    def ask(self, question):
        """Raises OSError or ValueError where the process that forks has ended."""
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(os.environ[PLACE])
            with server.makefile("rw") as line:
                print(json.dumps(question), file=line, flush=True)
                return json.loads(line.readline())

    def poll(self) -> int | None:
        """The exit code, None before the end."""
        global ended_seconds
        if self.returncode is None and (ended := self.ask(self.pid)):
            self.returncode, seconds = ended
            ended_seconds += seconds
        return self.returncode

    wait = poll  # asked for once it has ended

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def pytest_configure(config: pytest.Config) -> None:
    if sys.platform != "linux":
        return
    pytest.MonkeyPatch().setattr("jupyter_client.launcher.Popen", Fork)
    if not hasattr(config, "workerinput"):  # before there are workers
        folder = tempfile.TemporaryDirectory()
        os.environ[PLACE] = str(Path(folder.name, "kernels"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        server = subprocess.Popen([sys.executable, __file__, os.environ[PLACE]], env=os.environ | INLINE, **pipes)
        assert server.stdout
        server.stdout.readline()  # until it listens
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: server.communicate())


if __name__ == "__main__":
    serve(sys.argv[1])
