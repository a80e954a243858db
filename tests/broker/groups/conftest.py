"""Puts the helpers of this folder, and `broker_harness`, within reach of its tests."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
