"""Two products in one kernel: configurations, cost, and the kernel's text."""
