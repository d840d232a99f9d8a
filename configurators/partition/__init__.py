"""Works on one partition: carries out its tasks, and follows what other configurators have done."""
