"""A seeded simulation of the service, the network, the disk and the clock, all of which work against the library."""
