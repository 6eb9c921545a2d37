"""`python -m tasks.infer.generate --job settings.json`: texts from a model directory, as events on standard output."""

from __future__ import annotations

import sys

from tasks.infer.worker import main

if __name__ == "__main__":
    sys.exit(main())
