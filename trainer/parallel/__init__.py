"""The ranks: their grid, the collectives between them, the pipeline's order."""
