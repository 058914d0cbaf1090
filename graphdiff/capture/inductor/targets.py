"""CUDA devices as data: what Inductor asks of a device before it writes code for it."""

from dataclasses import dataclass

from graphdiff.errors import GraphdiffError


@dataclass(frozen=True)
class Target:
    """A CUDA device. The fields after `minor` have the names that torch's device properties have."""

    name: str
    device_name: str
    major: int
    minor: int
    multi_processor_count: int
    total_memory: int
    L2_cache_size: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block: int = 48 << 10
    regs_per_multiprocessor: int = 65536
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    warp_size: int = 32
    gcnArchName: str = ""

    @property
    def capability(self) -> int:
        """The compute capability as one number: 90 for 9.0."""
        return 10 * self.major + self.minor


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="cuda:80",
            device_name="NVIDIA A100-SXM4-80GB",
            major=8,
            minor=0,
            multi_processor_count=108,
            total_memory=80 << 30,
            L2_cache_size=40 << 20,
            shared_memory_per_block_optin=163 << 10,
            shared_memory_per_multiprocessor=164 << 10,
        ),
        Target(
            name="cuda:90",
            device_name="NVIDIA H100 80GB HBM3",
            major=9,
            minor=0,
            multi_processor_count=132,
            total_memory=80 << 30,
            L2_cache_size=50 << 20,
            shared_memory_per_block_optin=227 << 10,
            shared_memory_per_multiprocessor=228 << 10,
        ),
        Target(
            name="cuda:100",
            device_name="NVIDIA B200",
            major=10,
            minor=0,
            multi_processor_count=148,
            total_memory=180 << 30,
            L2_cache_size=126 << 20,
            shared_memory_per_block_optin=227 << 10,
            shared_memory_per_multiprocessor=228 << 10,
        ),
    )
}


NATIVE = "native"
"""As a target: this machine."""


def check_target(name: str) -> None:
    """Raises GraphdiffError unless captures can be made for the target: before anything runs."""
    if name != NATIVE:
        target_named(name)


def target_named(name: str) -> Target:
    """The target called `name`; an error that lists the known ones otherwise."""
    try:
        return TARGETS[name]
    except KeyError:
        known = ", ".join((NATIVE, *TARGETS))
        raise GraphdiffError(f"unknown target {name!r}", where="--target", fix=f"give one of {known}") from None
