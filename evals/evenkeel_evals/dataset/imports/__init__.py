"""Questions of other tools as rows of a golden dataset, one module per tool."""
