"""Supported versions: every entry has its module, and where torch 2.14 is installed it captures and lowers as 2.13 does.

Only 2.13 is installed by default. For the last tests: a venv with torch 2.14 (docs/versions.md).
"""

import importlib.metadata
import importlib.util
import re
from collections import Counter

import pytest

from graphdiff.capture.inductor import versions as torch_versions
from graphdiff.capture.vllm import versions as vllm_versions
from graphdiff.lower.inductor.output_code import CHECKS


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


def test_an_engine_that_knows_no_breakable_cuda_graphs_has_none():
    from types import SimpleNamespace

    from graphdiff.capture.vllm.vllm_0_32_result import _breakable_cudagraph

    assert _breakable_cudagraph(SimpleNamespace()) is False  # vllm 0.28
    assert _breakable_cudagraph(SimpleNamespace(_uses_breakable_cudagraph_by_default=lambda: True)) is True


def test_what_2_14_writes_around_its_kernels_is_known():
    assert {"assert_size_stride_grouped", "assert_tensor_metadata"} <= CHECKS


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
