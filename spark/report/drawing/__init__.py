"""What the page of a report is drawn with: markup, number formats, scales, plots and tables."""
