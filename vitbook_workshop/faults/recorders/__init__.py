"""What can be seen of somebody else's model or training loop while it runs."""
