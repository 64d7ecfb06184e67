"""The queue, the servers, the I/O models and generation: how one request is served."""
