"""Which exercises a notebook has solved, read from the outputs of its check cells. Nothing is executed."""

import ast
import json
from os import PathLike
from pathlib import Path

from vitbook.exercises.grading import NOT_ATTEMPTED, RIGHT

_STATES = {RIGHT: "solved", NOT_ATTEMPTED: "not attempted", "not yet": "not yet"}


def progress(notebook: str | PathLike) -> dict[str, str]:
    """The state of each exercise that a notebook checks: "solved", "not yet", "not attempted" or "not run".

    The outputs are those stored in the file: save the notebook first. Raises ValueError for a file that is not one.
    """
    try:
        cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
        states = {}
        for cell in (cell for cell in cells if cell["cell_type"] == "code"):
            printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
            states |= {name: _state(name, printed) for name in checked("".join(cell["source"]))}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{notebook} is no Jupyter notebook of format 4") from None
    return states


def checked(source: str) -> list[str]:
    """The names of the exercises that a cell checks."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a magic command, or nothing that can be parsed
        return []
    names = [call.args[0] for call in calls if getattr(call.func, "id", "") == "check"]
    return [name.value for name in names if isinstance(name, ast.Constant)]


def _state(name: str, printed: str) -> str:
    """What the output of a check cell says of an exercise, the last time it says something."""
    lines = [line.removeprefix(f"{name}: ") for line in printed.splitlines() if line.startswith(f"{name}: ")]
    return next((state for start, state in _STATES.items() if lines and lines[-1].startswith(start)), "not run")
