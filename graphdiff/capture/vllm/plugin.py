"""vLLM's entry point into graphdiff, called in every process of an engine."""

import os


def register() -> None:
    """Install the capture's hooks if a capture is asked for (`GRAPHDIFF_CAPTURE` names a request file).

    Otherwise nothing happens, and nothing is imported. May be called any number of times.
    """
    path = os.environ.get("GRAPHDIFF_CAPTURE")
    if not path:
        return
    from graphdiff.capture.vllm.request import read_request
    from graphdiff.capture.vllm.session import begin_requested

    begin_requested(read_request(path))
