"""What Pebble can do, measured on held-out prompts."""
