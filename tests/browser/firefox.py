"""Firefox without a window, by its protocol Marionette: JSON over a socket, each message after its length."""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE = 300  # seconds: a busy machine is not a broken page


def find_firefox() -> str | None:
    """The program of a Firefox, or what the environment variable FIREFOX names."""
    return os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """One page of a Firefox with a profile of its own.

    Raises TimeoutError where the browser, or what is waited for, does not come.
    """

    def __init__(self, program: str, profile: Path):
        (profile / "user.js").write_text('user_pref("marionette.port", 0);\n')  # any that is free
        command = [program, "--headless", "--marionette", "--no-remote", "--profile", profile]
        environment = os.environ | dict(HOME=str(profile), MOZ_HEADLESS="1")
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.count = 0
        port = profile / "MarionetteActivePort"
        _wait_for(lambda: port.exists() and port.read_text().strip())
        self.socket = socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")
        self._receive()  # it says who it is
        self.call("WebDriver:NewSession")
        self.call("WebDriver:SetTimeouts", script=1000 * PATIENCE, pageLoad=1000 * PATIENCE)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)

    def open(self, path: Path) -> None:
        self.call("WebDriver:Navigate", url=path.as_uri())

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.call("WebDriver:ExecuteScript", script=f"return ({expression});", args=[])["value"]

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        _wait_for(lambda: self.value(expression))

    def call(self, command: str, **parameters: object) -> Any:
        """A command of WebDriver. Raises RuntimeError where the browser refuses."""
        self.count += 1
        message = json.dumps([0, self.count, command, parameters])
        self.socket.sendall(f"{len(message.encode())}:{message}".encode())
        _, _, error, result = self._receive()
        if error:
            raise RuntimeError(f"{command}: {error['message']}")
        return result

    def _receive(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            length += self.file.read(1)
        return json.loads(self.file.read(int(length[:-1])))


def _wait_for(there: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        if time.monotonic() > end:
            raise TimeoutError(f"waited for {PATIENCE} seconds")
        time.sleep(0.1)
