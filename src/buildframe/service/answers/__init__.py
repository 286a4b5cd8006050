"""The answer to each operation."""
