"""What an SLO is: arithmetic, windows, the file format, series, backtests."""
