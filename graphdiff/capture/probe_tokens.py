"""The probe: which tokens both sides read. A few, all different, at positions above 0, where RoPE is no identity."""

from __future__ import annotations

from typing import Any

from graphdiff.errors import GraphdiffError

FIRST_POSITION = 5
MOST = 4096


def probe_tokens(config: dict[str, Any], tokens: int) -> tuple[list[int], list[int]]:
    """(token ids, positions) for a model config. Raises GraphdiffError if it cannot hold so many."""
    vocabulary = int(config.get("vocab_size") or config.get("text_config", {}).get("vocab_size") or 0)
    if not 1 <= tokens <= MOST:
        raise GraphdiffError(f"{tokens} probe tokens", fix=f"--tokens takes 1 to {MOST}")
    longest = int(config.get("max_position_embeddings") or 0)
    if longest and FIRST_POSITION + tokens > longest:
        raise GraphdiffError(f"{tokens} probe tokens at position {FIRST_POSITION} exceed the model's {longest} positions",
                             fix="use fewer --tokens")
    step = next(s for s in (37, 41, 43, 1) if vocabulary % s or s == 1)
    ids = [(17 + step * i) % vocabulary if vocabulary else 17 + i for i in range(tokens)]
    return ids, [FIRST_POSITION + i for i in range(tokens)]
