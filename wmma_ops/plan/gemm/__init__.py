"""One product: its configurations, their cost, and the kernel's text."""
