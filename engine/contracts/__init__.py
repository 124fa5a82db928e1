"""Token contracts: what every id means."""
