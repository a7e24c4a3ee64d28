"""A report: one self-contained HTML page about what a store holds and what was measured."""

from analysis.report.write import write_report

__all__ = ["write_report"]
