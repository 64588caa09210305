"""The public data sets: where each is published, how it is fetched and verified, and how its files are read."""
