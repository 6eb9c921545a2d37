"""Corpora on disk and the samples cut from them."""
