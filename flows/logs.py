"""Log records of long-running commands: sentences for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

LOGGER: Final = "actlas"
"""Every logger of actlas is below this one."""

_FIELDS: Final = "actlas_fields"
_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


def fields(event: str, **values: object) -> dict[str, dict[str, object]]:
    """Return what a record carries besides its sentence, to be passed as ``extra``.

    Args:
        event: What happened, one word.
        values: Facts that JSON can express.
    """
    return {_FIELDS: {"event": event, **values}}


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object: time, level, logger, message, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def log_to_output(*, as_json: bool, quiet: bool = False) -> None:
    """Write the records of actlas to standard output from now on; if quiet, only warnings."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(_TEXT))
    logger = logging.getLogger(LOGGER)
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False
