"""What runs in the Python processes of Spark's workers, and how it gets there."""
