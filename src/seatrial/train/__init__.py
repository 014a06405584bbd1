"""Training: one visible loop, its optimizer, and what it measures of itself."""
