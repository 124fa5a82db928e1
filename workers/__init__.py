"""Ray: one engine an actor, and the fleet that spawns, checks and drains them."""
