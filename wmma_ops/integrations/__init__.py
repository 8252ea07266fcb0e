"""Our ops inside other people's models. Each module needs its own package; none of them is imported with wmma_ops."""
