"""What runs things: capture, ingestion, measurement, the command line and the Prefect flows."""
