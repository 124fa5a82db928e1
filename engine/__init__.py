"""The deterministic engine: pack -> text -> chunks -> windows -> tokens -> audio."""
