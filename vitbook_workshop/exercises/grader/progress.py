"""Which exercises a notebook has solved, read from the outputs of its check cells. Nothing is executed."""

import json
import re
from os import PathLike
from pathlib import Path

from vitbook_workshop.exercises.grader.judging import NOT_ATTEMPTED, RIGHT

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
    return re.findall(r"""^\s*check\(\s*["']([\w.]+)["']""", source, re.M)


def _state(name: str, printed: str) -> str:
    """What the output of a check cell says of an exercise, the last time it says something."""
    answers = re.findall(rf"^{re.escape(name)}: (.*)", printed, re.M) or [""]
    return next((state for start, state in _STATES.items() if answers[-1].startswith(start)), "not run")
