"""Posteriors of tables: candidate models trained over folds and mixed by their predictions of held-out rows."""

from lamu.tabular.stacked_fit import StackedFit, fit_table

__all__ = ["StackedFit", "fit_table"]
