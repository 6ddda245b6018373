"""The reports of `lamu fit` and `lamu compare`: one HTML file each, with all it shows inside."""

# `fit_report` and `comparison_report` return the text of the file. Every value is escaped (`markup`), pictures are
# inline SVG that follows the reader's light or dark scheme (`figures`), and a content security policy forbids to load
# anything.

from lamu.report.comparison import comparison_report
from lamu.report.fitted import FittedRun, fit_report

__all__ = ["FittedRun", "comparison_report", "fit_report"]
