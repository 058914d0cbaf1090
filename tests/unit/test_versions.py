"""Supported versions: every entry has its module, and where torch 2.14 is installed it captures and lowers as 2.13 does.

Only 2.13 is installed by default. For the last tests: a venv with torch 2.14 (docs/versions.md).
"""

import contextlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import types
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from graphdiff.capture.inductor import versions as torch_versions
from graphdiff.capture.vllm import versions as vllm_versions
from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor import Input, program_from_output_code
from graphdiff.lower.inductor.output_code import CHECKS

ROOT = Path(__file__).resolve().parents[2]


def installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


needs_2_14 = pytest.mark.skipif(not installed("torch").startswith("2.14."), reason="torch 2.14 is not installed")


@pytest.mark.parametrize("versions", [torch_versions, vllm_versions], ids=["torch", "vllm"])
def test_every_supported_version_has_its_module(versions):
    package = versions.__name__.rpartition(".")[0]
    for version, module in versions.MODULES.items():
        assert re.fullmatch(r"\d+\.\d+", version)
        assert importlib.util.find_spec(f"{package}.{module}"), f"{version} -> {module}"


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.14.1+cu130"])
def test_a_build_of_torch_is_known_by_its_version(version, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(torch_versions.importlib.metadata, "version", lambda name: version)
    chosen = torch_versions.backend()
    assert chosen.__name__.endswith(torch_versions.MODULES[version[:4]])
    for name in ("code_for_graph", "code_for_function", "native_code_for_function", "watched_graph", "compile_by_inductor", "option_types", "rounding_options"):
        assert callable(getattr(chosen, name)), name


def test_an_unknown_torch_is_refused_with_those_that_work(monkeypatch):
    monkeypatch.setattr(torch_versions.importlib.metadata, "version", lambda name: "2.15.0")
    with pytest.raises(GraphdiffError) as caught:
        torch_versions.backend()
    assert str(caught.value) == (
        "compiled code of torch 2.15.0 is not known here (supported: torch 2.13, 2.14): install one of them, "
        "or use `graphdiff capture dumps --any-torch` on its TORCH_TRACE"
    )


def test_an_unknown_vllm_is_refused_with_those_that_work(monkeypatch):
    monkeypatch.setattr(vllm_versions, "installed_version", lambda: "0.34.0")
    with pytest.raises(GraphdiffError) as caught:
        vllm_versions.engine()
    assert str(caught.value) == (
        "capturing vllm 0.34.0 is not supported (supported: vllm 0.33, 0.32, 0.31, 0.30, 0.29, 0.28): install one of them, "
        "or use `graphdiff capture dumps` on this engine's TORCH_TRACE"
    )


def test_0_33_sets_functorchs_options_while_a_piece_is_compiled(monkeypatch):
    """As its own compilers do: a context that is told whether the module may be compiled ahead of time."""
    pytest.importorskip("torch")
    from graphdiff.capture.vllm import vllm_0_32, vllm_0_33

    seen, installed = [], []

    @contextlib.contextmanager
    def set_functorch_config(use_aot_compile):
        seen.append(("in", use_aot_compile))
        yield
        seen.append(("out", use_aot_compile))

    fake = types.ModuleType("vllm.compilation.compiler_interface")
    fake.set_functorch_config = set_functorch_config
    for name in ("vllm", "vllm.compilation"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(vllm_0_32, "install_hooks", installed.append)
    vllm_0_33.install_hooks()
    with installed[0](types.SimpleNamespace(use_aot_compile=False)):
        assert seen == [("in", False)]
    assert seen == [("in", False), ("out", False)]
    assert (vllm_0_33.start_engine, vllm_0_33.forget_engine) == (vllm_0_32.start_engine, vllm_0_32.forget_engine)


def test_a_device_that_is_not_there_is_never_asked_for_its_random_state():
    """A CUDA build of torch may infer from the number of devices that there is one; vllm makes it do so."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from graphdiff.capture.inductor import target_named
    from graphdiff.capture.inductor.torch_2_13_device import Recorder, fake_device

    with fake_device(Recorder(), target_named("cuda:90")):
        assert torch.cuda.device_count() == 1 and not torch.cuda.is_available()


def test_a_version_with_no_cpu_build_becomes_an_overlay(tmp_path):
    """tools/vllm_overlay.py: the Python files of a wheel under a version that vllm takes for a CPU's."""
    with zipfile.ZipFile(tmp_path / "vllm.whl", "w") as wheel:
        for name, text in {
            "vllm/__init__.py": "", "vllm/compilation/passes/fix.py": "rope = [torch.ops._C.rotary_embedding.default, torch.ops._C.rms_norm]\n",
            "vllm/_C_stable_libtorch.abi3.so": "binary", "vllm-0.33.0.dist-info/METADATA": "Name: vllm\nVersion: 0.33.0\nRequires-Dist: torch==2.14.0\n",
        }.items():  # fmt: skip
            wheel.writestr(name, text)
    command = [sys.executable, str(ROOT / "tools" / "vllm_overlay.py"), str(tmp_path / "vllm.whl"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 names of ops" in done.stdout
    assert "\nVersion: 0.33.0+cpu\n" in (tmp_path / "out" / "vllm-0.33.0.dist-info" / "METADATA").read_text()
    assert "['rms_norm', 'rotary_embedding']" in (tmp_path / "out" / "vllm" / "_C.py").read_text()
    assert not list((tmp_path / "out").rglob("*.so"))


def test_an_engine_that_knows_no_breakable_cuda_graphs_has_none():
    from types import SimpleNamespace

    from graphdiff.capture.vllm.vllm_0_32_result import _breakable_cudagraph

    assert _breakable_cudagraph(SimpleNamespace()) is False  # vllm 0.28
    assert _breakable_cudagraph(SimpleNamespace(_uses_breakable_cudagraph_by_default=lambda: True)) is True


def test_what_2_14_writes_around_its_kernels_is_known():
    """Grouped layouts are checked (test_rare_schedules), metadata says nothing that a program needs."""
    text = "def call(args):\n    a, b = args\n    assert_size_stride_grouped((a, b), ((4, 2), (2, )), ((2, 1), (1, )), 'input')\n" \
           "    assert_tensor_metadata(a, None, None, torch.float32)\n    return (a, b)\n"
    given = [Input(name, np.zeros(shape, np.float32), "float32") for name, shape in (("a", (4, 2)), ("b", (2,)))]
    program, _ = program_from_output_code(text, given)
    assert [o.operand.shape for o in program.outputs] == [(4, 2), (2,)] and "assert_tensor_metadata" in CHECKS


def lowered(function, shapes, target="cuda:90"):
    import torch

    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function

    generator = torch.Generator().manual_seed(0)
    args = tuple(torch.randn(*shape, generator=generator).bfloat16() for shape in shapes)
    names = tuple(f"arg{i}" for i in range(len(args)))
    return Counter(n.op for n in record_compiled(Function(function, args, names, __file__, "f"), target).program.nodes)


@needs_2_14
@pytest.mark.parametrize("width", [512, 8192])
def test_softmax_of_2_14(width):
    import torch

    ops = lowered(lambda x: torch.softmax(x, -1), [(8, width)])
    assert ops["amax"] == 1 and ops["exp"] >= 1 and ops["round"] == 1


@needs_2_14
@pytest.mark.parametrize("target", ["cuda:90", "native"])
def test_silu_and_clamp_of_2_14(target):
    import torch

    ops = lowered(lambda x, y: torch.nn.functional.silu(x).clamp(-0.5, 0.5) * y, [(8, 256), (8, 256)], target)
    assert ops["round"] == 1 and ops["maximum"] == ops["minimum"] == 1
