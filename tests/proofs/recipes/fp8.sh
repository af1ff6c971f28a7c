# The reference numbers of FP8 and FP4 (internal/golden/testdata: fp8.tar.zst, fp8-delayed.tar.zst) are what torch and ml_dtypes compute: casts,
# tables, blocks and delayed scales to the byte, layers, whose sums in float64 have an order of the machine's, to 1e-6 of their norm.
. "$(dirname "$0")/../common.sh"
peer torch ml_dtypes numpy
mkdir "$work/recorded" "$work/made"
for cases in fp8 fp8-delayed; do
  zstd -dcq "internal/golden/testdata/$cases.tar.zst" | tar -x -C "$work/recorded"
  mkdir "$work/made/$cases"
  cp "$work/recorded/$cases/make.py" "$work/made/$cases"
  (cd "$work/made/$cases" && "$python" -W ignore make.py)
done
"$python" - "$work/recorded" "$work/made" <<'PY'
import pathlib
import sys

import numpy

recorded, made = map(pathlib.Path, sys.argv[1:])
names = sorted(path.relative_to(recorded) for path in recorded.glob("*/*.bin"))
assert names == sorted(path.relative_to(made) for path in made.glob("*/*.bin")), "other files"
layers = 0
for name in names:
    if (recorded / name).read_bytes() == (made / name).read_bytes():
        continue
    assert name.name.split(".")[-2] in ("y", "dx", "dw"), f"{name} differs"
    a, b = (numpy.fromfile(folder / name, numpy.float32).astype(float) for folder in (recorded, made))
    off = numpy.linalg.norm(a - b) / numpy.linalg.norm(a)
    assert off < 1e-6, f"{name} is off by {off}"
    layers += 1
print(f"{len(names)} files: {len(names) - layers} equal to the byte, {layers} results of layers to 1e-6")
PY
