"""What serves the rest of the package: no chapter teaches it."""
