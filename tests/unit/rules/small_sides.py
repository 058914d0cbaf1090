"""A side without a probe: just enough of graphdiff.compare.side.Side for patterns to be matched on a built program."""

from collections import defaultdict
from types import SimpleNamespace

from graphdiff.program import Builder


class SmallSide:
    """Every read of an arith or anchor node is a row."""

    def __init__(self, builder: Builder) -> None:
        self.program = builder.program
        self.consumer, self.slot = [], []
        for n, node in enumerate(self.program.nodes):
            if node.kind in ("arith", "anchor", "opaque"):
                for slot in range(len(node.operands)):
                    self.consumer.append(n)
                    self.slot.append(slot)
        self.readers = defaultdict(list)
        for row in range(len(self.consumer)):
            for b in self.bases(row):
                self.readers[b].append(row)

    def is_exact(self, node):
        return self.program.nodes[node].kind in ("exact", "round")

    def bases_of_node(self, node):
        if not self.is_exact(node):
            return (node,)
        found = {b for o in self.program.nodes[node].operands for m in o.nodes for b in self.bases_of_node(m)}
        return tuple(sorted({b for b in found if self.program.nodes[b].op != "const"} or found))

    def bases(self, row):
        operand = self.program.nodes[self.consumer[row]].operands[self.slot[row]]
        return tuple(sorted({b for m in operand.nodes for b in self.bases_of_node(m)}))

    def moved(self, base):
        """A moved value: every read of a base."""
        return SimpleNamespace(reads=[SimpleNamespace(row=row, bases=(base,)) for row in self.readers[base]])
