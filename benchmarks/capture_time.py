"""Capturing tiny Qwen3 takes at most 1.1 times what starting the engine takes. In turn, with empty caches each time.

The bare start is vLLM's own on this machine, one process, to the point where it could generate. The capture compiles for
CUDA instead of for the CPU, lowers, probes and writes; it never runs the engine.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _child import graphdiff, table, timed, verdict

ROUNDS = 2
START = """
from graphdiff.capture.models import resolve_model
from vllm import LLM
if __name__ == "__main__":
    LLM(str(resolve_model("qwen3-tiny").path), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128,
        max_num_batched_tokens=256, max_num_seqs=4, enable_prefix_caching=False)
"""


def main() -> int:
    bare, capture, rows = [], [], []
    for turn in range(ROUNDS):
        with tempfile.TemporaryDirectory() as scratch:
            script = Path(scratch) / "start.py"
            script.write_text(START)
            quiet = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                     "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR",
                     "VLLM_CACHE_ROOT": f"{scratch}/vllm", "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor"}
            start = timed([sys.executable, str(script)], quiet)
            made = timed(graphdiff("capture", "vllm", "qwen3-tiny", "-o", f"{scratch}/c"))
        bare.append(start[0]), capture.append(made[0])
        rows.append([str(turn + 1), f"{start[0]:.1f} s, {start[1]} MB", f"{made[0]:.1f} s, {made[1]} MB", f"{made[0] / start[0]:.2f}"])
    table(["round", "engine start", "capture", "ratio"], rows)
    return 0 if verdict("capture to engine start", min(capture) / min(bare), 1.1) else 1


if __name__ == "__main__":
    sys.exit(main())
