"""Checks and protections that any module may use: arguments, forks, interrupts, secrets."""
