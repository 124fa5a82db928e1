"""Packs that are installed with this build."""
