"""Live streams: online tracking and separation of several sources with a fixed latency."""
