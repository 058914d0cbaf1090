"""From what the engine holds to a capture file, in the process that holds it."""

from graphdiff.capture.vllm.raw import RawEngineCapture
from graphdiff.capture.vllm.request import Request


def write(raw: RawEngineCapture, request: Request) -> None:
    """Lower and probe `raw`, and write the capture file that `request` names."""
    from graphdiff.record import program_from_engine

    program_from_engine(raw, request)
