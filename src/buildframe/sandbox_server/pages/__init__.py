"""Stubs of web pages and images, and the addresses that receive pushes."""
