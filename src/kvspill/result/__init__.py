"""What a run leaves behind: the result, its metrics, its warnings and how far it can be trusted."""
