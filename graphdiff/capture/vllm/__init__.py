"""vLLM: what the engine compiles, and the CUDA code of every compiled piece.

Importing this imports neither torch nor vllm: the engine loads `plugin` in every process it starts.
"""
