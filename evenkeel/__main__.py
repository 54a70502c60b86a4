"""Runs the `evenkeel` command as `python -m evenkeel`."""

import sys

from evenkeel.cli import main

if __name__ == "__main__":
    sys.exit(main())
