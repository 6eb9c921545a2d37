"""Makes the scripted server importable by name: test folders are no packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if "scripted_server" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("scripted_server", Path(__file__).with_name("scripted_server.py"))
    assert _spec is not None and _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["scripted_server"] = _module
    _spec.loader.exec_module(_module)
