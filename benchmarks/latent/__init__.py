"""The figures of latent variables: `python -m benchmarks.latent`."""
