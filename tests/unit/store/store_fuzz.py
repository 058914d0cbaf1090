"""Mutated captures, read one after the other: `python store_fuzz.py SEED COUNT`. Prints how many loaded; 0 if all is well.

Run with a memory limit by test_store_fuzz.py. What loads is also read to the last array and evaluated.
"""

from __future__ import annotations

import copy
import random
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from store_programs import put_together, random_capture, take_apart, with_header

from graphdiff.errors import GraphdiffError
from graphdiff.program import Evaluation
from graphdiff.store import Capture, decode_capture, encode_capture

FORBIDDEN = ("exec", "compile", "import", "pickle.", "os.", "subprocess.", "socket.", "ctypes.", "open", "marshal.", "shutil.")
LITTLE = 1_000_000
"""Elements up to which what loads is evaluated as well."""

watching = False


def audit(event: str, args: tuple) -> None:
    if watching and event.startswith(FORBIDDEN):
        print("reading a capture did:", event, args, file=sys.stderr)
        raise SystemExit(3)


def flips(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 10, 100])):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def truncation(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def insertion(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.choice([1, 4, 100, 5000])) + data[at:]


def splice(data: bytes, rng: random.Random) -> bytes:
    other = BASES[rng.randrange(len(BASES))]
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)):]


def header_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes of the header changed before its checksum is made."""
    arrays, content, stored = take_apart(data)
    how = rng.choice([flips, truncation, insertion])
    return with_header(how(msgspec.msgpack.encode([arrays, content]), rng), stored)


def structured(data: bytes, rng: random.Random) -> bytes:
    """Values anywhere in the header replaced, removed, repeated or swapped."""
    arrays, content, stored = take_apart(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        nodes = content.get("nodes")
        everywhere = rng.random() < 0.3 or not isinstance(nodes, list) or not nodes
        holder, key = rng.choice(places([arrays, content] if everywhere else nodes))
        if isinstance(old := holder[key], dict) and holder[key] is content:
            continue
        action = rng.randrange(6)
        if action == 0 and isinstance(holder, dict):
            del holder[key]
        elif action == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old))
        elif action == 2 and isinstance(old, list):
            rng.shuffle(old)
        elif action == 3 and isinstance(old, int):
            holder[key] = old + rng.choice([-1, 1, 2, -5, 1 << 31, 1 << 33, 1 << 62])
        else:
            alike = [v for v in VALUES if type(v) is type(old)]
            holder[key] = copy.deepcopy(rng.choice(VALUES if not alike or rng.random() < 0.2 else alike))
    try:
        return put_together(arrays, content, stored)
    except OverflowError:
        return data


VALUES: list[Any] = [
    -1, 0, 1, 3, 255, 1 << 31, 1 << 40, (1 << 64) - 1, -(1 << 63), 1.5, float("nan"), float("inf"), "", "add", "mm", "round", "sum",
    "attention", "opaque", "const", "leaf", "gather", "affine", "whole", "bfloat16", "float64", "uint8", "int64", "\x1b[31m", "x" * 10_000,
    None, True, b"\x80\x04.", [], {}, [0], [1], [4, 6], [6, 4], [0, 0], [-1], [1 << 33], {"axes": [0]}, {"axes": []}, {"axis": 0},
    {"value": 1.0}, {"scale": 1.0}, {"mode": "stochastic"}, [[]], [[[[[[[]]]]]]], msgspec.msgpack.Ext(-1, bytes(4)), msgspec.msgpack.Ext(3, b"abc")]


def places(tree: Any) -> list[tuple[Any, Any]]:
    found, stack = [], [tree]
    while stack:
        x = stack.pop()
        for key in x if isinstance(x, dict) else range(len(x)):
            found.append((x, key))
            if isinstance(x[key], (dict, list)):
                stack.append(x[key])
    return found


def read_all(data: bytes) -> Capture:
    capture = decode_capture(data, "fuzzed")
    for part in capture.program.blobs, capture.program.data.values(), capture.sources.values():
        list(part)
    if capture.probe:
        list(capture.probe.pins.values())
    return capture


def evaluate(capture: Capture) -> None:
    program = capture.program
    sizes = [n.size for n in program.nodes] + [int(np.prod(o.shape)) for n in program.nodes for o in n.operands]
    sizes += [int(np.prod(o.operand.shape)) for o in program.outputs]
    if sum(sizes) > LITTLE or any(n.attrs.get("mode") == "stochastic" for n in program.nodes):
        return
    for i in range(len(program.outputs)):
        try:
            Evaluation(program, program.data).output(i)
        except GraphdiffError:
            pass


HOW: list[Callable[[bytes, random.Random], bytes]] = [flips, truncation, insertion, splice, header_bytes, structured, structured, structured]
BASES: list[bytes] = []


def main(seed: int, count: int) -> int:
    global watching
    BASES.extend(encode_capture(random_capture(s)) for s in range(8))
    for base in BASES:
        evaluate(read_all(base))
    sys.addaudithook(audit)
    rng, loaded, slowest = random.Random(seed), {}, 0.0
    for i in range(count):
        how = rng.choice(HOW)
        data = how(rng.choice(BASES), rng)
        start = time.perf_counter()
        watching = True
        try:
            capture = read_all(data)
        except GraphdiffError as e:
            watching = False
            text = str(e)
            assert "\n" not in text and len(text) < 1000 and "fuzzed" in text, text
            capture = None
        watching = False
        slowest = max(slowest, time.perf_counter() - start)
        if capture is not None:
            evaluate(capture)
            loaded[how.__name__] = loaded.get(how.__name__, 0) + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{count} read, loaded {loaded}, slowest {slowest:.3f} s, peak {peak} MiB")
    assert slowest < 5
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
