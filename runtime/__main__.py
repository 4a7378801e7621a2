"""Run with ``python -m runtime``."""

import sys

from .cli import main

sys.exit(main())
