"""graphdiff: where two stacks that run the same weights round differently."""

__version__ = "0.1.0"
