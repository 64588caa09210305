"""The one tool for the chapters' notebooks: stamp the generated cells, execute, normalize.

    python tools/notebooks.py execute [chapters/01_attention.ipynb …]   run from top to bottom and store the outputs
    python tools/notebooks.py stamp [paths]                             refresh the generated cells, keep the outputs

`execute` and `stamp` also write what the README takes from the chapters: its figure and its map.

Without paths, every chapter. Executing twice gives the same bytes: one kernel per chapter, started with this very
interpreter, without the user's IPython and matplotlib settings, and everything that varies between runs removed. What
an execution ran with is recorded in the notebook's metadata, and the record stays as long as the cells with their
outputs, and the versions of torch and vitbook, stay what they were: it says where the stored outputs are from.
"""

import argparse
import base64
import datetime
import json
import os
import re
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
BRANCH = "main"
CELL_TIMEOUT = 300  # seconds; a chapter has to run through in 90

README_FIGURE = ("13_attention_maps", "fig-maps-first")  # a chapter and the name of a figure in it
README_MAP = re.compile(r"(?<=<!-- written by tools/notebooks.py -->\n).*?(?=<!-- end -->)", re.S)

GENERATED = ["remove-cell"]  # the site leaves such cells out; Colab and GitHub show them
TITLE = "# @title "  # with it Colab folds a cell into one line, and the site does the same
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    # Complete: without the extension and the exporter, nbconvert --to script writes no Python.
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
# Chapters that ask Colab for a GPU: one sends the reader to train on CIFAR-10, one fine-tunes a model of that size. The
# others run in a minute on a CPU with models so small that a GPU is no help, and Colab hands out its GPUs sparingly.
GPU_CHAPTERS = {"11_engine", "16_fine_tuning"}
EXTRAS = {"26_export": ("export",)}  # what chapters need beside `book`, extras of pyproject.toml
GPU_METADATA = {"accelerator": "GPU", "colab": {"gpuType": "T4"}}
KEPT_METADATA = ("accelerator", "colab", "vitbook")  # the first two are Colab's, the third holds the record

# Run in a chapter's kernel after its last cell: what it has imported, and what it ran on.
RECORD_SOURCE = """
import json, pathlib, platform, re, subprocess, sys

def cpu():
    try:
        if sys.platform == "darwin":
            return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
        return re.search(r"model name\\s*: (.+)", pathlib.Path("/proc/cpuinfo").read_text())[1].strip()
    except (OSError, subprocess.SubprocessError, TypeError):
        return platform.processor() or platform.machine()

record = {"cpu": cpu(), "device": "cpu", "python": platform.python_version(), "threads": 1}
if "torch" in sys.modules:
    import torch
    record |= {"torch": torch.__version__.partition("+")[0], "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        record["device"] = torch.cuda.get_device_name()
if "vitbook" in sys.modules:
    import contextlib, importlib.metadata
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        record["vitbook"] = importlib.metadata.version("vitbook")
print(json.dumps(record))
"""


@cache
def repository_url() -> str:
    """The public address, from the one place that holds it: [project.urls] in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["urls"]["Repository"].rstrip("/")


def colab_url(name: str) -> str:
    """Where Colab opens the chapter in file `name`."""
    repository = repository_url().removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{repository}/blob/{BRANCH}/chapters/{name}"


def install_source(name: str) -> str:
    """The third cell of every chapter: install the packages where they are missing, with what the chapter needs."""
    extras = ",".join(["book", *EXTRAS.get(Path(name).stem, ())])
    return (
        f"{TITLE}Install the book's packages where they are missing, as on Colab\n"
        "import importlib.util\n"
        "import subprocess\n"
        "import sys\n"
        "\n"
        'if not all(map(importlib.util.find_spec, ("vitbook", "vitbook_workshop"))):\n'
        # Plain Python, not %pip: scripts and other kinds of notebooks are made of the chapters, too.
        f'    packages = "vitbook[{extras}] @ git+{repository_url()}"\n'
        '    subprocess.run([sys.executable, "-m", "pip", "install", "-q", packages], check=True)'
    )


def is_generated(cell: NotebookNode) -> bool:
    """Whether a cell is one of the two that `stamp` writes, in this version or an older one."""
    if cell.metadata.get("tags") != GENERATED:
        return False
    return "colab-badge.svg" in cell.source or cell.source.startswith(f"{TITLE}Install the book's packages")


def stamp(notebook: NotebookNode, name: str) -> None:
    """Put the badge before the title and the install cell after it, replacing older versions; say who wants a GPU."""
    cells = [cell for cell in notebook.cells if not is_generated(cell)]
    old_code = [cell for cell in notebook.cells if is_generated(cell) and cell.cell_type == "code"]
    if not cells or cells[0].cell_type != "markdown" or not cells[0].source.startswith("# "):
        raise ValueError(f"{name}: the first cell has to be Markdown that begins with '# Title'")
    image = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    badge = nbformat.v4.new_markdown_cell(f"{image}({colab_url(name)})", metadata={"tags": list(GENERATED)})
    # An install cell that has been run keeps its place in the execution counts.
    install = old_code[0] if old_code else nbformat.v4.new_code_cell(metadata={"tags": list(GENERATED)})
    install.source = install_source(name)
    notebook.cells = [badge, cells[0], install, *cells[1:]]
    for key, value in GPU_METADATA.items():
        notebook.metadata.pop(key, None)
        if Path(name).stem in GPU_CHAPTERS:
            notebook.metadata[key] = value


def normalize_output(output: NotebookNode) -> None:
    """Keep of an output's metadata the size of an image alone."""
    if "metadata" in output:
        sizes = {
            mime: v for mime, v in output.metadata.items() if isinstance(v, dict) and {"height", "width"} & v.keys()
        }
        output.metadata = {mime: {key: v[key] for key in ("height", "width") if key in v} for mime, v in sizes.items()}


def fold(cell: NotebookNode) -> None:
    """Show a code cell whose first line is `# @title Setup` as one line, "Setup", in Colab and on the site.

    Of a drawing the site shows the drawing alone.
    """
    if cell.cell_type != "code" or not cell.source.startswith(TITLE):
        return
    cell.metadata["cellView"] = "form"
    if not is_generated(cell):
        title, _, code = cell.source.removeprefix(TITLE).partition("\n")
        prompts = {"code_prompt_show": title, "code_prompt_hide": title}
        tag = "remove-input" if code.startswith("drawings.") else "hide-input"
        cell.metadata |= {"tags": [tag], "mystnb": cell.metadata.get("mystnb", {}) | prompts}


def normalize(notebook: NotebookNode, name: str) -> None:
    """Remove what differs from one machine or run to the next; the order of execution stays visible.

    name: of the file, with which the ids of its cells begin: no two chapters have one in common.
    """
    kept = {key: notebook.metadata[key] for key in KEPT_METADATA if key in notebook.metadata}
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA | kept)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for index, cell in enumerate(notebook.cells):
        cell.id = f"{Path(name).stem}-{index:02d}"
        cell.source = cell.source.strip("\n")
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in ("mystnb", "tags") and v})
        fold(cell)
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
            for output in cell.outputs:
                normalize_output(output)
                if alt and "image/png" in output.get("data", {}):
                    output.metadata["image/png"] = {"alt": alt} | output.metadata.get("image/png", {})  # for nbconvert
        else:
            cell.pop("outputs", None)
            cell.pop("execution_count", None)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def to_text(notebook: NotebookNode) -> str:
    """The notebook as the text of its file: keys sorted, one trailing newline."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def write(path: Path, text: str) -> None:
    """Replace a file in one step, so that an interrupted run leaves the old one whole."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, path)


def stamped_text(path: Path) -> str:
    """What `stamp` makes of a file, without executing it."""
    notebook = read(path)
    stamp(notebook, path.name)
    normalize(notebook, path.name)
    return to_text(notebook)


def readme_figure() -> bytes:
    """The image that the README shows: a stored output of a chapter."""
    chapter, name = README_FIGURE
    for cell in read(ROOT / "chapters" / f"{chapter}.ipynb").cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == name:
            return next(base64.b64decode(o.data["image/png"]) for o in cell.outputs if "image/png" in o.get("data", {}))
    raise ValueError(f"{chapter} has no figure {name}")


def readme_map() -> str:
    """The README's table of chapters: title, question, Colab, and the modules that each teaches."""
    sys.path.insert(0, str(ROOT / "_ext"))
    from api_reference import modules, taught  # needs Sphinx, which Colab does not have
    from site_chapters import parts

    packages = modules(ROOT)
    rows = ["| | Chapter | The question it answers | Run it | Modules |", "|---|---|---|---|---|"]
    for caption, chapters in parts(ROOT):
        rows.append(f"| | **{caption}** | | | |")
        for chapter in chapters:
            names = [name for name, home in taught(ROOT).items() if home == chapter]
            shown = ", ".join(
                f"`{name}`" if packages[name] == "vitbook" else f"`{packages[name]}.{name}`" for name in names
            )
            name = Path(f"{chapter.name}.ipynb").name
            title = f"[{chapter.title.partition(':')[0]}](chapters/{name})"
            rows.append(f"| {chapter.number} | {title} | {chapter.question} | [Colab]({colab_url(name)}) | {shown} |")
    return "\n".join(rows) + "\n\n"


def readme_text() -> str:
    """The README with its map as the chapters are now."""
    return README_MAP.sub(lambda _: readme_map(), (ROOT / "README.md").read_text(encoding="utf-8"))


def write_readme() -> None:
    (ROOT / "_static" / "readme.png").write_bytes(readme_figure())
    write(ROOT / "README.md", readme_text())


class OnePython(KernelSpecManager):
    """Knows one kernel: that of one interpreter, whatever kernels the user has installed."""

    python = sys.executable

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [str(self.python), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def kernel_environment(folder: str) -> dict[str, str]:
    """The environment of a kernel: no settings of the user's, of the terminal's or of the locale."""
    personal = ("IPYTHON", "JUPYTER", "MPL", "MATPLOTLIB", "LC_", "LANG", "PYTHONSTARTUP", "PYTHONWARNINGS", "VITBOOK")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(personal)}
    environment |= {
        "COLUMNS": "80",
        "IPYTHONDIR": folder,
        "JUPYTER_CONFIG_DIR": folder,
        "LC_ALL": "C.UTF-8",
        "LINES": "24",
        "PYTHONHASHSEED": "0",
    }
    # One setting in place of the user's; matplotlib's font cache may stay where it is.
    settings = Path(folder, "matplotlibrc")
    settings.write_text("figure.hooks: figure_boxes:remember\n", encoding="utf-8")
    environment["MATPLOTLIBRC"] = str(settings)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    # One thread per chapter: sums do not depend on the number of cores, and several chapters run side by side.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.setdefault(variable, "1")
    return environment


def execute(path: Path) -> str | None:
    """Run a chapter in its folder and store its outputs. Returns what went wrong; the old file stays then."""
    try:
        before = path.read_text(encoding="utf-8")
        notebook = read(path)
        stamp(notebook, path.name)
    except (OSError, ValueError, nbformat.reader.NotJSONError) as error:
        return f"{path}: {error}"
    last = nbformat.v4.new_code_cell(RECORD_SOURCE)
    notebook.cells.append(last)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            km=AsyncKernelManager(kernel_spec_manager=OnePython()),
            timeout=CELL_TIMEOUT,
            resources={"metadata": {"path": str(path.resolve().parent)}},
            record_timing=False,
            coalesce_streams=True,  # how a kernel cuts printed text depends on its timing
        )
        try:
            client.execute(env=kernel_environment(folder))
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return f"{path}: {error}"
    notebook.cells.pop()
    record = json.loads("".join(output.text for output in last.outputs if output.name == "stdout"))
    record |= {"date": datetime.date.today().isoformat(), "seconds": max(1, round(time.monotonic() - started))}
    text = recorded(notebook, path.name, record, before)
    if text != before:
        write(path, text)
    return None


def recorded(notebook: NotebookNode, name: str, record: dict, before: str) -> str:
    """An executed notebook as text, with the record of this execution, or with the one it had, where that still holds.

    It holds as long as nothing else in the file has changed, nor the version of torch or of vitbook: then the outputs
    are still those of the execution on record, however long this one took and wherever it ran.
    """
    old = notebook.metadata.get("vitbook", {}).get("executed")
    normalize(notebook, name)
    if old and all(old.get(what) == record.get(what) for what in ("torch", "vitbook")):
        text = to_text(notebook)
        if text == before:
            return text
    notebook.metadata["vitbook"] = {"executed": record}
    return to_text(notebook)


def run_execute(paths: list[Path], jobs: int) -> int:
    """Execute chapters, several at once; report each as it ends."""
    failures = 0
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for path, failure in zip(paths, pool.map(execute, paths), strict=True):
            print(failure or f"{path}: executed", flush=True)
            failures += failure is not None
    write_readme()
    return int(failures > 0)


def run_stamp(paths: list[Path]) -> int:
    """Refresh the generated cells."""
    for path in paths:
        text = stamped_text(path)
        if text != path.read_text(encoding="utf-8"):
            write(path, text)
            print(f"{path}: stamped")
    write_readme()
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="execute | stamp")
    executing = commands.add_parser("execute", help="run chapters and store their outputs")
    executing.add_argument("--jobs", "-j", type=int, default=min(2, os.cpu_count() or 1), help="chapters at once")
    executing.set_defaults(command=lambda options: run_execute(options.paths, options.jobs))
    stamping = commands.add_parser("stamp", help="stamp the generated cells and the metadata")
    stamping.set_defaults(command=lambda options: run_stamp(options.paths))
    for command in commands.choices.values():
        command.add_argument("paths", nargs="*", type=Path, default=sorted((ROOT / "chapters").glob("*.ipynb")))
    options = parser.parse_args(arguments)
    return options.command(options)


if __name__ == "__main__":
    sys.exit(main())
