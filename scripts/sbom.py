"""sbom.py FILE VERSION EPOCH: prints a CycloneDX file with this version and time of the program."""
import datetime
import json
import sys

path, version, epoch = sys.argv[1:]
with open(path) as f:
    text = f.read()
old = json.loads(text)["metadata"]["component"]["version"]
bom = json.loads(text.replace("monotron@" + old, "monotron@" + version))
bom["metadata"]["component"]["version"] = version
bom["metadata"]["timestamp"] = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
json.dump(bom, sys.stdout, indent=2)
print()
