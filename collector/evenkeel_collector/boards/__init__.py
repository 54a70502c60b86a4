"""Grafana boards (`catalogue`) for our metrics, our tables and the exported SLO rules."""
