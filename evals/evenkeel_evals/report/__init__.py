"""Reports a run as a table, Markdown, HTML, JUnit and spans."""
