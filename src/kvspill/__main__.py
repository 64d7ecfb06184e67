"""`python -m kvspill` is `kvspill`."""

import sys

from kvspill.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
