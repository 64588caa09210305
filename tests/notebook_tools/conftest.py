"""These tests run where the tools are installed: `make course-test`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("nbgrader") else ["test_*.py"]
