"""Tables: candidates of several sizes, trained together over folds and mixed by how well they predict held-out rows."""

from lamu.tabular.stacked_fit import StackedFit, fit_table

__all__ = ["StackedFit", "fit_table"]
