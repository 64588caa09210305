"""What a model is built with, as it is given on a command line: JSON, or a file of JSON or YAML."""

import json
from pathlib import Path
from typing import Any


def arguments_of(name: str, given: str) -> dict[str, Any]:
    """The arguments by name. name: the option's, for errors. Raises ValueError or OSError, in one line."""
    path = Path(given)
    is_file = path.suffix in (".json", ".yaml", ".yml")
    text = path.read_text(encoding="utf-8") if is_file else given
    try:
        arguments = _yaml(name, text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        says = "" if is_file else ", or a .json or .yaml file of one"
        raise ValueError(f"{name} must be a JSON object, as '{{\"num_classes\": 10}}'{says}, got {given}")
    return arguments


def _yaml(name: str, text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise ImportError(f"{name}: a YAML file needs pyyaml, which is not installed; JSON does not") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None
