"""Where the book stands in public, as the installed package says."""

import importlib.metadata
from functools import cache


def page_of(where: str) -> str:
    """The page of a section, "04_multihead.html#what-w-o-is-for" for "04_multihead.ipynb#what-w_o-is-for"."""
    chapter, mark, section = where.partition("#")
    return f"{chapter.removesuffix('.ipynb')}.html{mark}{section.replace('_', '-')}"


@cache
def chapters_address() -> str:
    """Where GitHub shows the chapters of the repository that the package was made from; "" if it does not tell."""
    try:
        addresses = importlib.metadata.metadata("vitbook").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    repository = next((url for line in addresses for name, url in [line.split(", ")] if name == "Repository"), "")
    owner, _, name = repository.removeprefix("https://github.com/").strip("/").partition("/")
    return f"https://{owner.lower()}.github.io/{name}/chapters/" if name else ""
