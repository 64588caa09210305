"""The console command `vitbook` of the environment in which the tests run."""

import shutil
import sys
from pathlib import Path

VITBOOK = shutil.which("vitbook", path=Path(sys.executable).parent)
