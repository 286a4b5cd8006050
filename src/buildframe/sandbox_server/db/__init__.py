"""The database of the sandbox, and the serialization of its records."""
