"""`python -m vitbook` is `vitbook`."""

import sys

from vitbook.cli import main

if __name__ == "__main__":
    sys.exit(main())
