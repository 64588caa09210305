"""What came of the long runs, as chapters read it: a JSON file for each, by its name. `records/` has the commands."""

from vitbook._common.files import ASSETS

RECORDED = {path.stem: path for path in sorted((ASSETS / "runs").glob("*.json"))}
