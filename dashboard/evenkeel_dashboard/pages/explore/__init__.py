"""Which requests match these filters, and what does an SQL query return?"""
