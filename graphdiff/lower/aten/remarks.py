"""What a recorder met that a reader of its program must know."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Remarks:
    """Names of ops, by what is to be said of them."""

    random: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    """Nobody told us the schedule: inputs are read, outputs are new leaves."""
    integers: list[str] = field(default_factory=list)
    """What made or changed integers whose origin in floats is not followed."""
    wide: list[str] = field(default_factory=list)
    """Ops in float64, evaluated in float32."""

    def notes(self) -> tuple[str, ...]:
        """A sentence for each kind that was met."""
        said = (
            ("random numbers are taken as they fell", self.random),
            ("opaque, schedule unknown", self.opaque),
            ("integers made from floats are plain numbers after", self.integers),
            ("float64, evaluated in float32", self.wide),
        )
        return tuple(f"{what}: {', '.join(sorted(set(ops)))}" for what, ops in said if ops)
