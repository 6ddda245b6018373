"""Post-hoc posteriors: computed after an optimiser has found the mode."""
