# The reference numbers of FP8 and FP4 (internal/golden/testdata/fp8.tar.zst) are what torch and ml_dtypes compute: casts, tables and blocks to the
# byte, layers, whose sums in float64 have an order of the machine's, to 1e-6 of their norm.
. "$(dirname "$0")/../common.sh"
peer torch ml_dtypes numpy
zstd -dcq internal/golden/testdata/fp8.tar.zst | tar -x -C "$work"
mv "$work/fp8" "$work/recorded"
mkdir "$work/made"
cp "$work/recorded/make.py" "$work/made"
(cd "$work/made" && "$python" -W ignore make.py)
"$python" - "$work/recorded" "$work/made" <<'PY'
import pathlib
import sys

import numpy

recorded, made = map(pathlib.Path, sys.argv[1:])
names = sorted(path.name for path in recorded.glob("*.bin"))
assert names == sorted(path.name for path in made.glob("*.bin")), "other files"
layers = 0
for name in names:
    if (recorded / name).read_bytes() == (made / name).read_bytes():
        continue
    assert name.split(".")[-2] in ("y", "dx", "dw"), f"{name} differs"
    a, b = (numpy.fromfile(folder / name, numpy.float32).astype(float) for folder in (recorded, made))
    off = numpy.linalg.norm(a - b) / numpy.linalg.norm(a)
    assert off < 1e-6, f"{name} is off by {off}"
    layers += 1
print(f"{len(names)} files: {len(names) - layers} equal to the byte, {layers} results of layers to 1e-6")
PY
