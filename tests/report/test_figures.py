"""The figures that any run can have."""

import numpy as np
import pytest

from darkbayes.report.figures import learning_curves, reliability


def test_the_bars_of_the_reliability_diagram_are_the_accuracies_of_its_bins():
    confidence = np.repeat([0.95, 0.55], [4, 2])
    probs = np.stack([confidence, 1 - confidence], axis=1)
    y = np.array([0, 0, 0, 1, 0, 1])
    upper, lower = reliability({"student": probs}, y, bins=10, cases="images").axes
    heights = {round(bar.get_x() + 0.05, 2): bar.get_height() for bar in upper.containers[0]}
    assert heights == {0.55: 0.5, 0.95: 0.75}
    assert [bar.get_height() for bar in lower.containers[0]][5::4] == pytest.approx([2 / 6, 4 / 6])


def test_the_level_at_which_a_student_stopped_is_marked():
    lines = [{"step": step, "kl": 1 / min(step, 5)} for step in range(1, 20)]
    plateau = {"since": 13, "level": 0.2, "stopped": True}
    (axis,) = learning_curves({"student": lines}, {"student": plateau}, teacher_error=0.01).axes
    assert [text.get_text() for text in axis.texts] == ["stopped at 0.2"]
    assert "the teacher's own error" in axis.get_legend_handles_labels()[1]
    (axis,) = learning_curves({"student": lines}, {"student": plateau | {"stopped": False}}).axes
    assert not axis.texts
