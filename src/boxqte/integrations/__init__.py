"""Audits in other people's tools, one file a tool; each is imported by name, and needs its library then only."""
