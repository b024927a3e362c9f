"""Analyses as graphs of steps on a run's tables (`docs/guide/analysis.md`).

``make`` checks and carries out; ``engine`` and ``spark`` are what it is carried out on; ``steps``
has the steps.
"""
