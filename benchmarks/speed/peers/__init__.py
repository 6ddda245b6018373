"""The sides of peers that need an environment of their own: nothing here imports JAX or Lamu."""
