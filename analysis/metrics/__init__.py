"""Every metric of representation geometry, one file a topic."""
