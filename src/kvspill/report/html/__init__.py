"""The result page: one self-contained HTML file with headline figures, doubts and plots."""
