"""Plug-ins for kvspill: the backend mystore, the eviction policy mru and the trace format simplecsv."""
