"""Where partitions are kept: on disk, or in memory."""
