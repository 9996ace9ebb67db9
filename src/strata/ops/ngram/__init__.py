"""n-gram hash embedding."""
