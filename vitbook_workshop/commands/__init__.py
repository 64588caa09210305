"""The command `vitbook`: arguments in, one call, an exit code out; whatever goes wrong is said in one line.

Only the standard library is imported up here: `main` then stands around every import that takes long enough for Ctrl-C.
"""

import contextlib
import gc
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence

# The extra that brings a module, by its name: all else comes with the package.
_EXTRAS = {
    **dict.fromkeys(("ignite", "sklearn", "tensorboard"), "train"),
    **dict.fromkeys(("IPython", "matplotlib", "scipy", "torchinfo"), "book"),
    **dict.fromkeys(("huggingface_hub", "tokenizers"), "hub"),
}


class Usage(Exception):
    """The command line is not one that can be understood."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code.

    0; 1 for an error; 2 for wrong usage; 130 for Ctrl-C, and 141 where nobody reads on, as shells count the signals.
    """
    gc.set_threshold(100_000)  # imports make much that stays: to look through it again and again takes 0.1 s
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")  # a file or pipe takes few characters on Windows
    warnings.formatwarning = lambda message, *_, **__: f"vitbook: {_one_line(str(message))}\n"
    try:
        code = _command(sys.argv[1:] if arguments is None else arguments)()
        sys.stdout.flush()
        return code or 0
    except Usage as error:
        code, message = 2, str(error)
    except KeyboardInterrupt as error:
        code, message = 130, _one_line(str(error)) or "stopped"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
        return 141
    except (ValueError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError) as error:
        code, message = 1, reason(error)
    print(f"vitbook: {message}", file=sys.stderr)
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
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get(str(error.name).partition(".")[0])):
        return f'this needs {error.name}, which is not installed: pip install "vitbook[{extra}]"'
    return _one_line(str(error)) or type(error).__name__


def _one_line(message: str) -> str:
    """The same words in a single line."""
    return " ".join(message.split())
