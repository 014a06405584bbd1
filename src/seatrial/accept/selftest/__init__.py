"""Proof that the detectors detect: faults are injected, and each must be caught and blamed on the right part."""
