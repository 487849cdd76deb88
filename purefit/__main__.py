"""`python -m purefit` is the command `purefit`."""

import sys

from purefit.cli import main

if __name__ == "__main__":
    sys.exit(main())
