"""One GPU session of a few minutes: are a patch's kernels right on this card, and what do they cost there?

`python benchmarks/gpu.py [--budget 240]` writes a patch for Qwen3-8B from fixtures/cuda-90 (or takes --package), then
  1. correctness: each operator's Triton kernels against the patch's plain torch path on the card, forward and backward,
     several shapes, edge inputs; bits where they are promised, a histogram of ulps elsewhere;
  2. medians (CUDA events, L2 flushed between runs) of forward and backward of each patched region and of a whole decoder
     layer: HF eager, unfused FP32 (the plain path), torch.compile, the patch, Liger-Kernel; launches, bytes, peak memory;
  3. results/gpu-DATE-CARD.json and .md, written again after each step, so that a session that is cut keeps what it has.
What is missing is skipped with a line; it stops by itself. --dry-run: the same on the CPU, tiny, without timing claims.
Exit status: 0; 1 an operator is wrong; 2 no CUDA here; 3 stopped by its watchdog.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from _gpu_regions import OPS, called, eager_region, forced, inputs, leaves, liger_region, run  # noqa: E402

FIXTURES = ROOT / "fixtures" / "cuda-90"
MOST_DIFFERING = 0.02
"""Share of elements of random inputs that may differ from plain torch: row sums, exp and contraction are other float32."""
GRADIENT_ERROR = 2.0**-7
PROMISED = {("input_norm", 0)}
"""(operator, output) made of float32 additions in one order and one rounding: the same bits on any device."""


class Session:
    """What was found so far, the time left, and the files it goes to."""

    def __init__(self, args: argparse.Namespace, device: str, card: str) -> None:
        self.started, self.budget = time.monotonic(), args.budget
        slug = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
        self.file = args.output / f"gpu-{time.strftime('%Y-%m-%d')}-{slug}.json"
        self.found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M"), "card": card, "device": device, "dry_run": args.dry_run,
                                      "correctness": {}, "times": {}, "skipped": []}

    def left(self) -> float:
        return self.budget - (time.monotonic() - self.started)

    def skip(self, what: str, why: Any) -> None:
        line = f"skipped {what}: {' '.join(str(why).split())[:200]}"
        self.found["skipped"].append(line)
        print(line, flush=True)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[bool]:
        """Its body runs in any case and looks at what it is given: False if no time is left. Errors become a line."""
        ready = self.left() > 0
        if not ready:
            self.skip(what, "the time budget is spent")
        try:
            yield ready
        except Exception as error:
            self.skip(what, f"{type(error).__name__}: {error}")
        self.write()

    def write(self) -> None:
        self.found["seconds"] = round(time.monotonic() - self.started, 1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.found, indent=1) + "\n")
        self.file.with_suffix(".md").write_text(markdown(self.found))

    def watch(self) -> None:
        """A call that never returns must not keep a rented card."""
        def stop() -> None:
            self.skip("the rest", "stopped by the watchdog")
            self.write()
            os._exit(3)

        timer = threading.Timer(1.25 * self.budget + 60, stop)
        timer.daemon = True
        timer.start()


# ---- correctness
def ulps(a: Any, b: Any) -> dict[str, int]:
    """Elements by distance in BF16 units; nan: one side alone is NaN."""
    import torch

    def place(x: Any) -> Any:
        bits = x.contiguous().view(torch.int16).to(torch.int32)
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    one, two = torch.isnan(a), torch.isnan(b)
    apart = (place(a) - place(b)).abs()[~(one | two)]
    return {"0": int((apart == 0).sum()) + int((one & two).sum()), "1": int((apart == 1).sum()), "2-3": int(((apart > 1) & (apart < 4)).sum()),
            "4+": int((apart > 3).sum()), "nan": int((one ^ two).sum())}


def total(found: list[dict[str, int]]) -> dict[str, int]:
    return {k: sum(f[k] for f in found) for k in found[0]}


def share(counts: dict[str, int]) -> float:
    return 1 - counts["0"] / max(1, sum(counts.values()))


def check(session: Session, ops: Any, op: str, config: Any, device: str) -> None:
    """One operator, every kind of input and shape."""
    from graphdiff.verify.inputs import NUMBERS

    found: dict[str, Any] = {"forward": {}, "backward": {}, "gradient_error": 0.0, "wrong": []}
    for kind in NUMBERS:
        forward, backward = [], []
        for shape in ((1, 64), (2, 7), (1, 1)):
            x = inputs(op, config, shape, kind, device)
            (got, grads), (wanted, reference) = (run(ops, op, x, config.rms_norm_eps, fused) for fused in (True, False))
            again, _ = run(ops, op, x, config.rms_norm_eps, True, backward=False)
            for i, (g, w, a) in enumerate(zip(got, wanted, again, strict=True)):
                forward.append(ulps(g, w))
                if (op, i) in PROMISED and share(forward[-1]):
                    found["wrong"].append(f"output {i}, promised bits, {kind} {shape}: {forward[-1]}")
                if share(ulps(g, a)):
                    found["wrong"].append(f"output {i}, {kind} {shape}: another run gives other bits")
            for n, w in reference.items():
                if w is None or grads[n] is None:
                    continue
                backward.append(ulps(grads[n], w))
                if kind == "random":
                    error = float((grads[n].double() - w.double()).norm() / w.double().norm().clamp_min(1e-300))
                    found["gradient_error"] = max(found["gradient_error"], error)
        found["forward"][kind], found["backward"][kind] = total(forward), total(backward)
    if share(found["forward"]["random"]) > MOST_DIFFERING:
        found["wrong"].append(f"{share(found['forward']['random']):.2%} of random outputs differ")
    if found["gradient_error"] > GRADIENT_ERROR:
        found["wrong"].append(f"gradients differ by {found['gradient_error']:.2g}")
    session.found["correctness"][op] = found
    print(f"{op:22} {'WRONG: ' + found['wrong'][0] if found['wrong'] else 'right'}; random outputs {found['forward']['random']}", flush=True)


# ---- time, bytes, launches, memory
def measured(step: Callable[[], None], session: Session, repeats: int, count_bytes: bool = True) -> dict[str, Any]:
    """Median and least milliseconds of `step`, its launches, the bytes at its operators' boundaries, its peak memory."""
    import torch

    cuda = session.found["device"] == "cuda"
    for _ in range(3 if cuda else 1):
        step()
    found: dict[str, Any] = {}
    if cuda:
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        found["peak_mib"] = round((torch.cuda.max_memory_allocated() - held) / 2**20, 1)
        found["launches"] = launches(step)
    if count_bytes:
        with Bytes() as counted:
            step()
        found["bytes"] = counted.bytes
    flush = torch.empty(2**26, dtype=torch.int32, device="cuda") if cuda else None
    times = []
    until = time.monotonic() + min(10.0, max(0.5, session.left()))
    while len(times) < repeats and (len(times) < 3 or time.monotonic() < until):
        if cuda:
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            step()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
    return {"ms": round(statistics.median(times), 4), "least_ms": round(min(times), 4), "repeats": len(times), **found}


def launches(step: Callable[[], None]) -> int:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    return sum(str(e.device_type).endswith("CUDA") and not e.name.startswith(("Memcpy", "Memset")) for e in seen.events())


def Bytes() -> Any:
    """A mode that counts every operator's distinct inputs and outputs; views count nothing."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def memory(x: Any) -> tuple[int, int]:
        """(where, bytes that are there): an expanded tensor has only what stands behind it."""
        distinct = 1
        for size, stride in zip(x.shape, x.stride()):
            distinct *= size if stride else 1
        return x.data_ptr(), distinct * x.element_size()

    class Count(TorchDispatchMode):
        bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            name = str(func)
            if not getattr(func, "is_view", False) and not name.startswith(("aten.detach", "aten._unsafe_view", "aten.empty", "aten.new_empty")):
                made = (*tree_leaves((args, kwargs)), *tree_leaves(out))
                self.bytes += sum(dict(memory(x) for x in made if isinstance(x, torch.Tensor) and x.numel()).values())
            return out

    return Count()


def backward_of(function: Callable[[], Any], wanted: list[Any], which: Callable[[tuple], tuple] = lambda out: out) -> Callable[[], None]:
    """A step: forward, then gradients of `wanted` from ones at the outputs that `which` picks."""
    import torch

    def step() -> None:
        out = function()
        out = which(out if isinstance(out, tuple) else (out,))
        out = [o for o in out if o.requires_grad]
        torch.autograd.grad(out, wanted, [torch.ones((), dtype=o.dtype, device=o.device).expand(o.shape) for o in out], allow_unused=True)

    return step


def regions(session: Session, ops: Any, names: list[str], config: Any, rotate: Any, args: argparse.Namespace, device: str) -> None:
    import torch

    eps = config.rms_norm_eps
    for op in names:
        base = inputs(op, config, (1, args.tokens), "random", device)
        for variant in ("HF eager", "unfused FP32", "torch.compile", "patch", "Liger"):
            with session.step(f"{op}, {variant}") as ready:
                if not ready or not compiles(session, f"{op}, {variant}"):
                    continue
                x = leaves(op, base, variant == "patch")
                wanted = [t for t in x.values() if t.requires_grad]
                if variant in ("unfused FP32", "patch"):
                    function = lambda: called(ops, op, x, eps, variant == "patch")  # noqa: B023, E731
                else:
                    own = liger_region(op, eps) if variant == "Liger" else eager_region(op, rotate, eps)
                    own = torch.compile(own) if variant == "torch.compile" else own
                    function = lambda: own(x)  # noqa: B023, E731
                record(session, op, variant, measured(backward_of(function, wanted), session, args.repeats, variant != "torch.compile"))


def compiles(session: Session, what: str) -> bool:
    """False, with a line, for what a dry run leaves out; else whatever was compiled before is forgotten."""
    import torch

    if "torch.compile" in what:
        if session.found["dry_run"]:
            session.skip(what, "a dry run compiles nothing")
            return False
        torch.compiler.reset()
    return True


def record(session: Session, what: str, variant: str, found: dict[str, Any]) -> None:
    session.found["times"].setdefault(what, {})[variant] = found
    print(f"{what:22} {variant:22} {found['ms']:9.3f} ms" + (f"  {found['launches']} launches" if "launches" in found else ""), flush=True)


# ---- a decoder layer
def layers(session: Session, package: Any, ops: Any, model: Any, manifest: dict[str, Any], args: argparse.Namespace, device: str) -> None:
    import torch

    base, config = model.model, model.config
    layer = base.layers[1]  # not the first: it reads what a layer before it hands on
    x = inputs("final_norm", config, (1, args.tokens), "random", device)
    tables = base.rotary_emb(x["mlp"], torch.arange(args.tokens, device=device)[None])

    def step(addends: list[Any], fused: bool, own: Any = layer) -> Callable[[], None]:
        # A later norm hands gradients back to the first addend and to the carry; plain torch to every addend.
        which = (lambda out: (out[0], out[-1]) if len(out) == 4 else out) if fused else lambda out: out
        return backward_of(lambda: own(*addends, position_embeddings=tables, attention_mask=None), [*layer.parameters(), *addends], which)

    parts = {name: True for name in manifest["parts"]}
    everything = {n: parts.get(n, False) for n in ("rope", "swiglu", "residual_rmsnorm")}
    for variant in ("HF eager", "torch.compile", "unfused FP32", "patch", "patch, torch.compile", "Liger"):
        with session.step(f"decoder layer, {variant}") as ready, contextlib.ExitStack() as stack:
            if not ready or not compiles(session, f"decoder layer, {variant}"):
                continue
            if variant == "Liger":  # last: it changes transformers' module
                from liger_kernel.transformers import apply_liger_kernel_to_qwen3

                apply_liger_kernel_to_qwen3(rope=True, rms_norm=True, swiglu=True, cross_entropy=False, fused_linear_cross_entropy=False, model=model)
            fused = variant.startswith("patch")
            patched = fused or variant == "unfused FP32"
            if patched:
                stack.enter_context(package.apply(model, **everything))
                stack.enter_context(forced(ops, fused))
            tensors = leaves("final_norm", x, fused)
            names = [n for n in ("mlp", "attn", "residual", "carry") if n in tensors] if patched and everything["residual_rmsnorm"] else ["mlp"]
            own = torch.compile(layer) if "compile" in variant else layer
            record(session, "decoder layer", variant,
                   measured(step([tensors[n] for n in names], fused, own), session, args.repeats, "compile" not in variant))


# ---- the whole session
def markdown(found: dict[str, Any]) -> str:
    lines = [f"# {found['card']}, {found['date']}", ""]
    if found["dry_run"]:
        lines += ["A dry run on a CPU with tiny shapes: its times say nothing.", ""]
    lines += [f"{found.get('model', '')}, {found.get('tokens', '')} tokens, BF16; {found.get('versions', '')}", "",
              "Kernels against the patch's plain torch path, elements by distance in BF16 units (0 / 1 / 2-3 / 4+ / one side NaN):", "",
              "| operator | verdict | random, forward | every kind, forward | random, backward | gradients, relative |", "|---|---|---|---|---|---|"]
    for op, c in found["correctness"].items():
        row = lambda h: " / ".join(f"{v:,}" for v in h.values())  # noqa: E731
        lines.append(f"| {op} | {'; '.join(c['wrong'][:3]) or 'right'} | {row(c['forward']['random'])} | {row(total(list(c['forward'].values())))} "
                     f"| {row(c['backward']['random'])} | {c['gradient_error']:.2g} |")
    lines += ["", "Forward and backward, median:", "", "| what | variant | ms | launches | MB at operators' boundaries | peak MiB |", "|---|---|---|---|---|---|"]
    for what, variants in found["times"].items():
        for variant, m in variants.items():
            size = f"{m['bytes'] / 1e6:,.1f}" if "bytes" in m else ""
            lines.append(f"| {what} | {variant} | {m['ms']:.3f} | {m.get('launches', '')} | {size} | {m.get('peak_mib', '')} |")
    return "\n".join([*lines, "", *[f"- {s}" for s in found["skipped"]]]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", type=Path, help="a patch that `graphdiff patch` wrote; default: one made from fixtures/cuda-90")
    parser.add_argument("--tokens", type=int, help="default 4096")
    parser.add_argument("--repeats", type=int, help="default 50")
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no new step starts")
    parser.add_argument("--output", type=Path, help="default benchmarks/results")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny shapes, the kernels' plain path")
    args = parser.parse_args()
    import torch

    if not args.dry_run and not torch.cuda.is_available():
        print("no CUDA device here: nothing was run (--dry-run runs it on the CPU)", file=sys.stderr)
        return 2
    device = "cpu" if args.dry_run else "cuda"
    args.tokens, args.repeats = args.tokens or (16 if args.dry_run else 4096), args.repeats or (3 if args.dry_run else 50)
    args.output = args.output or ROOT / ("build/benchmarks" if args.dry_run else "benchmarks/results")
    session = Session(args, device, "cpu-dry-run" if args.dry_run else torch.cuda.get_device_name())
    session.watch()
    with tempfile.TemporaryDirectory(prefix="graphdiff-") as folder:
        return session_in(session, Path(folder), args, device)


def session_in(session: Session, folder: Path, args: argparse.Namespace, device: str) -> int:
    import importlib

    import torch
    import transformers

    from graphdiff import pipeline
    from graphdiff.verify.package import load_package

    if args.package is None:
        captures = FIXTURES / ("qwen3-tiny" if args.dry_run else "qwen3-8b-base")
        args.package = folder / "benchmarked_patch"
        pipeline.patch(captures / "vllm.capture", captures / "transformers.capture", args.package)
    package, manifest = load_package(args.package)
    ops = importlib.import_module(f"{package.__name__}.ops")
    made = {op for p in manifest["parts"].values() for op in p["ops"]} - set(manifest["kernels"]["missing"])
    names = [op for op in OPS if op.replace("first_norm", "input_norm") in made]
    for op, why in manifest["kernels"]["missing"].items():
        session.skip(op, why)
    config = transformers.AutoConfig.for_model(manifest["model"]["type"], **manifest["model"]["config"], num_hidden_layers=2, vocab_size=1024)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    session.found |= {"model": manifest["model"]["name"], "tokens": args.tokens, "versions": versions}
    for op in names:
        with session.step(f"correctness of {op}") as ready:
            if ready:
                check(session, ops, op, config, device)
    rotate = importlib.import_module(manifest["model"]["module"]).apply_rotary_pos_emb  # before Liger puts its own there
    with session.step("decoder layer") as ready:  # first: it is what a session is for
        if ready:
            with torch.device(device):
                model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").train()
            layers(session, package, ops, model, manifest, args, device)
    regions(session, ops, names, config, rotate, args, device)
    session.write()
    print(f"wrote {session.file} and its .md after {session.found['seconds']} s")
    missed = [op for op in names if op not in session.found["correctness"]]
    return 1 if missed or any(c["wrong"] for c in session.found["correctness"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
