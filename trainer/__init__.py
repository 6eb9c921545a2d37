"""The trainer: torch, numpy and pydantic, nothing of ours above it. `torchrun -m trainer --config job.json` stands alone."""
