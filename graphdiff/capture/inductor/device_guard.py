"""The CUDA device guard that does nothing: compiled once per torch version, kept in the user's cache folder."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from graphdiff.capture.cache import cached_folder
from graphdiff.errors import GraphdiffError

LIBRARY = "noop_cuda_guard.so"
COMPILERS = ("c++", "g++", "clang++")


@functools.cache
def install_noop_cuda_guard() -> None:
    """Make fake CUDA tensors usable in this process; nothing is done where a GPU is present."""
    import torch

    if torch.cuda.is_available():
        return
    ctypes.CDLL(str(_library())).graphdiff_install_noop_cuda_guard()


def _library() -> Path:
    import torch

    source = Path(str(resources.files("graphdiff.capture.inductor") / "noop_cuda_guard.cpp"))
    content = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    return cached_folder("device_guard", f"torch-{torch.__version__}-{content}", lambda f: _build(source, f)) / LIBRARY


def _build(source: Path, folder: Path) -> None:
    import torch

    root = Path(torch.__file__).parent
    command = [
        _compiler(), "-O1", "-shared", "-fPIC", "-std=c++20",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{root / 'include'}", str(source), "-o", str(folder / LIBRARY), f"-L{root / 'lib'}", "-lc10",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines()
        raise GraphdiffError(
            "the CUDA device guard could not be compiled: " + (errors[0] if errors else "no message"),
            where=command[0],
            fix="install a C++ compiler that knows C++20, or set CXX to one",
        )


def _compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise GraphdiffError(
        "no C++ compiler found",
        where="CXX=" + wanted if wanted else "tried " + ", ".join(COMPILERS),
        fix="install one (apt-get install g++), or set CXX; CUDA code with no GPU needs one small library",
    )
