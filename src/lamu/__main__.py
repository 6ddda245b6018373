"""`python -m lamu`: the command line."""

import sys

from lamu.cli import main

if __name__ == "__main__":
    sys.exit(main())
