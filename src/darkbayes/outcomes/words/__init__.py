"""What a page says of each outcome: a file for each kind, of numpy and text alone."""
