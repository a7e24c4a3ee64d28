"""The activation store: written once per checkpoint, read lazily, verified."""

import os

# Icechunk logs to standard output, where programs read our JSON, unless this is set when it is
# first imported; no module of this package is imported before this line.
os.environ.setdefault("ICECHUNK_LOG", "error")
