"""What the analysis costs and how exact it is, against the programs that people use.

    python benchmarks/analysis.py [--json] [--quick] [--only PART ...] [--python NAME=PATH ...]

Parts: moments (about 4 minutes on two quiet cores), neighbors (6), loop (3, LLM-Microscope's
over 10,000 rows, from 500 passes of it), out_of_core (6, and 12 GB of disk in
ACTLAS_BENCHMARK_DIR or the folder for temporary files), graph (1), again (2). What is measured is
told on standard error as it goes.

Rivals that cannot be installed together run in an interpreter of their own:
``--python DADApy=PATH --python faiss=PATH --python LLM-Microscope=PATH``. A rival that is not
installed is said to be so on standard error, and its bars are left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import moments, neighbors, out_of_core
from benchmarks.figures import show
from benchmarks.graph import measure_graph

PARTS = ("moments", "neighbors", "loop", "out_of_core", "graph", "again")


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
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="only this part; may be given again"
    )
    arguments = parser.parse_args()
    pythons = dict(entry.split("=", 1) for entry in arguments.python)
    figures = []
    for part in arguments.only or PARTS:
        if part == "out_of_core":
            figures += out_of_core.measure_out_of_core(quick=arguments.quick)
        elif part == "graph":
            figures += measure_graph(quick=arguments.quick)
        elif part == "again":
            # Workers import this file anew, and need not take the memory of PyTorch.
            from benchmarks.again import measure_again

            figures += measure_again(quick=arguments.quick)
        elif part == "loop":
            figures += neighbors.measure_loop(quick=arguments.quick, pythons=pythons)
        else:
            module = moments if part == "moments" else neighbors
            figures += module.measure(quick=arguments.quick, pythons=pythons)
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
