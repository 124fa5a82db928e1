"""Damaged files for the readers: how they are made, and where they are read within bounds."""
