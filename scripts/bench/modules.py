"""What these scripts ask of the Python that runs them, told in one line."""
import importlib.util
import os
import sys


def need(*names):
    """Ends the program where a module is missing, before anything is built or timed."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pip = f"{sys.executable} -m pip install {' '.join(missing)}"
        sys.exit(f"{os.path.basename(sys.argv[0])}: {sys.executable} has no {', '.join(missing)}: {pip}, or run by a Python that has it")
