"""Imported before torch: threads which wait must sleep.

Threads which spin while they wait collapse as soon as something else uses the cores.
"""
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("KMP_BLOCKTIME", "0")
