"""Architectures, one folder each. A registry gives the one that a config names."""
