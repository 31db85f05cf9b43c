"""Every benchmark at a tiny size; nothing here asserts a time."""

import pytest

from darkbayes import bench, cli
