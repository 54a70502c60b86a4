"""Converts other tools' files into rows of a golden dataset, one module per tool."""
