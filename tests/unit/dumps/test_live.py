"""One run, three captures: what is captured live, and what TORCH_TRACE and TORCH_LOGS of the same run say, are one program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphdiff.errors import GraphdiffError
from graphdiff.pipeline import compare_captures, dumps_capture, function_capture

pytest.importorskip("torch")
pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[3]
SUPPORT = ROOT / "tests" / "support"
WANTED = ["norm", "mlp", "attention_weights", "norm:training", "mlp:training"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    env = {**os.environ, "TORCH_TRACE": str(folder / "trace"), "TORCH_LOGS": "output_code,ir_post_fusion,post_grad_graphs",
           "TORCH_LOGS_OUT": str(folder / "logs.txt"), "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    subprocess.run([sys.executable, SUPPORT / "dump_functions.py", folder / "seen.json", *WANTED], env=env, check=True, capture_output=True)
    return folder


def graphs(folder):
    """Number of each function's graph: a backward follows each training forward."""
    number, found = 0, {}
    for name in WANTED:
        number += 1
        found[name] = number
        number += name.endswith(":training")
    return found


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("source", ["trace", "logs.txt"])
def test_a_dump_gives_the_program_of_the_live_capture(run, name, source):
    from tests.support.dump_functions import canonical

    live = json.loads((run / "seen.json").read_text())[name]
    capture = dumps_capture(run / source, graph=graphs(run)[name])
    named = source == "trace"
    found = json.loads(json.dumps(canonical(capture.program, names=named)))
    if not named:
        for node in live["nodes"]:
            node[3].pop("name", None)
    assert found["nodes"] == live["nodes"]
    assert found["outputs"] == live["outputs"]


def test_a_dump_against_the_function_itself(run):
    spec = str(SUPPORT / "dump_functions.py")
    live = function_capture(f"{spec}:norm", f"{spec_inputs(run)}:norm_inputs", 0, compile=True)
    report = compare_captures(live, dumps_capture(run / "trace", graph=1))
    assert report.summary.matched and not report.summary.moved.inference and not report.summary.moved.training
    assert any("paired by name" in n for n in report.notes)
    eager = function_capture(f"{spec}:norm", f"{spec_inputs(run)}:norm_inputs", 0)
    moved = compare_captures(dumps_capture(run / "trace", graph=1), eager)
    assert (moved.summary.moved.training, moved.summary.moved.inference) == (2, 0)
    with pytest.raises(GraphdiffError, match="could not tell which input"):
        compare_captures(dumps_capture(run / "logs.txt", graph=1), eager)


def spec_inputs(folder):
    file = folder / "norm_inputs.py"
    file.write_text("from tests.support.dump_functions import inputs\n\n\ndef norm_inputs(seed):\n    return inputs('norm', seed)\n")
    return file
