"""There is one invariant for each check, under the name of the check; words are written once."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

from vitbook_workshop.faults import checks
from vitbook_workshop.faults.checks import data, learning, models
from vitbook_workshop.faults.invariants import INVARIANTS

MODULES = [import_module(f"{checks.__name__}.{module.name}") for module in iter_modules(checks.__path__)]
TOOLS = {models.learned_by_heart, data.neighbors_agree, learning.what_is_drawn}


def test_each_check_is_asked_by_the_one_entry_of_its_name():
    asked = [check for must_hold in INVARIANTS.values() for check in must_hold.checks]
    defined = {
        function
        for module in MODULES
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert set(asked) == defined - TOOLS and len(asked) == len(set(asked))
    assert all(must_hold.checks and must_hold.name == name for name, must_hold in INVARIANTS.items())


def test_no_two_entries_say_the_same():
    assert len({must_hold.about for must_hold in INVARIANTS.values()}) == len(INVARIANTS)
