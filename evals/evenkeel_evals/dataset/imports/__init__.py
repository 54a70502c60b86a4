"""Converts other tools' files to rows of a golden dataset, one module per tool."""
