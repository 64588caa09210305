"""The reader's own model in a file: `start` writes the stubs, `check` judges what is written, `next` says what is next.

The file is run in a process of its own, with a limit of time. That process tells what it sees as lines of JSON.
"""

import ast
import contextlib
import faulthandler
import inspect
import io
import json
import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 20  # seconds for one component
WEIGHTS = "vitbook:cifar10"
_ROOT = Path(__file__).parents[1]
STUBS, KINGFISHER = _ROOT / "assets" / "my_vit.py", _ROOT / "assets" / "album" / "bird_kingfisher.jpg"
_STATES = {"right.": "right", "not attempted yet.": "to do"}  # the grader's words, and those of the list


def run(command: str, file: str | Path, photographs: Sequence[str | Path] = (), watch: bool = False) -> int:
    """`start`, `check` or `next` for the reader's file. Returns the exit status: 0 when all is right, 1 otherwise.

    photographs: for the finished model to name; watch: check again at every save, until Ctrl-C. Raises ValueError for
    `start` where the file exists; OSError for what cannot be opened.
    """
    file = Path(file)
    if command == "start":
        return _start(file)
    for path in (file, *map(Path, photographs)):
        path.open("rb").close()
    show = _show if command == "check" else _show_next
    if not watch:
        return show(file, _judged(file, photographs))
    status = 1
    with contextlib.suppress(KeyboardInterrupt):
        for _ in _saves(file):
            print(f"--- {time.strftime('%H:%M:%S')} ---")
            status = show(file, _judged(file, photographs))
            print(f"\nWatching {file}; Ctrl-C ends.", flush=True)
    return status


def _start(file: Path) -> int:
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(STUBS.read_text(encoding="utf-8").replace("my_vit.py", file.name))
    except FileExistsError:
        raise ValueError(f"{file} exists already and was left as it is: take another name, or move it away") from None
    print(f"Wrote {file}: {len(_stubs())} components to fill in. What to write first: vitbook exercises next {file}")
    return 0


def _saves(file: Path) -> Iterator[None]:
    """Once now, and once after each change of the file; an editor may remove it for a moment."""
    seen = None
    while True:
        with contextlib.suppress(OSError):
            now = (stat := file.stat()).st_mtime_ns, stat.st_size
            if now != seen:
                seen = now
                yield
        time.sleep(0.3)


# What is shown


@dataclass
class _Judged:
    """What the process told. states: by component, what the grader says; error: why it told no more."""

    states: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # where each component stands
    error: str = ""
    printed: str = ""
    answers: list[str] = field(default_factory=list)  # of the finished model
    finished: bool = False  # whether its logits are ours, and every photograph was named

    @property
    def right(self) -> int:
        return sum(state == "right." for state in self.states.values())


def _show(file: Path, judged: _Judged) -> int:
    """Print the state of each component, what is wrong with the first that is wrong, and what is next."""
    stubs = _stubs()
    for name, stub in stubs.items():
        said = judged.states.get(name, "")
        state = _STATES.get(said, "not yet" if said else "?")
        print(f"  {stub.chapter}  {name:<20}{state}")
    done = "#" * judged.right + "-" * (len(stubs) - judged.right)
    print(f"  [{done}] {judged.right} of {len(stubs)}")
    wrong = [name for name, said in judged.states.items() if said and said not in _STATES]
    if wrong:
        name = wrong[0]
        line = f" ({file.name}, line {judged.lines[name]})" if name in judged.lines else ""
        print(f"\n{name}{line}: {judged.states[name]}")
    if len(wrong) > 1:
        print(f"Begin here: it may be why others are wrong too ({', '.join(wrong[1:])}).")
    if judged.printed:
        print(f"\nYour code printed: {judged.printed}")
    if judged.error:
        print(f"\n{judged.error}")
    for answer in judged.answers:
        print(f"\n{answer}")
    if judged.right == len(stubs) and judged.finished:
        return 0
    for name in (name for name in stubs if not judged.error and not wrong and judged.states[name] != "right."):
        print(f"\nNext: {name}, {_where(file, judged, name)}. vitbook exercises next {file} says what it does.")
        break
    return 1


def _show_next(file: Path, judged: _Judged) -> int:
    """Print what the first component that is not right has to do."""
    stubs = _stubs()
    for name, stub in stubs.items():
        if not judged.error and judged.states[name] != "right.":
            print(f"{judged.right} of {len(stubs)} right. Next: {name}, {_where(file, judged, name)}.\n")
            print(f"{name}({', '.join(stub.arguments)})\n{stub.text}")
            if judged.states[name] not in _STATES:
                print(f"\nIt is not right yet: vitbook exercises check {file} says why.")
            return 1
    return _show(file, judged)


def _where(file: Path, judged: _Judged, name: str) -> str:
    line = f"{file.name}, line {judged.lines[name]}" if name in judged.lines else "not in your file"
    return f"{line}; read chapter {_stubs()[name].chapter}"


@dataclass(frozen=True)
class _Stub:
    """What the file of stubs says of a component."""

    arguments: list[str]  # of the function, or of the class when it is called
    is_class: bool
    chapter: int
    text: str


def _stubs() -> dict[str, _Stub]:
    stubs = {}
    for node in ast.parse(STUBS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            is_class, text = isinstance(node, ast.ClassDef), ast.get_docstring(node)
            function = next(inner for inner in node.body if isinstance(inner, ast.FunctionDef)) if is_class else node
            arguments = [argument.arg for argument in function.args.args][is_class:]
            stubs[node.name] = _Stub(arguments, is_class, int(re.findall(r"Chapter (\d+)", text)[0]), text)
    return stubs


# The process beside: started here

# This very package, wherever it lies; of what else lies there, nothing hides what Python would import.
_RUN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import vitbook
del sys.path[0]
from vitbook.exercises.reader import work
work(*sys.argv[1:])
"""


def _judged(file: Path, photographs: Sequence[str | Path]) -> _Judged:
    """Judge the file in a process of its own."""
    command = [sys.executable, "-P", "-c", _RUN, str(_ROOT.parent), str(LIMIT), str(file), *map(str, photographs)]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace")
    judged, told, doing = _Judged(), [], "the file itself"
    for line in process.stdout.splitlines():
        with contextlib.suppress(ValueError):
            told.append(json.loads(line))
    for facts in told:
        doing = facts.pop("doing", doing)
        judged.states |= facts.pop("states", {})
        for name, value in facts.items():
            setattr(judged, name, value)
    if process.returncode and not judged.error:
        judged.error = _died(file, doing, process)
    return judged


def _died(file: Path, doing: str, process: subprocess.CompletedProcess) -> str:
    """Why the process told nothing more: most often it was at one thing for too long."""
    if "Timeout (" not in process.stderr:
        last = process.stderr.strip().splitlines()[-1:] or [""]
        return f"{doing}: Python itself stopped, with exit status {process.returncode}. {last[0]}".rstrip()
    name = str(file.resolve()).encode("ascii", "backslashreplace").decode()
    frames = re.findall(r'File "(.*)", line (\d+)', process.stderr)
    line = next((int(number) for path, number in frames if path == name), None)
    code = file.read_text(encoding="utf-8", errors="replace").splitlines()[line - 1].strip() if line else ""
    place = f"\n  {file.name}, line {line}: {code}" if line else ""
    return f"{doing}: stopped after {LIMIT} s. Is there a loop without an end?{place}"


# The process beside: what runs in it


class _Head(io.TextIOBase):
    """Keeps the beginning of what is printed, and counts the lines."""

    def __init__(self):
        self.text, self.lines = "", 0

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        if len(self.text) < 500:
            self.text += text
        return len(text)

    def __str__(self) -> str:
        first = self.text.strip().partition("\n")[0][:60]
        more = f" … ({self.lines} lines)" if self.lines > 1 else ""
        return f"{first}{more}" if self.text.strip() else ""


def work(limit: str, file: str, *photographs: str) -> None:
    """Run the reader's file and judge its components; tell it on what was standard output, line by line."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def tell(**facts: object) -> None:
        print(json.dumps(facts), file=channel, flush=True)
        if "doing" in facts:
            faulthandler.dump_traceback_later(float(limit), exit=True, file=sys.__stderr__)

    from vitbook.exercises.my_vit import COMPONENTS  # takes seconds, which are not the reader's

    printed = sys.stdout = _Head()
    sys.stderr = _Head()
    try:
        _judge_file(Path(file), [Path(name) for name in photographs], COMPONENTS, tell)
    except SystemExit as stop:
        tell(error=_at_the_line("Your code ends Python itself; take out exit() or sys.exit().", stop))
    except Exception as error:
        tell(error=_at_the_line("Your file stops with an error:", error))
    tell(printed=str(printed))
    channel.flush()
    os._exit(0)  # nothing that the reader registered, and no thread of theirs, keeps the process


def _judge_file(file: Path, photographs: list[Path], components: dict, tell: Callable) -> None:
    from vitbook.exercises.grading import judge

    tell(doing=file.name)
    source, path = file.read_bytes(), str(file.resolve())
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        code = f": {error.text.strip()}" if error.text else ""
        return tell(error=f"{file.name}, line {error.lineno or 1}{code}\n  {type(error).__name__}: {error.msg}")
    except ValueError as error:
        return tell(error=f"{file.name} is no Python file: {error}")
    named = [node for node in tree.body if hasattr(node, "name")]
    tell(lines={node.name: node.lineno for node in named})
    module = sys.modules["my_vit"] = types.ModuleType("my_vit")  # whatever the file is called, even torch.py
    module.__file__ = path
    sys.path.insert(0, str(file.resolve().parent))
    exec(compile(tree, path, "exec"), vars(module))

    states = {}
    for name, stub in _stubs().items():
        tell(doing=name)
        theirs = getattr(module, name, None)
        try:
            states[name] = _misses(name, stub, theirs) or judge(components[name], theirs)
        except SystemExit as stop:
            states[name] = _at_the_line("not yet: your code ends Python itself; take out exit().", stop)
        tell(states={name: states[name]})
    if all(state == "right." for state in states.values()):
        tell(doing="the trained weights")
        tell(**_answers(module.ViT, photographs))


def _misses(name: str, stub: _Stub, theirs: object) -> str:
    """What is missing before there is anything to judge: the definition, its kind, its arguments."""
    from torch import nn

    kind = "class" if stub.is_class else "function"
    if theirs is None:
        return f"not yet: the file has no {kind} {name}({', '.join(stub.arguments)})."
    if stub.is_class and not (isinstance(theirs, type) and issubclass(theirs, nn.Module)):
        return f"not yet: expected a class {name}(nn.Module)."
    if not callable(theirs):
        return f"not yet: expected a function {name}, got {theirs!r:.60}."
    asked = [(name, theirs, stub.arguments)]
    asked += [(f"{name}.forward", theirs.forward, ["self", "x"])] if stub.is_class else []
    for called, function, arguments in asked:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # something compiled, which tells no signature
            continue
        try:
            signature.bind(*arguments)
        except TypeError:
            return f"not yet: {called} should take ({', '.join(arguments)}), and takes {signature}."
    return ""


def _answers(theirs: type, photographs: list[Path]) -> dict:
    """The trained weights in the reader's model: whether its logits are ours, and what it sees in photographs."""
    import torch

    from vitbook._support.images import read_image
    from vitbook.exercises.modules import load
    from vitbook.exercises.my_vit import build_vit
    from vitbook.pretrained import load_pretrained

    trained = load_pretrained(WEIGHTS)
    mine = build_vit(theirs, trained.model).eval()
    try:
        load(mine, trained.model.state_dict())
    except ValueError as error:
        return {"answers": [f"The weights {WEIGHTS} do not fit your ViT: {error}."]}
    answers, finished = [], True
    for path in (KINGFISHER, *photographs):
        try:
            images = trained.preprocessing(read_image(path))
        except (ValueError, OSError) as error:
            answers, finished = [*answers, str(error)], False
            continue
        with torch.inference_mode():
            got, expected = mine(images)[0], trained.model(images)[0]
        gap = float((got - expected).abs().max())
        if not gap < 1e-3:
            finished = False
            answers.append(f"Your logits of {path.name} differ from the package's by {gap:.2g}; expected below 0.001.")
            break
        shares = got.softmax(dim=-1).topk(3)
        named = ", ".join(
            f"{trained.class_names[i]} {p:.1%}" for p, i in zip(*(t.tolist() for t in shares), strict=True)
        )
        if path is KINGFISHER:
            answers.append(f"All right. With the weights {WEIGHTS} your logits differ by {gap:.1g} from the package's.")
        answers.append(f"Your model sees in {path.name}: {named}")
    return {"answers": answers, "finished": finished}


def _at_the_line(what: str, error: BaseException) -> str:
    """What happened, and two lines: where in the reader's file, and the exception."""
    from vitbook.exercises.grading import stopped

    return "\n  ".join([what, *stopped(error)])
