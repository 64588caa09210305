"""`python -m vitbook` is `vitbook`."""

import sys

from vitbook.cli import main

sys.exit(main())
