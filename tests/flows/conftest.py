from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    """A real Prefect server; flows of this process and of children given the address report to it."""
    from prefect_server import api_url

    address = api_url()
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: address}):
        yield address
