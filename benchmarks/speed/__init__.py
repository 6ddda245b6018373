"""Lamu's speed beside other libraries: one table, made by `make bench` or `make bench-quick`."""
