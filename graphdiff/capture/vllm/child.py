"""The child process of a capture: `python -m graphdiff.capture.vllm.child REQUEST MODEL_FOLDER SIZES`."""

import json
import sys
from pathlib import Path

from graphdiff.capture.models.reference import reference
from graphdiff.capture.vllm.request import read_request, write_status
from graphdiff.capture.vllm.run import write_engine_capture
from graphdiff.errors import GraphdiffError


def main(request_file: str, model_folder: str, sizes: str) -> int:
    """Capture in this process; the outcome goes to the status file beside the output."""
    request = read_request(request_file)
    error = None
    try:
        write_engine_capture(
            reference(request.model, Path(model_folder), synthetic=False),
            Path(request.output),
            target=request.target,
            mode=request.mode,
            combo_kernels=request.combo_kernels,
            graph_partition=request.graph_partition,
            inductor=request.inductor,
            compile_sizes=json.loads(sizes),
            options=request.options,
            debug=request.debug,
        )
    except GraphdiffError as caught:
        error = caught
    write_status(request.output, error)
    return 0 if error is None else 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
