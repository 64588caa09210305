"""Every chapter keeps every rule of notebook_lint.py, and every rule rejects a chapter that breaks it."""

import base64
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import notebook_lint as lint
import notebooks as notebook_tool
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

Change = Callable[[lint.Chapter], object]
each_rule = pytest.mark.parametrize("rule", lint.RULES, ids=lambda rule: rule.__name__)

SOLUTION = "<details>\n<summary>Solution</summary>\n\nLower triangle:\n\n```python\nx = 1\n```\n\n</details>"
CAPTION = "Which query looks at which key? Weights from 0 to 1."
ALT = "A grid of four by four squares whose diagonal is the darkest."
TEXT = "## Rows\n\nA row of $QK^\\top$, see [rows](#rows).\n\n$$\na = b \\tag{1}\n$$\n\n> **Note.** Short."


@each_rule
@pytest.mark.parametrize("path", lint.chapter_paths(), ids=lambda path: path.stem)
def test_chapter(path: Path, rule: Callable[[lint.Chapter], list[str]]) -> None:
    complaints = rule(lint.load(path))
    assert not complaints, f"{path.name}\n  " + "\n  ".join(complaints)


def printed(text: str) -> list:
    return [new_output("stream", name="stdout", text=text)]


def good_chapter() -> lint.Chapter:
    """A chapter that keeps every rule: cell 4 is text, 5 prints, 6 draws."""
    image = {"image/png": base64.b64encode(b"image").decode(), "text/plain": "<Figure size 640x480 with 1 Axes>"}
    figure = {"mystnb": {"figure": {"caption": CAPTION, "name": "fig-weights"}, "image": {"alt": ALT}}}
    cells = [
        new_markdown_cell("# What is looked at?"),
        new_code_cell("import torch"),
        new_markdown_cell(TEXT),
        new_code_cell("print(1)", outputs=printed("1\n")),
        new_code_cell("plt.show()", outputs=[new_output("display_data", data=image)], metadata=figure),
        new_markdown_cell(SOLUTION),
    ]
    notebook = new_notebook(cells=cells)
    notebook_tool.stamp(notebook, "01_sample.ipynb")
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
    return lint.Chapter(lint.CHAPTERS / "01_sample.ipynb", notebook)


def code(source: str) -> Change:
    return lambda chapter: chapter.cells[5].update(source=source)


def output(text: str) -> Change:
    return lambda chapter: chapter.cells[5].update(outputs=printed(text))


def shown(*given: str, **more) -> Change:
    return lambda chapter: chapter.cells[5].update(outputs=[new_output(*given, **more)])


def figure(key: str, option: str, value: str) -> Change:
    return lambda chapter: chapter.cells[6].metadata["mystnb"][key].update({option: value})


PROSE = {
    lint.plain_markdown: [
        "```{note}\nText\n```",
        ":::{note}\nText\n:::",
        "See {ref}`there`.",
        "(there)=\n### There",
        r"\[a = b\]",
        "\\begin{align}\na\n\\end{align}",
        "$$\na = b",
        '<img src="a.png">',
        "> **Beware.** Text.",
    ],
    lint.nothing_raw: [
        "This is **bold, and never ends.",
        "This is `code, and never ends.",
        "This is $x, and never ends.",
        "See [there] (x) and [here](a b c).",
        "See [](#rows).",
        "Version {{ version }}.",
        "Text\n:::",
        "![A square](a.png){.wide}",
        "+++",
        ":width: 5",
        "- [ ] Read this.",
        "Term\n: what it means",
        "A <b tag.",
    ],
    lint.details_blocks: [
        "<details>\n<summary>Solution</summary>\n\nText.",
        "<details>\n<summary>Solution</summary>\nText.\n\n</details>",
        "<details>\n<summary>Solution</summary>\n\nText.\n</details>",
    ],
    lint.links_resolve: ["[There](99_nowhere.ipynb).", "[Out](../../outside.md)."],
    lint.code_fits: [f"```python\n# {'-' * (lint.MAX_CODE_WIDTH - 1)}\n```"],
}
CELLS: dict[Callable, list[Change]] = {
    lint.executed_in_order: [
        lambda chapter: chapter.cells[2].update(execution_count=7),
        shown("stream", name="stderr", text="UserWarning: …"),
        shown("error", ename="ValueError", evalue="…", traceback=[]),
        shown("display_data", data={"application/vnd.jupyter.widget-view+json": {}}),
    ],
    lint.portable_outputs: [
        output("<function f at 0x7f01a2b3c4d5>"),
        output("<Figure size 640x480 with 1 Axes>"),
        output("cuda:0"),
        output("/home/someone/file.txt"),
        shown("display_data", data={"text/html": f"<p>{'A' * 200} 0xabcdef12</p>"}),
    ],
    lint.approximate_asserted: [output("≈0.17")],
    lint.code_fits: [code(f"x = {'1' * (lint.MAX_CODE_WIDTH - 3)}")],
    lint.images_described: [
        lambda chapter: chapter.cells[6].update(metadata={}),
        figure("figure", "caption", ""),
        figure("figure", "name", ""),
        figure("image", "alt", "A figure."),
        figure("image", "alt", CAPTION),
        lambda chapter: chapter.cells[6].update(outputs=chapter.cells[6].outputs * 2),
        lambda chapter: chapter.cells.append(deepcopy(chapter.cells[6])),
    ],
}
FAULTS = [(rule, change) for rule, changes in CELLS.items() for change in changes]
FAULTS += [
    (rule, lambda chapter, text=text: chapter.cells[4].update(source=f"{TEXT}\n\n{text}"))
    for rule, texts in PROSE.items()
    for text in texts
]


@each_rule
def test_rule_accepts_a_good_chapter(rule: Callable[[lint.Chapter], list[str]]) -> None:
    assert rule(good_chapter()) == []


@pytest.mark.parametrize(("rule", "change"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_rejects(rule: Callable[[lint.Chapter], list[str]], change: Change) -> None:
    chapter = good_chapter()
    before = deepcopy(chapter.notebook)
    change(chapter)
    assert chapter.notebook != before, "the change did nothing"
    assert rule(chapter)


def test_packed_numbers_are_not_read_as_text() -> None:
    packed = base64.b64encode(b"0" * 99).decode() + "+0xabcdef12+/tmp/+cpu+" + "A" * 200
    chapter = good_chapter()
    chapter.cells[5].outputs = [new_output("display_data", data={"text/html": f"<p>{packed}</p>"})]
    assert lint.portable_outputs(chapter) == []


def test_executing_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch) -> None:
    cells = [new_markdown_cell("# Title"), new_code_cell("print(1)\nprint({'a', 'b', 'c'})"), new_code_cell("1 + 1")]
    path = tmp_path / "01_sample.ipynb"
    notebook_tool.write(path, notebook_tool.to_text(new_notebook(cells=cells)))
    assert notebook_tool.execute(path) is None
    first = path.read_bytes()
    assert notebook_tool.execute(path) is None
    assert path.read_bytes() == first
    assert b'"execution_count": 3' in first
    assert notebook_tool.stamped_text(path).encode() == first


def test_a_failing_cell_leaves_the_file_alone(tmp_path: Path) -> None:
    cells = [new_markdown_cell("# Title"), new_code_cell("raise ValueError('expected 2, got 3')")]
    path = tmp_path / "01_sample.ipynb"
    notebook_tool.write(path, notebook_tool.to_text(new_notebook(cells=cells)))
    before = path.read_bytes()
    failure = notebook_tool.execute(path)
    assert failure is not None and "expected 2, got 3" in failure and path.name in failure
    assert path.read_bytes() == before
