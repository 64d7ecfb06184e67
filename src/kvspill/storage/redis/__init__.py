"""Redis and Valkey: objects as string values on a server or a cluster."""
