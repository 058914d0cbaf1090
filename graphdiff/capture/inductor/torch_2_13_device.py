"""torch 2.13: a CUDA device that is not there, and what Inductor writes for it. Used by `torch_2_13` alone."""

import contextlib
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch._dynamo import device_interface
from torch._subclasses.fake_tensor import FakeTensorMode

from graphdiff.capture.inductor.targets import Target


# A kernel's file lies in a scratch folder of its own: its last two parts say the same in every run.
_KERNEL_PATH = re.compile(r"^(# kernel path: ).*?([^/\n]+/[^/\n]+)$", re.M)


@dataclass
class WrittenGraph:
    """What Inductor wrote for one AOT graph."""

    text: str
    is_backward: bool
    input_names: list[str]
    outputs: int
    kernel_sources: dict[str, list[str]]


@dataclass
class Recorder:
    """Collects the graphs that Inductor writes while it believes in a CUDA device."""

    graphs: list[WrittenGraph] = field(default_factory=list)
    kernel_sources: dict[str, list[str]] = field(default_factory=dict)

    def take(self, lowering: Any) -> types.ModuleType:
        """In place of loading the written module: keep its text, return a module that cannot run."""
        self.kernel_sources = {}
        written, _ = lowering.codegen()
        self.graphs.append(
            WrittenGraph(
                text=_KERNEL_PATH.sub(r"\1\2", written.value),
                is_backward=bool(lowering.is_backward),
                input_names=list(lowering.graph_input_names),
                outputs=len(lowering.graph_outputs),
                kernel_sources=self.kernel_sources,
            )
        )
        return self.announced(lowering, written)

    def announced(self, lowering: Any, written: Any) -> types.ModuleType:
        """As torch goes on: what TORCH_TRACE and TORCH_LOGS ask for is logged; the module is neither kept nor loaded."""
        from torch._inductor.codecache import PyCodeCache

        module = unloaded_module(written.value)
        with (
            mock.patch.object(PyCodeCache, "write", lambda text, *args, **kwargs: ("graphdiff", "/dev/null")),
            mock.patch.object(PyCodeCache, "load_by_key_path", lambda *args, **kwargs: module),
        ):
            return lowering._compile_to_module_lines(written)


def unloaded_module(text: str) -> types.ModuleType:
    """What Inductor takes for the module of its output code, and cannot run."""
    module = types.ModuleType("graphdiff_output_code")
    module.__file__ = "/dev/null"
    module.__dict__.update(call=_never_run, key="", cache_key="", cache_path="/dev/null", value=text)
    return module


@contextlib.contextmanager
def fake_device(recorder: Recorder, target: Target) -> Iterator[None]:
    """Inductor believes in one CUDA device of kind `target`; its text goes to `recorder`."""
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.fx_passes import joint_graph, misc_patterns
    from torch._inductor.graph import GraphLowering
    from triton.runtime import driver

    device_interface.get_registered_device_interfaces()
    interface = _interface(target)
    define_kernel = TritonScheduling.define_kernel
    deduce_value = joint_graph.UniformValueConstantFolder._deduce_value

    def recording_define_kernel(self: Any, source: str, schedule: Any, kernel: Any) -> str:
        name = define_kernel(self, source, schedule, kernel)
        recorder.kernel_sources.setdefault(name, _dynamo_nodes(schedule))
        return name

    def deduce_on_cpu(self: Any, node: Any) -> Any:
        """A constant that is folded is made for real, which no fake device can do."""
        if node.op != "call_function" or getattr(node.kwargs.get("device"), "type", "") != "cuda":
            return deduce_value(self, node)
        kwargs = node.kwargs
        node.kwargs = {**kwargs, "device": torch.device("cpu")}
        try:
            return deduce_value(self, node)
        finally:
            node.kwargs = kwargs

    properties = types.SimpleNamespace(**{**vars(target), "name": target.device_name})
    with contextlib.ExitStack() as stack:
        stack.callback(_forget_device)
        for patch in (
            mock.patch.dict(device_interface.device_interfaces, {"cuda": interface, "cuda:0": interface}),
            mock.patch.object(torch.cuda, "get_device_properties", lambda device=None: properties),
            mock.patch.object(torch.cuda, "get_device_capability", lambda device=None: (target.major, target.minor)),
            mock.patch.object(torch.cuda, "current_device", lambda: 0),
            mock.patch.object(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
            mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            mock.patch.object(torch.cuda, "device_count", lambda: 1),
            # A CUDA build may infer from that count that there is a device whose random state must be kept.
            mock.patch.object(torch.cuda, "is_available", lambda: False),
            mock.patch.object(driver, "_active", _TritonDriver(target)),
            # Fake tensors must not try the device, whatever the process has been told about it.
            mock.patch.object(FakeTensorMode, "avoid_device_init", property(lambda mode: True)),
            # Two patterns about randperm, whose registration makes a real tensor on the device.
            mock.patch.object(misc_patterns, "_misc_patterns_init", lambda input_device=None: None),
            mock.patch.object(joint_graph.UniformValueConstantFolder, "_deduce_value", deduce_on_cpu),
            mock.patch.object(TritonScheduling, "define_kernel", recording_define_kernel),
            mock.patch.object(GraphLowering, "_compile_to_module", lambda lowering: recorder.take(lowering)),
        ):
            stack.enter_context(patch)
        _forget_device()
        yield


def _interface(target: Target) -> type:
    """The device interface that Inductor asks about CUDA."""
    properties = types.SimpleNamespace(**{**vars(target), "name": target.device_name})
    answers: dict[str, Any] = {
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        "synchronize": lambda *args: None,
        "get_device_properties": lambda device=None: properties,
        "get_raw_stream": lambda index=0: 0,
        "exchange_device": lambda device: 0,
        "maybe_exchange_device": lambda device: 0,
        "is_available": lambda: True,
        "is_bf16_supported": lambda including_emulation=False: True,
        "get_compute_capability": lambda device=None: target.capability,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
    }
    worker = {name: staticmethod(answers[name]) for name in ("set_device", "current_device", "get_device_properties")}
    members = {name: staticmethod(answer) for name, answer in answers.items()}
    members["Worker"] = type("Worker", (), worker)
    return type("FakeCudaInterface", (device_interface.CudaInterface,), members)


class _TritonDriver:
    """The driver that Triton's code generation asks for its target."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.target.capability, self.target.warp_size)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


def _forget_device() -> None:
    """Clear what torch remembers about devices, so that neither side sees the other's answers."""
    import torch.utils._triton as triton_support
    from torch._inductor.runtime.hints import DeviceProperties

    # Everything in that module that is remembered: its functions ask for the device and for what Triton has.
    for function in (*vars(triton_support).values(), DeviceProperties.create):
        clear = getattr(getattr(function, "__func__", function), "cache_clear", None)
        if clear is not None:
            clear()


def _never_run(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("code that was only written was called")


def _dynamo_nodes(schedule: Any) -> list[str]:
    """The Dynamo nodes that a kernel computes, in graph order; also of a combo kernel, which keeps them one deeper."""
    parts = [part for node in schedule for part in (node.get_nodes() if hasattr(node, "get_nodes") else ())]
    origins = {o for part in parts if part.node is not None for o in part.node.origins if o.op == "call_function"}
    place = {node: i for graph in {o.graph for o in origins} for i, node in enumerate(graph.nodes)}
    found = [o.meta["from_node"][0].name for o in sorted(origins, key=lambda o: place[o]) if o.meta.get("from_node")]
    return list(dict.fromkeys(found))
