"""The rows of the table, one file a workload, with both sides of each."""
