"""How results are shown: console, page, tables, comparisons and exports. Reads a Result alone."""
