"""Runs the real thing and keeps what it saw: engines, trainers, functions; models, and CUDA code with no GPU."""
