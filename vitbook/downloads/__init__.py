"""The public data sets: where each is to be had, how it is fetched and verified, and how its files are read."""
