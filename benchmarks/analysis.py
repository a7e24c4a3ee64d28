"""What the analysis costs and how exact it is, against the programs that people use.

    python benchmarks/analysis.py [--json] [--quick] [--python NAME=PATH ...]

Rivals that cannot be installed together run in an interpreter of their own:
``--python DADApy=PATH --python faiss=PATH --python LLM-Microscope=PATH``. A rival that is not
installed is said to be so on standard error, and its bars are left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import moments, neighbors
from benchmarks.figures import show


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less data, one repetition")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter that a rival is installed in",
    )
    arguments = parser.parse_args()
    pythons = dict(entry.split("=", 1) for entry in arguments.python)
    figures = moments.measure(quick=arguments.quick, pythons=pythons)
    figures += neighbors.measure(quick=arguments.quick, pythons=pythons)
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
