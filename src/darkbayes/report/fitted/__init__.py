"""The page of a fit: what a model knows and does not know, for a person who has data and a decision to make."""
