"""Go's own sources as JSON lines, a file each: corpus.py FOLDER OUT"""
import json
import os
import sys

with open(sys.argv[2], "w") as out:
    for folder, below, names in os.walk(sys.argv[1]):
        below.sort()
        for name in sorted(names):
            if name.endswith((".go", ".s", ".c", ".h")):
                try:
                    with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
                        out.write(json.dumps({"text": f.read()}) + "\n")
                except UnicodeDecodeError:
                    pass  # a test's deliberately broken file
