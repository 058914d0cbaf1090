"""Mutated captures through the command line in one process: `python cli_fuzz.py SEED COUNT FOLDER`.

Run with a memory limit by test_cli_fuzz.py. Every run ends with status 0, 1 or 2; 2 says one line on stderr; nothing of
the capture is executed; no traceback; seconds at most.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import random
import resource
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import store_fuzz
from store_fuzz import HOW, header_bytes, structured
from store_programs import random_capture, random_program

from graphdiff.cli.main import main
from graphdiff.errors import GraphdiffError
from graphdiff.probe import ProbeData, probe
from graphdiff.program import Builder, Program
from graphdiff.store import Capture, CaptureInfo, ModelInfo, ProbeTokens, decode_capture, encode_capture

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.", "socket.", "ctypes.", "pickle.", "marshal.load",
             "shutil.", "os.remove", "os.unlink", "os.rename", "os.mkdir", "os.chmod", "os.symlink")
watching = False


FUNCTIONS = (2, 3, 4, 5, 6, 7)
"""Seeds of functions that have values to compare."""


def audit(event: str, args: tuple) -> None:
    """Code from strings, processes, sockets, and files written are what a capture must never bring about."""
    if not watching:
        return
    bad = event.startswith(FORBIDDEN)
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        bad = str(args[0]) != "/dev/null"
    if bad:
        print("a capture brought about:", event, args, file=sys.__stderr__)
        sys.__stderr__.flush()
        import os

        os._exit(3)


def function(seed: int) -> bytes:
    """A capture of a random program that holds all its inputs."""
    program = random_program(seed, 8)
    bits = {n: b for n, b in program.data.items()}
    if any(node.op == "opaque" for node in program.nodes):
        return function(seed + 100)
    data = probe(program, bits, static_rule=False, pin_anchors=False)
    return encode_capture(Capture(CaptureInfo(kind="function", model=ModelInfo(name="f.py:f")), program, data, {"k.py": "tmp0 = 1\n"}))


def model(rounded: bool) -> bytes:
    """A small model capture: an anchor, a norm, a gate, weights left out."""
    b, numbers = Builder(), np.random.default_rng(3)

    def weight(name: str, *shape: int):
        return b.leaf(name, numbers.integers(0x3C00, 0x3F80, shape).astype(np.uint16), "bfloat16", keep=False)

    x = b.leaf("x", numbers.integers(0x3C00, 0x3F80, (4, 8)).astype(np.uint16), "bfloat16", dynamic=True)
    h = b.round(b.op("mm", x, weight("w", 8, 8)), "bfloat16")
    r = b.op("rsqrt", b.op("add", b.op("sum", b.op("mul", h, h), axes=(-1,)), 1e-3)).reshape(4, 1)
    y = b.op("mul", h, r)
    y = b.round(y, "bfloat16") if rounded else y
    y = b.round(b.op("mul", y, weight("g", 8)), "bfloat16")
    gate = b.op("div", y, b.op("add", b.op("exp", b.op("neg", y)), 1.0))
    out = b.op("mul", b.round(gate, "bfloat16") if rounded else gate, h)
    b.output("hidden", b.round(out, "bfloat16"))
    data = probe(b.program, b.leaf_bits, static_rule=True, pin_anchors=True)
    kind = "transformers" if rounded else "vllm"
    header = CaptureInfo(kind=kind, model=ModelInfo(name="tiny", fingerprint="f"), probe=ProbeTokens(tokens=[1, 2], positions=[3, 4]))
    return encode_capture(Capture(header, b.program, data, {}))


SAME_ARITY = (("add", "sub", "mul", "div", "pow", "maximum", "minimum", "copysign", "fmod"), ("exp", "neg", "rsqrt", "tanh", "log", "sign", "reciprocal"))


def meaning(data: bytes, rng: random.Random) -> bytes:
    """Ops, constants, formats, numbers and what the probe says changed, so that the file still is a capture (mostly)."""
    capture = decode_capture(data, "base")
    program, seen = capture.program, capture.probe
    arrays = {name: np.array(getattr(seen, name)) for name in ("value_sketch", "value_state", "exact_slot", "live", "thresholds", "hashes")}
    reads = {name: np.array(a) for name, a in seen.reads.items()}
    nodes, bits, pins, states = list(program.nodes), dict(program.data), dict(seen.pins), list(seen.states)
    outputs = list(program.outputs)
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        n = rng.randrange(len(nodes))
        node, kind = nodes[n], rng.randrange(10)
        if kind == 0:
            group = next((g for g in SAME_ARITY if node.op in g), (node.op,))
            nodes[n] = msgspec.structs.replace(node, op=rng.choice(group))
        elif kind == 1 and node.op == "const":
            nodes[n] = msgspec.structs.replace(node, attrs={"value": rng.choice([0.0, 1e300, -1e39, float("nan"), float("inf"), 3, 2**63])})
        elif kind == 2 and node.op == "round":
            how = {"mode": rng.choice(["rne", "rz", "up", "down", "stochastic"])}
            nodes[n] = msgspec.structs.replace(node, dtype=rng.choice(["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32"]), attrs=how)
        elif kind == 3 and node.operands:
            o = rng.choice([m for k in nodes[:n] for m in k.operands] or [node.operands[0]])
            nodes[n] = msgspec.structs.replace(node, operands=(*node.operands[:-1], o))
        elif kind == 4:
            a = arrays[rng.choice(sorted(arrays))]
            if a.size:
                a[rng.randrange(a.size)] = rng.choice([a[rng.randrange(a.size)], 0, 1])
        elif kind == 5:
            a = reads[rng.choice(sorted(reads))]
            if a.size:
                a[rng.randrange(a.size)] = rng.choice([a[rng.randrange(a.size)], 0, 1])
        elif kind == 6 and (held := pins if pins and rng.random() < 0.5 else bits):
            key = rng.choice(sorted(held))
            held[key] = np.array(held[key])
            raw = held[key].view(np.uint8).reshape(-1)
            raw[rng.randrange(raw.size):][:4] = rng.choice([0, 255, 127])
        elif kind == 7 and (held := rng.choice([pins, bits])):
            del held[rng.choice(sorted(held))]
        elif kind == 8 and states:
            states[rng.randrange(len(states))] = rng.choice([((), ()), (("bfloat16",), ("bfloat16",)), (("float16",), ("bfloat16:rz", "float16")),
                                                             ((), ("bfloat16:stochastic",)), (("bfloat16",), ())])
        else:
            rng.shuffle(outputs)
            outputs[0] = msgspec.structs.replace(outputs[0], operand=rng.choice([o for k in nodes for o in k.operands]))
    made = Program()
    made.nodes, made.sites, made.outputs, made.blobs, made.data = nodes, program.sites, outputs, list(program.blobs), bits
    probed = ProbeData(**{**{"offsets": seen.offsets}, **arrays}, reads=reads, states=states, pins=pins)
    try:
        return encode_capture(Capture(capture.header, made, probed, {}))
    except GraphdiffError:
        return data


def run(arguments: list[str]) -> tuple[int, str, str]:
    global watching
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        watching = True
        try:
            status = main(arguments)
        finally:
            watching = False
    return status, out.getvalue(), err.getvalue()


def fuzz(seed: int, count: int, folder: Path) -> int:
    warnings.simplefilter("error")
    functions, models = [function(s) for s in FUNCTIONS], [model(True), model(False)]
    store_fuzz.BASES.extend([*functions, *models, encode_capture(random_capture(1))])
    partners = {}
    for i, data in enumerate([*functions, *models]):
        (folder / f"partner{i}").write_bytes(data)
        partners[data] = str(folder / f"partner{i}")
    path = folder / "mutated.cap"
    for data in (*functions, *models):  # everything is imported and works before the watching begins
        path.write_bytes(data)
        assert run(["compare", str(path), partners[data]])[0] == 0, run(["compare", str(path), partners[data], "--debug"])
        assert run(["show", str(path)])[0] == 0
    assert run(["compare", partners[models[1]], partners[models[0]], "--format", "json"])[0] == 1
    codecs.lookup("ascii")  # what typer.echo asks for when it first says why a comparison ended with status 2
    sys.addaudithook(audit)
    rng, found, slowest, internal = random.Random(seed), Counter(), (0.0, ""), Counter()
    for i in range(count):
        base = rng.choice([*functions, *models])
        how = rng.choice([*HOW, structured, header_bytes, *[meaning] * 12])
        path.write_bytes(how(base, rng))
        other = partners[models[rng.randrange(2)]] if base in models else partners[base]
        command = rng.choice([["compare", str(path), other], ["compare", other, str(path)], ["show", str(path)]])
        command += ["--format", "json"] if rng.random() < 0.3 else []
        start = time.perf_counter()
        status, out, err = run(command)
        took = time.perf_counter() - start
        slowest = max(slowest, (took, f"{i} {how.__name__} {command}"))
        found[status] += 1
        bad = "Traceback" in out + err or status not in (0, 1, 2) or (status == 2) != (err.count("\n") == 1) or (status < 2 and err)
        bad = bad or any(not (c.isprintable() or c == "\n") for c in out + err)
        if bad:
            (folder / f"bad{i}").write_bytes(path.read_bytes())
            print(f"{i} {how.__name__} {command}: {status} {err[-300:]!r}", file=sys.stderr)
            return 1
        if "internal error" in err:
            internal[err.partition("internal error: ")[2][:100]] += 1
            (folder / f"internal{i}").write_bytes(path.read_bytes())
            print(f"internal{i} {command} {err}", file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{count} run, statuses {dict(sorted(found.items()))}, slowest {slowest}, peak {peak} MiB, internal {dict(internal)}")
    return 1 if internal or slowest[0] > 20 else 0


if __name__ == "__main__":
    raise SystemExit(fuzz(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
