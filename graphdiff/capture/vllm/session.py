"""One capture in this process: hooks report to it, it decides what happens then. Knows no vLLM."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from graphdiff.capture.vllm.raw import RawEngineCapture
from graphdiff.capture.vllm.request import Request, write_status
from graphdiff.errors import GraphdiffError

LONGEST_MESSAGE = 200


class CaptureDone(BaseException):
    """Ends the start of our own engine: the capture is made, or cannot be made (`error`).

    No `Exception`, so that no handler in the engine or in Dynamo takes it for a failure of theirs.
    """

    def __init__(self, error: GraphdiffError | None = None) -> None:
        super().__init__(str(error or "captured"))
        self.error = error


@dataclass
class Session:
    """A capture that is under way: `on_captured` gets it once, in the process that holds the parameters."""

    request: Request
    on_captured: Callable[[RawEngineCapture], None]
    report: Callable[[GraphdiffError | None], None]
    finished: bool = False

    def captured(self, raw: RawEngineCapture) -> None:
        """The model is compiled. A second compiled part of a model (a drafter, an encoder) is left alone."""
        if self.finished:
            return
        self.finished = True
        error = None
        try:
            self.on_captured(raw)
        except Exception as caught:
            error = self._as_error(caught)
        self._end(error)

    def failed(self, error: Exception) -> None:
        """Nothing was or can be captured."""
        if self.finished:
            return
        self.finished = True
        self._end(self._as_error(error))

    def _as_error(self, caught: Exception) -> GraphdiffError:
        if self.request.debug:
            traceback.print_exception(caught)
        if isinstance(caught, GraphdiffError):
            return caught
        lines = str(caught).strip().splitlines() or [""]
        error = GraphdiffError(
            f"the capture failed with {type(caught).__name__}: {lines[0][:LONGEST_MESSAGE]}",
            where="in the engine's process",
            fix="run again with --debug and report the traceback",
        )
        error.__cause__ = caught
        return error

    def _end(self, error: GraphdiffError | None) -> None:
        self.report(error)
        if self.request.stop:
            raise CaptureDone(error)


_active: Session | None = None


def active() -> Session | None:
    """The session of this process, None when no capture is under way."""
    return _active


def begin(session: Session) -> None:
    """Install the hooks of the installed vllm and let them report to `session`."""
    global _active
    from graphdiff.capture.vllm.versions import engine

    engine().install_hooks()
    _active = session


def end() -> None:
    """Let the hooks rest."""
    global _active
    _active = None


def begin_requested(request: Request) -> None:
    """A session that writes the request's file; once per process, later calls change nothing."""
    if _active is not None:
        return
    if request.graph_partition or request.inductor:
        write_status(request.output, GraphdiffError(
            "a request changes no switch of an engine that is not graphdiff's", where="graph_partition, inductor",
            fix="start the engine with compilation_config.use_inductor_graph_partition or inductor_compile_config"))  # fmt: skip
        return
    from graphdiff.capture.vllm import finish

    session = Session(
        request,
        on_captured=lambda raw: finish.write(raw, request),
        report=lambda error: write_status(request.output, error),
    )
    try:
        begin(session)
    except GraphdiffError as error:  # an engine of another version: it may run, the capture says why there is none
        session.failed(error)
