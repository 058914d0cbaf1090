"""Bytes that the emitted kernels move per token and layer at Qwen3-8B shapes, forward and backward, counted.

The kernels run in Triton's repaired interpreter, where every load and store of every launch is seen: distinct addresses
count once per launch (what memory must move), repeated reads of one launch are listed as cached. Weights are read once
per launch and weights' partial sums written once per program; neither grows with tokens, so they are listed per launch
and taken at TOKENS tokens. Nothing is timed here. `python benchmarks/bytes_moved.py` (half a minute, no GPU).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(ROOT), str(SUPPORT)]

CAPTURE = ROOT / "fixtures" / "cuda-90" / "qwen3-8b-base" / "vllm.capture"
COUNTED = 6
"""Tokens in the count; bytes per token do not depend on it."""
TOKENS = 8192
"""Tokens of a micro-batch over which a launch's fixed bytes are spread."""
PROGRAMS = 2 * 132
"""Programs that keep a partial sum: two per multiprocessor of an H100 or H200."""
HEADS = {"q": 32, "k": 8}
IDEAL = {"qk_norm_rope": (20_992, 31_232), "swiglu": (73_728, 122_880), "residual norms": (65_536, 65_536)}
"""Each activation read once and written once (facts: bytes_moved), forward and backward."""
OTHERS = {"HF eager": 2_427_718, "unfused FP32": 3_982_232, "Inductor, training": 486_400, "Liger 0.8.5": 420_688}
LAYER = ("qk_norm_rope", "swiglu", "post_attention_layernorm", "input_layernorm")
LIMIT = 1.15


def main() -> int:
    from emitted import write_package

    from graphdiff.emit import emit_package, emit_region, extract_regions
    from graphdiff.store import read_capture

    capture = read_capture(CAPTURE)
    regions, _ = extract_regions(capture.program, len(capture.header.probe.tokens))
    emitted = {r.name: emit_region(r, namespace="counted") for r in regions if r.name in LAYER}
    asked = {n: [(t.name, t.shape, t.width) for t in e.signature.inputs] for n, e in emitted.items()}
    with tempfile.TemporaryDirectory() as folder:
        write_package(emit_package(emitted.values()), Path(folder), "counted_package")
        env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), folder, str(SUPPORT)])}
        done = subprocess.run([sys.executable, __file__, "--child", json.dumps(asked)], env=env, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-3000:])
        return 2
    return report(json.loads(done.stdout.splitlines()[-1]))


def report(found: dict) -> int:
    print(f"{'':28}{'forward':>10}{'backward':>10}   cached reads   per launch: weights, partial sums (fwd+bwd)")
    fixed = 0
    sums: dict[str, list[int]] = {}
    for name in LAYER:
        group = "residual norms" if name.endswith("layernorm") else name
        own = [found[name][which]["moved"] // COUNTED for which in ("forward", "backward")]
        again = sum(found[name][which]["again"] // COUNTED for which in ("forward", "backward"))
        weights = sum(found[name][which]["weights"] for which in ("forward", "backward"))
        # written by the kernel, read again by the sum over programs
        partial = 2 * 4 * PROGRAMS * found[name]["weight_lanes"]
        fixed += weights + partial
        print(f"{name:28}{own[0]:>10,}{own[1]:>10,}{again:>15,}   {weights:,}, {partial:,}")
        sums[group] = [a + b for a, b in zip(sums.get(group, [0, 0]), own)]
    ideal = sum(sum(v) for v in IDEAL.values())
    total = sum(sum(v) for v in sums.values())
    spread = fixed / TOKENS
    print(f"\n{'':28}{'counted':>10}{'ideal':>10}{'further':>10}")
    for name, own in sums.items():
        for which, a, b in zip(("forward", "backward"), own, IDEAL[name]):
            print(f"{name + ' ' + which:28}{a:>10,}{b:>10,}{a - b:>+10,}")
    print(f"{'all, per token and layer':28}{total:>10,}{ideal:>10,}{total - ideal:>+10,}")
    print(f"{'launches, spread':28}{spread:>10,.0f}{'':>10}{spread:>+10,.0f}   {fixed:,} bytes a layer over {TOKENS} tokens")
    ratio = (total + spread) / ideal
    print(f"\n{ratio:.4f} of ideal (limit {LIMIT}); without what a launch costs once: {total / ideal:.4f}")
    print("by tokens of a micro-batch: " + ", ".join(f"{n} {(total + fixed / n) / ideal:.3f}" for n in (1024, 2048, 4096, 8192, 32768)))
    print("further bytes: the derivative through an unrounded residual reads its addends again instead of one rounded sum:\n"
          "  +8,192 after attention (2 addends), +16,384 before the next layer (3 addends); tables: only the half that is distinct\n"
          "  is read, -256 forward and -256 backward; each launch reads its weights and keeps FP32 partial sums of their gradients.")
    print("others: " + ", ".join(f"{n} {b:,} ({(total + spread) / b:.2f} of it)" for n, b in OTHERS.items()))
    return 0 if ratio <= LIMIT else 1


# ---- in the interpreter's process
def child(asked: dict) -> None:
    import importlib

    import torch
    from graphdiff.verify.interpreter import repair

    repair()
    count = hook()
    package = importlib.import_module("counted_package")
    for name, module in list(sys.modules.items()):
        if name.startswith("counted_package"):
            for attribute, value in (("on_gpu", lambda x: True), ("programs_for", lambda tiles, x: min(tiles, 2))):
                if hasattr(module, attribute):
                    setattr(module, attribute, value)
    found = {}
    for name, tensors in asked.items():
        count.clear()
        inputs = [tensor(*t) for t in tensors]
        weights = [x for x, t in zip(inputs, tensors) if t[1] == "vector"]
        outputs = getattr(package, name)(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        forward = counted(count, weights)
        count.clear()
        real = [o for o in outputs if o.requires_grad]
        torch.autograd.grad(real, [x for x in inputs if x.requires_grad], [torch.ones(o.shape, dtype=o.dtype) for o in real], allow_unused=True)
        found[name] = {"forward": forward, "backward": counted(count, weights), "weight_lanes": sum(w.numel() for w in weights)}
    print(json.dumps(found))


def tensor(name: str, shape: str, width: int):
    import torch

    if shape == "carry":
        return torch.empty((), dtype=torch.bfloat16).expand(1, COUNTED, width).requires_grad_()
    sizes = {"rows": (1, COUNTED), "heads": (1, COUNTED, HEADS.get(name, 0)), "table": (1, COUNTED), "vector": ()}[shape]
    return torch.randn(*sizes, width).to(torch.bfloat16).requires_grad_(shape != "table")


class Count:
    """Addresses and sizes of everything loaded and stored since clear()."""

    def __init__(self) -> None:
        self.loads: list = []
        self.stores: list = []

    def clear(self) -> None:
        self.loads, self.stores = [], []


def hook() -> Count:
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder

    count = Count()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def masked_load(self, ptrs, mask, *rest):
        count.loads.append((np.broadcast_to(ptrs.data, mask.data.shape)[mask.data], ptrs.get_element_ty().primitive_bitwidth // 8))
        return load(self, ptrs, mask, *rest)

    def masked_store(self, ptrs, value, mask, *rest):
        count.stores.append((np.broadcast_to(ptrs.data, mask.data.shape)[mask.data], ptrs.get_element_ty().primitive_bitwidth // 8))
        return store(self, ptrs, value, mask, *rest)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = masked_load, masked_store
    return count


def counted(count: Count, weights: list) -> dict[str, int]:
    """moved: distinct bytes of 16-bit tensors, weights aside. again: further reads of the same bytes, by the same launch."""
    import numpy as np

    wide = [(a, n) for a, n in count.stores if n == 4]
    loads = [(a, n) for a, n in count.loads if n == 2]
    stores = [(a, n) for a, n in count.stores if n == 2]
    assert len(wide) + len(stores) == len(count.stores) and len(loads) == len(count.loads), "an access of another size"
    every = np.concatenate([a for a, _ in loads])
    read = np.unique(every)
    # The interpreter may run on copies: a weight's addresses are those that every row reads.
    held = sum(w.numel() for w in weights)
    moved = 2 * (read.size - held) + 2 * np.unique(np.concatenate([a for a, _ in stores])).size
    return {"moved": int(moved), "again": int(2 * (every.size - read.size)), "weights": 2 * held}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        sys.exit(main())
