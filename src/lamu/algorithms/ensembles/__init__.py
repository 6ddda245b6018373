"""Ensembles: posteriors of several runs, or of the iterates of one."""
