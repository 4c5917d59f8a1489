"""One-liners for the frameworks whose graphs are planned: torch, jax, onnx."""
