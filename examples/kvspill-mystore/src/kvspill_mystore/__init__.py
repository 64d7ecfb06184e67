"""Plug-ins for kvspill: backend mystore, policy mru, trace format simplecsv, I/O model read-twice."""
