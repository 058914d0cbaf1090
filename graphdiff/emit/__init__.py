"""From a region of the comparison to kernels that round where the engine rounds.

  region_ir, lift  the engine's program -> regions in row-wise form (ir.py), or a reason why not
  backward         the derivative of a region, in the same form
  triton_source    a region as Triton code; torch_reference: the same in plain torch
  operators        a region as custom operators of torch: the text around the kernels
  package          the files of a self-contained kernels package
"""

from graphdiff.emit.ir import RegionIR, Refused
from graphdiff.emit.operators import emit_region
from graphdiff.emit.package import emit_package, package_digest
from graphdiff.emit.region_ir import extract_regions
from graphdiff.emit.signature import EmittedRegion, Signature, Tensor

__all__ = ["EmittedRegion", "Refused", "RegionIR", "Signature", "Tensor", "emit_package", "emit_region", "extract_regions", "package_digest"]
