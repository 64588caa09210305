"""The reader's own model in a file: `start` writes the stubs, `check` judges what is written, `next` says what is next.

The file runs in a process of its own, with limits.
"""

import ast
import contextlib
import inspect
import io
import os
import re
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from vitbook._common.files import ASSETS, read_whole, write_whole
from vitbook_workshop import limited_process

LIMITS = limited_process.Limits(600, step=20, printed=1_000_000, memory=2**33)  # a step is a component
WEIGHTS = "vitbook:cifar10_plain"
STUBS, KINGFISHER = Path(__file__).parents[1] / "start" / "my_vit.py", ASSETS / "album" / "bird_kingfisher.jpg"
_STATES = {"right.": "right", "not attempted yet.": "to do", "": "?"}  # the grader's words, and those of the list


@dataclass
class _Report:
    """What is known of the reader's file."""

    doing: str = ""  # the last step
    states: dict[str, str] = field(default_factory=dict)  # by component, what the grader says
    lines: dict[str, int] = field(default_factory=dict)  # where each component is defined
    error: str = ""  # why nothing more is known
    printed: str = ""
    answers: list[str] = field(default_factory=list)  # of the finished model
    finished: bool = False  # whether its logits are the package's, and every photograph was named


class _Stub(NamedTuple):
    """What the file of stubs says of a component."""

    arguments: list[str]  # of the function, or of the class when it is called
    is_class: bool
    chapter: int
    text: str


def run(command: str, file: str | Path, photographs: Sequence[str | Path] = (), watch: bool = False) -> int:
    """`start`, `check` or `next` for the reader's file. Returns the exit status: 0 when all is right, 1 otherwise.

    photographs: for the finished model to name; watch: check again at every save, until Ctrl-C. Raises ValueError for
    `start` where the file exists, and for what is no file; OSError for what cannot be opened or written.
    """
    file = Path(file)
    if command == "start":
        return _start(file)
    for path in (file, *map(Path, photographs)):
        limited_process.ordinary_file(path)
    show = _show if command == "check" else _show_next
    if not watch:
        return show(file, _examine(file, photographs))
    status = 1
    with contextlib.suppress(KeyboardInterrupt):
        for _ in _saves(file):
            print(f"--- {time.strftime('%H:%M:%S')} ---")
            status = show(file, _examine(file, photographs))
            print(f"\nWatching {file}; Ctrl-C ends.", flush=True)
    return status


def _start(file: Path) -> int:
    if os.path.lexists(file):
        raise ValueError(f"{file} exists already and was left as it is: take another name, or move it away")
    write_whole(file, STUBS.read_bytes().replace(b"my_vit.py", os.fsencode(file.name)))
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


def _stubs() -> dict[str, _Stub]:
    stubs = {}
    for node in ast.parse(STUBS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            is_class, text = isinstance(node, ast.ClassDef), ast.get_docstring(node)
            function = next(inner for inner in node.body if isinstance(inner, ast.FunctionDef)) if is_class else node
            arguments = [argument.arg for argument in function.args.args][is_class:]
            stubs[node.name] = _Stub(arguments, is_class, int(re.search(r"Chapter (\d+)", text)[1]), text)
    return stubs


# What is printed


def _show(file: Path, report: _Report) -> int:
    """Print the state of each component, what is wrong with the first that is wrong, and what is next."""
    stubs, states = _stubs(), report.states
    for name, stub in stubs.items():
        print(f"  {stub.chapter}  {name:<20}{_STATES.get(states.get(name, ''), 'not yet')}")
    to_do = [name for name in stubs if states.get(name) != "right."]
    right = len(stubs) - len(to_do)
    print(f"  [{'#' * right:-<{len(stubs)}}] {right} of {len(stubs)}")
    wrong = [name for name in states if states[name] not in _STATES]
    if wrong:
        line = f" ({file.name}, line {report.lines[wrong[0]]})" if wrong[0] in report.lines else ""
        print(f"\n{wrong[0]}{line}: {states[wrong[0]]}")
    if len(wrong) > 1:
        print(f"Begin here: it may be why others are wrong too ({', '.join(wrong[1:])}).")
    if report.printed:
        print(f"\nYour code printed: {report.printed}")
    for text in filter(None, (report.error, *report.answers)):
        print(f"\n{text}")
    if to_do and not wrong and not report.error:
        print(f"\nNext: {_where(file, report, to_do[0])}. vitbook exercises next {file} says what it does.")
    return int(bool(to_do) or not report.finished)


def _show_next(file: Path, report: _Report) -> int:
    """Print what the first component that is not right has to do."""
    stubs = _stubs()
    to_do = [name for name in stubs if report.states.get(name) != "right."]
    if report.error or not to_do:
        return _show(file, report)
    name, stub = to_do[0], stubs[to_do[0]]
    print(f"{len(stubs) - len(to_do)} of {len(stubs)} right. Next: {_where(file, report, name)}.\n")
    print(f"{name}({', '.join(stub.arguments)})\n{stub.text}")
    if report.states[name] not in _STATES:
        print(f"\nIt is not right yet: vitbook exercises check {file} says why.")
    return 1


def _where(file: Path, report: _Report, name: str) -> str:
    line = f"{file.name}, line {report.lines[name]}" if name in report.lines else "not in your file"
    return f"{name}, {line}; read chapter {_stubs()[name].chapter}"


def _examine(file: Path, photographs: Sequence[str | Path]) -> _Report:
    """Judge the file in a process of its own."""
    asked = dict(file=str(file), photographs=[str(path) for path in photographs])
    outcome = limited_process.run(f"{__name__}:judge_here", asked, LIMITS)
    known = vars(_Report())
    told = {name: fact for name, fact in outcome.facts.items() if type(fact) is type(known.get(name))}
    report = _Report(**told)
    if outcome.ended and not report.error:
        report.error = f"{report.doing or 'before your file'}: {outcome.ended}."
        if outcome.late:
            report.error += f" Is there a loop without an end?{_place_in(file, outcome.where)}"
        elif outcome.last:
            report.error += f" The last that was printed: {outcome.last[:60]}"
    return report


def _place_in(file: Path, traceback: str) -> str:
    """The innermost line of the file in a traceback, as text that follows; nothing, where there is none."""
    name = str(file.resolve()).encode("ascii", "backslashreplace").decode()
    for path, number in re.findall(r'File "(.*)", line (\d+)', traceback):
        if path == name:
            code = read_whole(file).decode(errors="replace").splitlines()[int(number) - 1].strip()
            return f"\n  {file.name}, line {number}: {code}"
    return ""


# What runs in that process


class _Beginning(io.StringIO):
    """Keeps the beginning of what is printed, and passes all of it on."""

    def __init__(self, on: TextIO):
        super().__init__()
        self.on = on

    def write(self, text: str) -> int:
        super().write(text[: max(0, 500 - self.tell())])
        return self.on.write(text)


def judge_here(tell: Callable[..., None], file: str, photographs: list[str]) -> None:
    """Run the reader's file and judge its components; tell what a `_Report` holds."""
    from vitbook_workshop.exercises.my_vit.components import COMPONENTS  # takes seconds, which are not the reader's

    printed, warned = _Beginning(sys.stdout), _Beginning(sys.stderr)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(warned):
        try:
            _judge_file(Path(file), [Path(name) for name in photographs], COMPONENTS, tell)
        except SystemExit as stop:
            tell(error=_at_the_line("Your code ends Python itself; take out exit() or sys.exit().", stop))
        except Exception as error:
            tell(error=_at_the_line("Your file stops with an error:", error))
    first, *more = printed.getvalue().strip().splitlines() or [""]
    tell(printed=f"{first[:60]}{' …' if more else ''}")


def _judge_file(file: Path, photographs: list[Path], components: dict, tell: Callable) -> None:
    from vitbook_workshop.exercises.grader.judging import judge

    tell(doing=file.name)
    path = str(file.resolve())
    try:
        tree = ast.parse(file.read_bytes(), path)
    except SyntaxError as error:
        code = f": {error.text.strip()}" if error.text else ""
        return tell(error=f"{file.name}, line {error.lineno or 1}{code}\n  {type(error).__name__}: {error.msg}")
    except ValueError as error:
        return tell(error=f"{file.name} is no Python file: {error}")
    tell(lines={node.name: node.lineno for node in tree.body if hasattr(node, "name")})
    module = sys.modules["my_vit"] = types.ModuleType("my_vit")  # whatever the file is called, even torch.py
    module.__file__ = path
    sys.path.insert(0, str(file.resolve().parent))
    exec(compile(tree, path, "exec"), vars(module))

    states: dict[str, str] = {}
    for name, stub in _stubs().items():
        tell(doing=name)
        theirs = getattr(module, name, None)
        try:
            states[name] = _what_is_missing(name, stub, theirs) or str(judge(components[name], theirs))
        except SystemExit as stop:
            states[name] = _at_the_line("not yet: your code ends Python itself; take out exit().", stop)
        tell(states=states)
    if set(states.values()) == {"right."}:
        tell(doing="the trained weights")
        answers, finished = _answers(module.ViT, photographs)
        tell(answers=answers, finished=finished)


def _what_is_missing(name: str, stub: _Stub, theirs: object) -> str:
    """What is missing before there is anything to judge: the definition, its kind, its arguments."""
    from torch import nn

    kind = "class" if stub.is_class else "function"
    if theirs is None:
        return f"not yet: the file has no {kind} {name}({', '.join(stub.arguments)})."
    if stub.is_class and not (isinstance(theirs, type) and issubclass(theirs, nn.Module)):
        return f"not yet: expected a class {name}(nn.Module)."
    if not callable(theirs):
        return f"not yet: expected a function {name}, got {theirs!r:.60}."
    calls = [(name, theirs, stub.arguments)]
    calls += [(f"{name}.forward", theirs.forward, ["self", "x"])] if stub.is_class else []
    for called, function, arguments in calls:
        with contextlib.suppress(ValueError):  # something compiled, which has no signature
            signature = inspect.signature(function)
            try:
                signature.bind(*arguments)
            except TypeError:
                return f"not yet: {called} should take ({', '.join(arguments)}), and takes {signature}."
    return ""


def _answers(theirs: type, photographs: list[Path]) -> tuple[list[str], bool]:
    """What the reader's model says of photographs with the trained weights, and whether all went well."""
    import torch

    from vitbook._common.images import read_image
    from vitbook.pretrained import load_pretrained
    from vitbook_workshop.exercises.grader.module_attempts import load
    from vitbook_workshop.exercises.my_vit.components import build_vit

    trained = load_pretrained(WEIGHTS)
    mine = build_vit(theirs, trained.model).eval()
    try:
        load(mine, trained.model.state_dict())
    except ValueError as error:
        return [f"The weights {WEIGHTS} do not fit your ViT: {error}."], False
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
            wrong = f"Your logits of {path.name} differ from the package's by {gap:.2g}; expected below 0.001."
            return [*answers, wrong], False
        if path is KINGFISHER:
            answers.append(f"All right. With the weights {WEIGHTS} your logits differ by {gap:.1g} from the package's.")
        shares = zip(*(t.tolist() for t in got.softmax(dim=-1).topk(3)), strict=True)
        named = ", ".join(f"{trained.class_names[i]} {share:.1%}" for share, i in shares)
        answers.append(f"Your model sees in {path.name}: {named}")
    return answers, finished


def _at_the_line(what: str, error: BaseException) -> str:
    """What happened, and two lines: where in the reader's file, and the exception."""
    from vitbook_workshop.exercises.grader.judging import error_lines

    return "\n  ".join([what, *error_lines(error)])
