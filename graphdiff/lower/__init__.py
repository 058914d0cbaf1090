"""What ran -> program: eager ATen (aten/), Inductor's output code and Triton kernels (inductor/)."""
