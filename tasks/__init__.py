"""What each stage does: pure functions over typed artifacts. See ARCHITECTURE.md for the house rules."""
