"""Makes the WARC files importable by name: test folders are no packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if "warc_files" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("warc_files", Path(__file__).with_name("warc_files.py"))
    assert _spec is not None and _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["warc_files"] = _module
    _spec.loader.exec_module(_module)
