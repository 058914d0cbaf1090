"""Captures on disk: data only, versioned, bounded, equal bytes for equal input."""

from graphdiff.store.capture_file import check_output, decode_capture, encode_capture, read_capture, write_capture
from graphdiff.store.model import Capture, CaptureInfo, KernelInfo, ModelInfo, ProbeTokens

__all__ = ["Capture", "CaptureInfo", "KernelInfo", "ModelInfo", "ProbeTokens", "check_output", "decode_capture",
           "encode_capture", "read_capture", "write_capture"]
