from __future__ import annotations

import sys
from pathlib import Path

# Helpers of this folder (`histories`) are imported by their bare names.
sys.path.insert(0, str(Path(__file__).parent))
