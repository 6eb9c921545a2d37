"""The trainer. Nothing of ours above it: `torchrun -m trainer --config job.json` stands alone."""
