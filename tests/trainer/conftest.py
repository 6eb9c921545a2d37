from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses a GPU in this process comes last: a process that has used one cannot fork ranks any more."""
    items.sort(key=lambda item: item.path.name == "test_kernels.py")
