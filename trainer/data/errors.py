"""What goes wrong with token files."""

from __future__ import annotations


class CorpusError(ValueError):
    """A .bin/.idx pair is damaged, or what is asked of it cannot be had. The text names the file, place and rule."""
