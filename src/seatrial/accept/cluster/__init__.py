"""Many nodes: each tests itself without the others; those that answer then test what lies between them."""
