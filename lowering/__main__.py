"""Run with ``python -m lowering``."""

import sys

from .cli import main

sys.exit(main())
