#!/usr/bin/env python3
"""Starts pretrain_gpt, so that torchrun ... pretrain_gpt.py FLAGS works unchanged."""
import os
import sys

program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "pretrain_gpt")
try:
    os.execv(program, [program] + sys.argv[1:])
except OSError as err:
    sys.exit(f"pretrain_gpt.py: {program} cannot be started: {err.strerror}; keep both files in one folder")
