"""Lets `python -m evenkeel` do what `evenkeel` does."""

import sys

from evenkeel.cli import main

if __name__ == "__main__":
    sys.exit(main())
