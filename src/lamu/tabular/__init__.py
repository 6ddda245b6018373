"""Models for tables: candidates trained over folds and mixed by stacking weights from held-out rows."""

from lamu.tabular.stacked_fit import StackedFit, fit_table

__all__ = ["StackedFit", "fit_table"]
