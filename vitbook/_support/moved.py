"""Where the names of earlier editions are now: notebooks that people have saved still import them from there."""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable

_MODULES = {
    "vitbook.layouts": "vitbook.pretrained.layouts",
    "vitbook.published": "vitbook.pretrained.published",
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module under its old name: the same module object under both."""

    def find_spec(self, fullname, path=None, target=None):
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in _MODULES else None

    def exec_module(self, module):
        sys.modules[module.__name__] = importlib.import_module(_MODULES[module.__name__])


def moved(module: str, **homes: str) -> Callable[[str], object]:
    """A module's `__getattr__` for names that are elsewhere: name → the full one there, "vitbook.module.name"."""

    def __getattr__(name: str):
        if name in homes:
            home, _, now = homes[name].rpartition(".")
            return getattr(importlib.import_module(home), now)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
