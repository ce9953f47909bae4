"""Trajectories of sources: offline by a hidden Markov model, online by a multi-target tracker."""
