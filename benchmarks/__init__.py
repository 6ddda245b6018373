"""Side by side with peers, as ratios from one run; opt-in, never a timed test."""
