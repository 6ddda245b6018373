"""Runs every benchmark that needs no data of one's own: `python -m benchmarks`, or `make bench`."""

from benchmarks import curvature, step_cost

if __name__ == "__main__":
    step_cost.main()
    curvature.main()
