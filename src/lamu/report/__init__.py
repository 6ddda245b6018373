"""The reports of `lamu fit` and `lamu compare`, each as one self-contained HTML file."""

# `fit_report` and `comparison_report` return the text of the file. All values are escaped (`markup`), pictures are
# inline SVG for the browser's light or dark mode (`figures`), and a content security policy forbids external resources.

from lamu.report.fitted import FittedRun, fit_report
from lamu.report.rows import comparison_report

__all__ = ["FittedRun", "comparison_report", "fit_report"]
