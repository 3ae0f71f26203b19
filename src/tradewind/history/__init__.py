"""History (hissrv): every change of a point on its way to a sink, and questions about what was.

Needs points (the feed) and Redis; a sink: files of our own, or InfluxDB. Read: sample → sink → sqlite, influx → spool →
policy → recorder → query → export.
"""
