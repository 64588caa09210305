"""A package function's source, shown in a cell."""

import inspect
import textwrap
from collections.abc import Callable

from IPython.display import Markdown, display


def show_source(*objects: Callable) -> None:
    """Display the source of functions, classes or methods, highlighted, exactly as it stands in the package."""
    for obj in objects:
        code = textwrap.dedent(inspect.getsource(obj)).rstrip()
        module = obj.__module__.replace(".", "/")
        display(Markdown(f"```python\n# {module}.py\n{code}\n```"))
