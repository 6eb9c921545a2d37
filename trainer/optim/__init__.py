"""Optimizers by name, the learning rate over time, gradients over ranks."""
