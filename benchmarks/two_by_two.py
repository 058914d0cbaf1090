"""{vLLM compiled, in pieces (VLLM_COMPILE), eager} x {transformers eager, transformers compiled}, all on this machine's CPU.

    python benchmarks/two_by_two.py [MODEL] [--captures FOLDER]

Prints how many distinct values each cell rounds on one side only (training / inference), and the regions. Captures in
FOLDER are used again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from graphdiff import pipeline

ENGINES = {"vLLM compiled": "compiled", "vLLM in pieces": "vllm_compile", "vLLM eager": "eager"}
TRAINERS = {"HF eager": False, "HF compiled": True}


def captures(model: str, folder: Path) -> dict[str, Path]:
    """The four sides, those that are not there yet made."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, mode in ENGINES.items():
        found[name] = folder / f"{model}.vllm.{mode}.capture"
        if not found[name].exists():
            pipeline.capture_vllm(model, found[name], target="native", mode=mode)
    for name, compile in TRAINERS.items():
        found[name] = folder / f"{model}.transformers.{'compiled' if compile else 'eager'}.capture"
        if not found[name].exists():
            pipeline.capture_transformers(model, found[name], attn="sdpa", compile=compile)
    return found


def cells(model: str, folder: Path) -> dict[tuple[str, str], dict]:
    """Report of each cell as plain data (see CONTRACT's schema)."""
    from graphdiff.report.json_ import render

    import json

    made = captures(model, folder)
    return {(one, two): json.loads(render(pipeline.compare(str(made[one]), str(made[two])))) for one in ENGINES for two in TRAINERS}


def table(found: dict[tuple[str, str], dict]) -> str:
    lines = [f"{'':<14}" + "".join(f"{t:>44}" for t in TRAINERS)]
    for one in ENGINES:
        row = f"{one:<14}"
        for two in TRAINERS:
            moved = found[one, two]["summary"]["moved"]
            row += f"{moved['training']:>20} training, {moved['inference']:>2} inference"
        lines.append(row)
    for (one, two), report in found.items():
        lines += ["", f"{one} x {two}"]
        lines += [f"  {_names(region)}" for region in report["regions"]] or ["  nothing moved"]
    return "\n".join(lines)


def _names(region: dict) -> str:
    moved = ", ".join(f"{m['value']} [{m['rounded_in']}]" for m in region["moved"])
    proof = {True: "bits equal", False: "NOT proven", None: "not run"}[region["witness"]["transplant_bitwise"]]
    return f"{region['rule'] or region['id']}, {' '.join(region['modules'][:1])} x{region['instances']}: {moved} ({proof})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="qwen3-tiny")
    parser.add_argument("--captures", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphdiff-") as scratch:
        print(table(cells(given.model, given.captures or Path(scratch))))


if __name__ == "__main__":
    main()
