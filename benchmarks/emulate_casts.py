"""What Inductor's `emulate_precision_casts` restores of eager's roundings, and what it does not.

Each function is compiled for cuda:90 with the switch off and on and compared with itself run eagerly: moved values (training
is eager). `--write` puts the table into docs/emulate_precision_casts.md.
"""

import argparse
import difflib
import re
import sys
import warnings
from typing import Any

from _child import ROOT, table

PAGE = ROOT / "docs" / "emulate_precision_casts.md"
QUOTED = ("silu(gate) * up", "mm + add", "scale + softmax")
MARK = "<!-- made by benchmarks/emulate_casts.py -->"


def silu_up(gate, up):
    import torch.nn.functional as F

    return F.silu(gate) * up


def x_sigmoid_y(x, y):
    import torch

    return x * torch.sigmoid(y)


def rms_norm(x, weight):
    import torch

    h = x.float()
    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def fused_rms_norm(x, weight):
    import torch.nn.functional as F

    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def add_rms_norm(x, residual, weight):
    h = residual + x
    return rms_norm(h, weight), h


def rope(q, cos, sin):
    import torch

    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def mm_add(x, weight, bias):
    import torch

    return torch.mm(x, weight) + bias


def scale_softmax(x):
    import torch

    return torch.softmax(x * 0.3, -1)


def explicit_casts(x, y):
    import torch

    return ((x.float() * y.float()).to(torch.bfloat16).float() + 1.1).to(torch.bfloat16)


def cases() -> dict[str, tuple[Any, tuple]]:
    import torch

    def r(*shape: int) -> Any:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(torch.bfloat16)

    def r2(*shape: int) -> Any:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(7 + sum(shape))).to(torch.bfloat16)

    return {
        "silu(gate) * up": (silu_up, (r(8, 256), r2(8, 256))),
        "x * sigmoid(y)": (x_sigmoid_y, (r(8, 256), r2(8, 256))),
        "RMSNorm": (rms_norm, (r(8, 256), r(256))),
        "F.rms_norm": (fused_rms_norm, (r(8, 256), r(256))),
        "add + RMSNorm, hidden 1024": (add_rms_norm, (r(8, 1024), r2(8, 1024), r(1024))),
        "add + RMSNorm, hidden 8192": (add_rms_norm, (r(8, 8192), r2(8, 8192), r(8192))),
        "RoPE": (rope, (r(8, 4, 64), r(8, 1, 64), r2(8, 1, 64))),
        "mm + add": (mm_add, (r(8, 256), r(256, 128), r(8, 128))),
        "scale + softmax": (scale_softmax, (r(8, 256),)),
        "explicit round trip": (explicit_casts, (r(8, 256), r2(8, 256))),
    }


def measured(function: Any, args: tuple, on: bool) -> tuple[Any, str]:
    """(report of the compiled function against eager, its output code)."""
    from graphdiff import pipeline
    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function, record_eager
    from graphdiff.capture.header import function_header
    from graphdiff.probe import probe
    from graphdiff.store import Capture

    made = Function(function, args, function.__code__.co_varnames[: len(args)], __file__, function.__name__)
    captures = []
    for recorded in (record_compiled(made, "cuda:90", config_patches={"emulate_precision_casts": on}), record_eager(made)):
        data = probe(recorded.program, recorded.bits, static_rule=False, pin_anchors=False)
        recorded.program.data.update(recorded.bits)
        captures.append(Capture(function_header(f"{__file__}:{function.__name__}", 0, recorded), recorded.program, data, recorded.sources))
    return pipeline.compare_captures(*captures), captures[0].sources["output_code"]


def described(report: Any) -> str:
    """`2 / 0: residual + x, ...`: only eager rounds / only the compiled code rounds."""
    counts = f"{report.summary.moved.training} / {report.summary.moved.inference}"
    texts = [f"`{m.training.text or m.value}`" + (" (the compiled code)" if m.rounded_in == "inference" else "") for r in report.regions for m in r.moved]
    return f"{counts}: {', '.join(texts)}" if texts else counts


def quoted(text: str) -> list[str]:
    """What the kernels compute (not where they find it), and the matmuls."""
    lines = [re.sub(r", (eviction_policy|rmask)='?\w+'?", "", line.strip()) for line in text.splitlines()]
    return [line for line in lines if re.match(r"_?tmp\d+ = |tl\.store|extern_kernels\.", line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, quotes = [], []
    for name, (function, args) in cases().items():
        cells, codes = [], []
        for on in (False, True):
            report, text = measured(function, args, on)
            whole = report.whole_program
            cells.append(described(report))
            cells.append(f"{whole.before.differing} of {whole.before.elements}" if whole and whole.before else "-")
            codes.append(quoted(text))
        rows.append([name, *cells])
        if name in QUOTED:
            quotes.append((name, *codes))
    head = ["function", "moved, switch off (eager only / compiled only)", "elements that differ", "moved, switch on", "elements that differ "]
    table(head, rows)
    if options.write:
        made = ["| " + " | ".join(r) + " |" for r in ([h.strip() for h in head], ["---"] * len(head), *rows)]
        for name, off, on in quotes:
            made += ["", f"**{name}**, off:", "```", *off, "```", "on, where it differs:" if on != off else "on: the same."]
            made += ["```diff", *list(difflib.unified_diff(off, on, n=0, lineterm=""))[2:], "```"] if on != off else []
        text = PAGE.read_text() if PAGE.exists() else MARK
        PAGE.write_text(text.split(MARK)[0] + MARK + "\n" + "\n".join(made) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
