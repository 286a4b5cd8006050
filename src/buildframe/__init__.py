"""CI builds as DataFrames."""
