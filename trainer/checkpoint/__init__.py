"""Checkpoints: tensors under global names, whatever the layout; whole or not there."""
