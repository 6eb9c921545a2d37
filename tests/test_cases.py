"""Every case of tests/cases (or of the folder named by URL2LM_CASES), one test a case, its id in the name.

A case names what it exercises in `input.do`; tests/cases/adapters holds one function for each. A case without an
adapter is pending: skipped, counted apart, never passed.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CASES = Path(os.environ.get("URL2LM_CASES", HERE / "cases"))
ADAPTERS = HERE / "cases" / "adapters"


def load_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            case.setdefault("area", path.stem)
            cases.append(case)
    return cases


def load_adapters() -> dict[tuple[str, str], Callable[..., None]]:
    """(area, do) -> function. A file named AREA.py or AREA_part.py serves that area."""
    found: dict[tuple[str, str], Callable[..., None]] = {}
    areas = sorted({case["area"] for case in load_cases()}, key=len, reverse=True)
    for path in sorted(ADAPTERS.glob("*.py")):
        area = next((name for name in areas if path.stem == name or path.stem.startswith(f"{name}_")), None)
        if area is None:
            continue
        name = f"case_adapters_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        for do, function in getattr(module, "ADAPTERS", {}).items():
            found[area, do] = function
    return found


FUNCTIONS = load_adapters()


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["id"])
def test_case(case: dict[str, Any], tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record_property("area", case["area"])
    do = case["input"]["do"]
    adapter = FUNCTIONS.get((case["area"], do))
    if adapter is None:
        pytest.skip(f"pending: no adapter for {case['area']}/{do}")
    if "tmp_path" in inspect.signature(adapter).parameters:
        adapter(case, tmp_path)
    else:
        adapter(case)
