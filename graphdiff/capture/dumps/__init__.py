"""Captures from what other machines wrote while they compiled: text and JSON, never executed, no torch, no engine."""

from graphdiff.capture.dumps.folder import read_dumps
from graphdiff.capture.dumps.graph import DumpedGraph, Dumps, pick
from graphdiff.capture.dumps.header import dumps_header
from graphdiff.capture.dumps.record import record_dump

__all__ = ["DumpedGraph", "Dumps", "dumps_header", "pick", "read_dumps", "record_dump"]
