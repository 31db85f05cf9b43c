"""Bayesian predictions at the price of one forward pass."""

from darkbayes.data import *
from darkbayes.model import *
from darkbayes.teacher import *
from darkbayes.student import *
