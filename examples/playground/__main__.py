"""Serves the playground to a browser: `python -m examples.playground [--port N]`, from the folder of the repository."""

import argparse
import sys

from examples.playground import serve


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 after Ctrl-C, and 2 where the port cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m examples.playground", description=__doc__)
    parser.add_argument("--port", type=int, default=8765, help="a port of this machine; 0 for any that is free")
    try:
        serve(
            parser.parse_args(arguments).port,
            lambda address: print(f"The playground is at {address} until Ctrl-C.", flush=True),
        )
    except ValueError as error:
        print(f"playground: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
