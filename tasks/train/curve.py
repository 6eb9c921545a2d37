"""The loss curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def draw_loss_curve(steps: Sequence[tuple[int, float]], evaluations: Sequence[tuple[int, float]], path: Path) -> None:
    """Write a PNG of training loss (line) and validation loss (dots), both in nats per token, over steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([step for step, _ in steps], [loss for _, loss in steps], linewidth=1.2, label="training")
    if evaluations:
        axes.plot([step for step, _ in evaluations], [loss for _, loss in evaluations], "o--", label="validation")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.3)
    axes.legend()
    FigureCanvasAgg(figure).print_png(str(path))  # type: ignore[no-untyped-call]
