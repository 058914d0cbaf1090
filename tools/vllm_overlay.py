"""A folder for PYTHONPATH with a version of vllm that has no CPU build: `python tools/vllm_overlay.py WHEEL FOLDER`.

WHEEL is the CUDA build, as `pip download --no-deps vllm==0.33.0` brings it. Its Python files are taken, under a version that
ends in +cpu, by which vllm knows its platform, and a module that declares the names of the custom ops its passes look up.
There are no kernels: such an engine compiles and is captured (`--target cuda:90`, and native, compiled), and cannot run.
"""

import re
import sys
import zipfile
from pathlib import Path

PACKAGE = re.compile(r"vllm/.*\.(py|json)|vllm-[^/]+\.dist-info/[^/]+")
LOOKED_UP = re.compile(r"torch\.ops\._C\.([a-z0-9_]+)")


def main(wheel: str, folder: str) -> int:
    target = Path(folder)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if PACKAGE.fullmatch(name)])
    (metadata,) = target.glob("vllm-*.dist-info/METADATA")
    metadata.write_text(re.sub(r"(?m)^(Version: [0-9.]+)$", r"\1+cpu", metadata.read_text("utf-8"), count=1), "utf-8")
    passes = sorted((target / "vllm" / "compilation").rglob("*.py"))
    names = sorted({name for file in passes for name in LOOKED_UP.findall(file.read_text("utf-8"))})
    lines = ["import torch", '_library = torch.library.Library("_C", "FRAGMENT")', f"for _name in {names!r}:", '    _library.define(f"{_name}(Tensor x) -> Tensor")']
    (target / "vllm" / "_C.py").write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{target}: {metadata.parent.name}, {len(names)} names of ops")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
