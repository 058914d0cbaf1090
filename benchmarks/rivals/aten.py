"""An eager function as a graph of ATen arithmetic ops: what both rivals see. Views and casts are contracted."""

from dataclasses import dataclass, field

import torch
from torch.fx.experimental.proxy_tensor import make_fx

LOW = {torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2}
LAYOUT = set(
    "view _unsafe_view reshape transpose permute t unsqueeze squeeze expand slice select split split_with_sizes "
    "chunk unbind cat stack clone contiguous alias detach lift_fresh lift_fresh_copy getitem repeat "
    "view_as_real view_as_complex _to_copy copy_".split()
)


@dataclass
class Op:
    """One arithmetic op. `rounded`: its value is stored in a low-precision dtype, at once or after layout ops."""

    name: str
    op: str
    rounded: bool
    reads: list[int] = field(default_factory=list)
    value: torch.Tensor | None = None


def opname(node) -> str:
    packet = getattr(node.target, "_overloadpacket", node.target)
    return getattr(packet, "__name__", str(packet))


def ops(function, inputs, values=False) -> list[Op]:
    """The arithmetic ops of the function's graph, in its order."""
    traced = make_fx(function)(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    run = _Run(traced)
    with torch.no_grad():
        run.run(*inputs)
    sources: dict = {}        # node -> indices of the ops its value comes from
    found: list[Op] = []
    for node in traced.graph.nodes:
        below = [i for a in node.all_input_nodes for i in sources.get(a, [])]
        if node.op != "call_function":
            sources[node] = []
        elif opname(node) in LAYOUT:
            sources[node] = below
            if _low(run.dtypes.get(node)):
                for i in below:
                    found[i].rounded = True
        else:
            sources[node] = [len(found)]
            value = run.kept.get(node) if values else None
            found.append(Op(node.name, opname(node), _low(run.dtypes.get(node)), sorted(set(below)), value))
    return found


def _low(dtype) -> bool:
    return dtype in LOW


class _Run(torch.fx.Interpreter):
    """Runs the graph and keeps dtypes and values."""

    def __init__(self, module):
        super().__init__(module, garbage_collect_values=False)
        self.dtypes, self.kept = {}, {}

    def run_node(self, node):
        result = super().run_node(node)
        if isinstance(result, torch.Tensor):
            self.dtypes[node], self.kept[node] = result.dtype, result
        return result
