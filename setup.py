"""The README as PyPI shows it, where links into the repository need its address; all else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def readme() -> str:
    """README.md with every link and picture by its public address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project["urls"]["Repository"]
    pictures = address.replace("//github.com/", "//raw.githubusercontent.com/")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:|#)", rf"\g<1>{pictures}/main/", text)
    return re.sub(r"(\]\()(?!\w+:|#)", rf"\g<1>{address}/blob/main/", text)


if __name__ == "__main__":
    setup(long_description=readme(), long_description_content_type="text/markdown")
