"""SLO definitions: arithmetic, windows, the file format, series, backtests."""
