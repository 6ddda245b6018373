#!/bin/sh
# Two processes with two devices each, on the loopback address: sh examples/two_processes.sh [port]
cd "$(dirname "$0")" || exit 1
export JAX_PLATFORMS=cpu XLA_FLAGS="--xla_force_host_platform_device_count=2"
address="127.0.0.1:${1:-8476}"
python two_processes.py 1 "$address" &
python two_processes.py 0 "$address"
code=$?
wait $! && exit $code
