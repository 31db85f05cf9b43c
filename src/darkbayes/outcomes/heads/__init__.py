"""What a network's outputs say of each outcome: the teacher's likelihood, the student's head, and their distributions.

The names are offered by `darkbayes.outcomes`.
"""
