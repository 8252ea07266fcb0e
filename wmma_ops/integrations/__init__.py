"""Our ops inside other people's models. Each module needs its own package, and is not imported with wmma_ops; `flash` needs
none, and is: it makes a name known to torch."""
