"""One benchmark from configuration to result; trials and scenarios."""
