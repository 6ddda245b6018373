"""One run over the devices of two processes, of which each has read half of the rows: see two_processes.sh."""

import sys

import jax
import numpy as np

import lamu

if len(sys.argv) > 1:  # alone it is a run of one process
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[1]))

number = jax.process_index()
x, y = lamu.data.load("diabetes")
own = np.arange(number, len(y), jax.process_count())  # this process's share of the rows
model = lamu.Model(lamu.networks.MLP((32,)), lamu.likelihoods.Gaussian()).standardised(x, y)
mesh = jax.make_mesh((jax.device_count(),), ("data",))
fit = lamu.fit(model, (x[own], y[own]), lamu.algorithms.ivon(0.1), epochs=20, validation=0.2, mesh=mesh)
if number == 0:
    print(f"validation, nats a row: {fit.history['validation_nll'].min():.3f}, over {jax.device_count()} devices")
