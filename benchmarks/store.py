"""What the store costs and what it survives, against the usual ways to keep a tensor.

    python benchmarks/store.py [--json] [--quick] [--only speed]

Each part is printed as it ends; all take about eight minutes on two cores. It writes below the
current directory, so that it measures the disk you are on. Speeds are ratios measured in the same
round of the same run: 0.5 x is half as fast as the rival.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import store_floor, store_open, store_speed, store_transactions, store_writers
from benchmarks.figures import Figure, show

PARTS = {
    "speed": store_speed,
    "floor": store_floor,
    "commits": store_transactions,
    "opening": store_open,
    "writers": store_writers,
}


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less data, fewer repetitions")
    parser.add_argument("--only", choices=PARTS, help="measure one part alone")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in [arguments.only] if arguments.only else PARTS:
        for section in PARTS[name].measure(quick=arguments.quick):
            figures += section
            if not arguments.json:
                show(section, as_json=False)
    if arguments.json:
        show(figures, as_json=True)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
