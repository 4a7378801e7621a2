"""Readers of what the back ends make, one file a format; :mod:`.reading` picks the one to ask."""
