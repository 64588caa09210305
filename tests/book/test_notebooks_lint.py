"""Every chapter keeps every rule of notebook_lint.py, and every rule rejects a chapter that breaks it."""

import base64
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import notebook_lint as lint
import notebooks as notebook_tool
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

Change = Callable[[lint.Chapter], None]


@pytest.mark.parametrize("rule", lint.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", lint.chapter_paths(), ids=lambda path: path.stem)
def test_chapter(path: Path, rule: Callable[[lint.Chapter], list[str]]) -> None:
    complaints = rule(lint.load(path))
    assert not complaints, f"{path.name}\n  " + "\n  ".join(complaints)


# A chapter that keeps every rule, built here, and one change per rule that must not pass.

SOLUTION = "<details>\n<summary>Solution</summary>\n\nLower triangle:\n\n```python\nx = 1\n```\n\n</details>"
CAPTION = "Which query looks at which key? Weights from 0 to 1."
ALT = "A grid of four by four squares whose diagonal is the darkest."


def printed(text: str) -> list:
    return [new_output("stream", name="stdout", text=text)]


def good_chapter() -> lint.Chapter:
    picture = {"image/png": base64.b64encode(b"picture").decode(), "text/plain": "<Figure size 640x480 with 1 Axes>"}
    figure = {"mystnb": {"figure": {"caption": CAPTION, "name": "fig-weights"}, "image": {"alt": ALT}}}
    cells = [
        new_markdown_cell("# What is looked at?\n\n**Before this**: nothing. **Time**: 5 minutes."),
        new_code_cell("import torch"),
        new_markdown_cell(
            "## Rows\n\nA row of $QK^\\top$, see [rows](#rows).\n\n$$\na = b \\tag{1}\n$$\n\n> **Note.** Short."
        ),
        new_code_cell("print(1)", outputs=printed("1\n")),
        new_code_cell("plt.show()", outputs=[new_output("display_data", data=picture)], metadata=figure),
        new_markdown_cell("## Exercises"),
    ]
    for number in (1, 2, 3):
        cells += [
            new_markdown_cell(f"### Exercise {number}\n\nWrite it."),
            new_code_cell(f"def answer_{number}():\n    return None"),
            new_code_cell(f"print(answer_{number}())", outputs=printed("None\n")),
            new_markdown_cell(SOLUTION),
        ]
    cells.append(new_markdown_cell("## Further reading\n\n- [A paper](https://arxiv.org/abs/1706.03762)."))
    notebook = new_notebook(cells=cells)
    notebook_tool.stamp(notebook, "01_sample.ipynb")
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
    return lint.Chapter(lint.CHAPTERS / "01_sample.ipynb", notebook)


def prose(text: str) -> Change:
    """Put text into the section after the imports."""
    return lambda chapter: chapter.cells[4].update(source=chapter.cells[4].source + "\n\n" + text)


def code(source: str, output: str | None = None) -> Change:
    """Replace the cell that prints."""

    def change(chapter: lint.Chapter) -> None:
        chapter.cells[5].update(source=source, outputs=printed(output) if output else [])

    return change


def figure(key: str, option: str, value: str) -> Change:
    return lambda chapter: chapter.cells[6].metadata["mystnb"][key].update({option: value})


def remove(index: int) -> Change:
    return lambda chapter: chapter.cells.pop(index)


def first_count(chapter: lint.Chapter) -> None:
    chapter.cells[2].execution_count = 7


def stderr(chapter: lint.Chapter) -> None:
    chapter.cells[5].outputs = [new_output("stream", name="stderr", text="UserWarning: …")]


def error(chapter: lint.Chapter) -> None:
    chapter.cells[5].outputs = [new_output("error", ename="ValueError", evalue="…", traceback=[])]


def widget(chapter: lint.Chapter) -> None:
    chapter.cells[5].outputs = [new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {}})]


def many_cells(chapter: lint.Chapter) -> None:
    chapter.cells.extend(new_markdown_cell("One more.") for _ in range(lint.MAX_CELLS))


def uncaptioned(chapter: lint.Chapter) -> None:
    chapter.cells[6].metadata = {}


def second_image(chapter: lint.Chapter) -> None:
    chapter.cells[6].outputs *= 2


def old_badge(chapter: lint.Chapter) -> None:
    chapter.cells[0].source = chapter.cells[0].source.replace("github/", "github/someone-")


BROKEN: dict[str, tuple[Callable, Change]] = {
    "badge of another address": (lint.generated_cells, old_badge),
    "no badge": (lint.generated_cells, remove(0)),
    "no install cell": (lint.generated_cells, remove(2)),
    "directive": (lint.plain_markdown, prose("```{note}\nText\n```")),
    "colon fence": (lint.plain_markdown, prose(":::{note}\nText\n:::")),
    "role": (lint.plain_markdown, prose("See {ref}`there`.")),
    "target": (lint.plain_markdown, prose("(there)=\n### There")),
    "bracket math": (lint.plain_markdown, prose(r"\[a = b\]")),
    "bare environment": (lint.plain_markdown, prose("\\begin{align}\na\n\\end{align}")),
    "unpaired math": (lint.plain_markdown, prose("$$\na = b")),
    "html": (lint.plain_markdown, prose('<img src="a.png">')),
    "unknown callout": (lint.plain_markdown, prose("> **Beware.** Text.")),
    "open bold": (lint.nothing_raw, prose("This is **bold, and never ends.")),
    "open code": (lint.nothing_raw, prose("This is `code, and never ends.")),
    "open math": (lint.nothing_raw, prose("This is $x, and never ends.")),
    "broken link": (lint.nothing_raw, prose("See [there] (x) and [here](a b c).")),
    "link without text": (lint.nothing_raw, prose("See [](#rows).")),
    "substitution": (lint.nothing_raw, prose("Version {{ version }}.")),
    "bare colons": (lint.nothing_raw, prose("Text\n:::")),
    "attribute": (lint.nothing_raw, prose("![A square](a.png){.wide}")),
    "block break": (lint.nothing_raw, prose("+++")),
    "option": (lint.nothing_raw, prose(":width: 5")),
    "task list": (lint.nothing_raw, prose("- [ ] Read this.")),
    "definition list": (lint.nothing_raw, prose("Term\n: what it means")),
    "half a tag": (lint.nothing_raw, prose("A <b tag.")),
    "a GPU unasked": (lint.asks_for_a_gpu, lambda chapter: chapter.notebook.metadata.update(accelerator="GPU")),
    "open details": (lint.details_blocks, prose("<details>\n<summary>Solution</summary>\n\nText.")),
    "tight summary": (lint.details_blocks, prose("<details>\n<summary>Solution</summary>\nText.\n\n</details>")),
    "tight end": (lint.details_blocks, prose("<details>\n<summary>Solution</summary>\n\nText.\n</details>")),
    "out of order": (lint.executed_in_order, first_count),
    "stored error": (lint.executed_in_order, error),
    "stderr": (lint.executed_in_order, stderr),
    "widget": (lint.executed_in_order, widget),
    "print without output": (lint.outputs_present, code("print(1)")),
    "value without output": (lint.outputs_present, code("x = 1\nx")),
    "show without output": (lint.outputs_present, code("plt.show()")),
    "semicolon": (lint.outputs_present, code("torch.manual_seed(0);")),
    "address": (lint.portable_outputs, code("print(f)", "<function f at 0x7f01a2b3c4d5>")),
    "figure as text": (lint.portable_outputs, code("print(f)", "<Figure size 640x480 with 1 Axes>")),
    "device": (lint.portable_outputs, code("print(x.device)", "cuda:0")),
    "path": (lint.portable_outputs, code("print(path)", "/home/someone/file.txt")),
    "cells": (lint.size, many_cells),
    "words": (lint.size, prose("word " * lint.MAX_WORDS)),
    "long code": (lint.size, code("x = 1\n" * (lint.MAX_CODE_LINES + 1))),
    "wide code": (lint.code_fits, code(f"x = {'1' * (lint.MAX_CODE_WIDTH - 3)}")),
    "wide solution": (lint.code_fits, prose(f"```python\n# {'-' * (lint.MAX_CODE_WIDTH - 1)}\n```")),
    "no metadata": (lint.images_described, uncaptioned),
    "no caption": (lint.images_described, figure("figure", "caption", "")),
    "no name": (lint.images_described, figure("figure", "name", "")),
    "short alt": (lint.images_described, figure("image", "alt", "A figure.")),
    "alt is caption": (lint.images_described, figure("image", "alt", CAPTION)),
    "two images": (lint.images_described, second_image),
    "no such file": (lint.links_resolve, prose("[There](99_nowhere.ipynb).")),
    "no such heading": (lint.links_resolve, prose("[There](#nowhere).")),
    "one exercise": (lint.exercises, lambda chapter: [chapter.cells.pop(8) for _ in range(4)]),
    "no check": (lint.exercises, remove(10)),
    "no solution": (lint.exercises, remove(11)),
    "no exercises": (lint.frame, remove(7)),
    "no reading": (lint.frame, remove(-1)),
    "no minutes": (lint.frame, lambda chapter: chapter.cells[1].update(source="# What?\n\n**Before this**: nothing.")),
    "skipped level": (lint.frame, prose("#### Deep")),
    "redefinition": (lint.no_redefinition, code("def attention(q, k, v):\n    return q")),
}


@pytest.mark.parametrize("rule", lint.RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_a_good_chapter(rule: Callable[[lint.Chapter], list[str]]) -> None:
    assert rule(good_chapter()) == []


@pytest.mark.parametrize("name", BROKEN)
def test_rule_rejects(name: str) -> None:
    rule, change = BROKEN[name]
    chapter = good_chapter()
    before = deepcopy(chapter.notebook)
    change(chapter)
    assert chapter.notebook != before, "the change did nothing"
    assert rule(chapter), f"{rule.__name__} accepts a chapter with this fault: {name}"


def test_packed_numbers_are_not_read_as_text() -> None:
    packed = base64.b64encode(b"0" * 99).decode() + "+0xabcdef12+/tmp/+cpu+" + "A" * 200
    for text, complaints in ((packed, 0), (f"{packed} 0xabcdef12", 1), ("+0xabcdef12+/tmp/+cpu+", 3)):
        chapter = good_chapter()
        chapter.cells[5].outputs = [new_output("display_data", data={"text/html": f"<p>{text}</p>"})]
        assert len(lint.portable_outputs(chapter)) == complaints


def test_every_rule_can_reject() -> None:
    assert {rule for rule, _ in BROKEN.values()} == set(lint.RULES)


def test_a_gpu_is_asked_for_where_one_is_used(monkeypatch) -> None:
    monkeypatch.setattr(notebook_tool, "GPU_CHAPTERS", {"01_sample"})
    chapter = good_chapter()
    assert chapter.notebook.metadata["accelerator"] == "GPU"
    assert lint.asks_for_a_gpu(chapter), "it never calls device()"
    code("device = device()")(chapter)
    assert lint.asks_for_a_gpu(chapter) == []
    chapter.notebook.metadata["colab"] = {"gpuType": "A100"}
    assert lint.asks_for_a_gpu(chapter)
    text = notebook_tool.to_text(good_chapter().notebook)
    assert '"gpuType": "T4"' in text


def test_executing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
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
