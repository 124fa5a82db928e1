"""What is asked for (catalog.yaml) and what is recorded (catalog.json, provenance.json)."""
