"""What came of the long runs: a JSON file for each, by its name. The commands in `records/` made them."""

from vitbook._common.files import ASSETS

RECORDED = {path.stem: path for path in sorted((ASSETS / "runs").glob("*.json"))}
