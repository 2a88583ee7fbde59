"""Templates in job files: `{{ params.who }}`."""
