"""Rival 1: difflib over op names, then "is each paired op rounded?". Of the naive ways the strongest we know."""

from difflib import SequenceMatcher

import aten


def compare(inference, training, inputs) -> tuple[int, int]:
    """Paired ops rounded in training only, and in inference only."""
    a, b = aten.ops(inference, inputs), aten.ops(training, inputs)
    in_training = in_inference = 0
    for i, j, n in SequenceMatcher(None, [x.op for x in a], [x.op for x in b], autojunk=False).get_matching_blocks():
        for x, y in zip(a[i : i + n], b[j : j + n], strict=True):
            in_training += y.rounded and not x.rounded
            in_inference += x.rounded and not y.rounded
    return in_training, in_inference
