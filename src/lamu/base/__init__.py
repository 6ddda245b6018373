"""What every floor stands on: array sizes and dtypes, compilation, random numbers, searches, files."""
