"""The command `vitbook`: arguments in, one call, an exit code out; whatever goes wrong is said in one line.

Only the standard library is imported up here: `main` then stands around every import that takes long enough for Ctrl-C.
"""

import contextlib
import gc
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence

# The extra that brings a module, by its name: all else comes with the package.
_EXTRAS = {
    **dict.fromkeys(("ignite", "sklearn", "tensorboard"), "train"),
    **dict.fromkeys(("IPython", "matplotlib", "scipy", "torchinfo"), "book"),
    **dict.fromkeys(("huggingface_hub", "tokenizers"), "hub"),
    **dict.fromkeys(("pi_heif", "tifffile"), "images"),
}


class Usage(Exception):
    """The command line is not one that can be understood."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code.

    0; 1 for an error; 2 for wrong usage; 130 for Ctrl-C, and 141 where nobody reads on, as shells count the signals.
    """
    gc.set_threshold(100_000)  # imports make much that stays: to look through it again and again takes 0.1 s
    stopped: list[bool] = []

    def stop(*_: object) -> None:
        stopped.append(True)
        raise KeyboardInterrupt

    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
    heard = sys.stdout is not None
    for name in ("stdin", "stdout", "stderr"):  # a closed one is None, and the next file opened would take its place
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")  # a file or pipe takes few characters on Windows
    warnings.formatwarning = lambda message, *_, **__: f"vitbook: {_one_line(str(message))}\n"
    try:
        code = _command(sys.argv[1:] if arguments is None else arguments)()
        sys.stdout.flush()
        message = "" if heard else "standard output is closed, and what this would have said is lost"
        code = code or int(not heard)
    except Usage as error:
        code, message = 2, str(error)
    except KeyboardInterrupt as error:
        code, message = 130, _one_line(str(error)) or "stopped"
    except BrokenPipeError:
        code, message = 141, ""
    except (ValueError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError) as error:
        code, message = (130, "stopped") if stopped else (1, reason(error))
    except Exception:
        if not stopped:  # an import that is interrupted may fail in any way, some of them later
            raise
        code, message = 130, "stopped"
    if arguments is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: nothing is left to be stopped
    if message:
        print(f"vitbook: {message}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
    return code


def _command(arguments: Sequence[str]) -> Callable[[], int | None]:
    """The call that the arguments describe. Raises Usage where they describe none."""
    import tyro

    from vitbook._common.suggestions import unknown
    from vitbook_workshop.commands.command_line import COMMANDS, PROGRAM

    name, *options = arguments or [""]
    if name in ("-h", "--help"):
        rows = [f"  {name:<11}{command.__doc__}" for name, command in COMMANDS.items()]
        about = "Train Vision Transformers, test them and use them."
        foot = f"{PROGRAM} COMMAND --help lists a command's options."
        return lambda: print(f"usage: {PROGRAM} COMMAND [OPTIONS]\n\n{about}\n", *rows, f"\n{foot}", sep="\n")
    if name == "--version":
        return lambda: print(_versions())
    if name not in COMMANDS:
        what = unknown("command", name, COMMANDS) if name else f"a command is needed: {', '.join(COMMANDS)}."
        raise Usage(f"{what} See {PROGRAM} --help")
    if any(re.fullmatch(r"(--[\w-]+=)?", option) for option in options):
        raise Usage("an argument is empty; is a variable of the shell not set?")
    command, said = COMMANDS[name], io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            # The defaults of `train` depend on some of its options.
            default = {"default": command.defaults(options)} if hasattr(command, "defaults") else {}
            flat = (tyro.conf.OmitArgPrefixes,)
            return tyro.cli(command, prog=f"{PROGRAM} {name}", args=options, config=flat, **default)
    except SystemExit as stop:
        if not stop.code:  # help was asked for and given
            raise
        plain = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())  # in a terminal it has colors
        rows = [row.strip(" │|") for row in plain.split("For full helptext")[0].splitlines()[1:]]
        message = _one_line(" ".join(row for row in rows if row.strip("─-")))  # without the box around it
        message = re.sub(r"^Error parsing [A-Za-z._]+: ", "", message)  # the group of the options, which nobody typed
        raise Usage(f"{message} (see {PROGRAM} {name} --help)") from None
    except (ValueError, OSError) as error:
        raise Usage(reason(error)) from None


def _versions() -> str:
    """What a report of a fault begins with."""
    import importlib.metadata
    import platform

    import vitbook

    torch = importlib.metadata.version("torch")
    return f"vitbook {vitbook.__version__}, torch {torch}, Python {platform.python_version()}"


def reason(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, OSError) and error.filename:
        return _one_line(f"{error.strerror}: {os.fsdecode(error.filename)}")
    if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get(str(error.name).partition(".")[0])):
        return f'this needs {error.name}, which is not installed: pip install "vitbook[{extra}]"'
    return _one_line(str(error)) or type(error).__name__


def _one_line(message: str) -> str:
    """The same words in a single line."""
    return plain(" ".join(message.split()))


def plain(name: str) -> str:
    """A name with escapes for what no terminal or page should be given: control codes, bytes that are no UTF-8."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name)
