"""What Inductor's `emulate_precision_casts` restores of eager's roundings, and what it does not.

Each function is compiled for cuda:90 with the switch off and on and compared with itself run eagerly: inference, and
training (forward and backward on the same made-up gradients of the results; eager is autograd on this CPU). `--write` puts
the tables into docs/emulate_precision_casts.md.
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
QUOTED_BACKWARD = ("x * sigmoid(y)", "RMSNorm", "scale + softmax")
MARK = "<!-- made by benchmarks/emulate_casts.py -->"
TABLES = ("RoPE",)  # cos and sin are tables: only the first input is trained


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


def compared(compiled: Any, eager: Any, name: str) -> Any:
    """The report of two recordings of one function, compiled and eager."""
    from graphdiff import pipeline
    from graphdiff.capture.header import function_header
    from graphdiff.probe import probe
    from graphdiff.store import Capture

    captures = []
    for recorded in (compiled, eager):
        data = probe(recorded.program, recorded.bits, static_rule=False, pin_anchors=False)
        recorded.program.data.update(recorded.bits)
        captures.append(Capture(function_header(f"{__file__}:{name}", 0, recorded), recorded.program, data, recorded.sources))
    return pipeline.compare_captures(*captures)


def inference(name: str, function: Any, args: tuple, on: bool) -> tuple[Any, str]:
    """(report of the compiled function against eager, its output code)."""
    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function, record_eager

    made = Function(function, args, function.__code__.co_varnames[: len(args)], __file__, function.__name__)
    compiled = record_compiled(made, "cuda:90", config_patches={"emulate_precision_casts": on})
    return compared(compiled, record_eager(made), function.__name__), compiled.sources["output_code"]


def training(name: str, function: Any, args: tuple, on: bool) -> tuple[Any, str]:
    """As `inference`, forward and backward; the text is the backward's."""
    import torch

    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function, record_eager

    names = function.__code__.co_varnames[: len(args)]
    trained = 1 if name in TABLES else len(args)
    args = tuple(t.detach().clone().requires_grad_(i < trained) for i, t in enumerate(args))
    compiled = record_compiled(Function(function, args, names, __file__, function.__name__), "cuda:90", backward=True,
                               config_patches={"emulate_precision_casts": on})
    grads = gradients(compiled)

    def step(*given: Any) -> tuple:
        inputs = [t.detach().requires_grad_(i < trained) for i, t in enumerate(given[: len(args)])]
        with torch.enable_grad():
            made = function(*inputs)
            results = made if isinstance(made, tuple) else (made,)
            outer = [g.reshape(r.shape) for g, r in zip(given[len(args) :], results, strict=True)]
            return *results, *torch.autograd.grad(results, inputs[:trained], outer)

    plain = tuple(t.detach() for t in args)
    names = (*names, *(f"grad_output{i}" for i in range(len(grads))))
    eager = record_eager(Function(step, (*plain, *grads), names, __file__, function.__name__))
    return compared(compiled, eager, function.__name__), compiled.sources["backward_code"]


def gradients(compiled: Any) -> list[Any]:
    """The made-up gradients of the results that a recording with a backward has as leaves, as tensors."""
    import torch

    found = {}
    for i, node in enumerate(compiled.program.nodes):
        name = str(node.attrs.get("name", "")) if node.op == "leaf" else ""
        if name.startswith("grad_output"):
            found[name] = torch.from_numpy(compiled.bits[i].copy()).view(getattr(torch, node.dtype))
    return [found[f"grad_output{i}"] for i in range(len(found))]


def described(report: Any) -> str:
    """`2 / 0: residual + x, ...`: only eager rounds / only the compiled code rounds."""
    counts = f"{report.summary.moved.training} / {report.summary.moved.inference}"
    texts = [f"`{_text(m)}`" + (" (the compiled code)" if m.rounded_in == "inference" else "") for r in report.regions for m in r.moved]
    return f"{counts}: {', '.join(texts)}" if texts else counts


def _text(moved: Any) -> str:
    """The line that forms the value; of the backward, whose ops have none, the op."""
    own = moved.formed_in("training")
    text = own.text or moved.value
    return f"{own.kernel or own.node} of the backward" if "autograd.grad" in text else text


def quoted(text: str) -> list[str]:
    """What the kernels compute (not where they find it), and the matmuls."""
    lines = [re.sub(r", (eviction_policy|rmask)='?\w+'?", "", line.strip()) for line in text.splitlines()]
    return [line for line in lines if re.match(r"_?tmp\d+ = |tl\.store|extern_kernels\.", line)]


def rows_and_quotes(measured: Any, wanted: tuple[str, ...]) -> tuple[list[list[str]], list[str]]:
    """A table row per function, and the quoted kernels as lines of Markdown."""
    rows, quotes = [], []
    for name, (function, args) in cases().items():
        cells, codes = [], []
        for on in (False, True):
            report, text = measured(name, function, args, on)
            whole = report.whole_program
            cells.append(described(report))
            cells.append(f"{whole.before.differing} of {whole.before.elements}" if whole and whole.before else "-")
            codes.append(quoted(text))
        rows.append([name, *cells])
        if name in wanted:
            off, on_ = codes
            quotes += ["", f"**{name}**, off:", "```", *off, "```", "on, where it differs:" if on_ != off else "on: the same."]
            quotes += ["```diff", *list(difflib.unified_diff(off, on_, n=0, lineterm=""))[2:], "```"] if on_ != off else []
    return rows, quotes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ["function", "moved, switch off (eager only / compiled only)", "elements that differ", "moved, switch on", "elements that differ"]
    made = []
    for title, measured, wanted in (("Inference", inference, QUOTED), ("Training: forward and backward", training, QUOTED_BACKWARD)):
        rows, quotes = rows_and_quotes(measured, wanted)
        print(title)
        table(head, rows)
        kernels = "Kernels" if measured is inference else "Kernels of the backward"
        made += ["", f"## {title}", "", *("| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *rows)), "", f"### {kernels}", *quotes]
    if options.write:
        text = PAGE.read_text() if PAGE.exists() else MARK
        PAGE.write_text(text.split(MARK)[0] + MARK + "\n" + "\n".join(made) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
