# NVIDIA's own NCCL, from its wheels, without a GPU: every call that we make is there, it says its
# version, makes ids, and refuses cleanly to make a communicator. VERSIONS: which; "newest" is
# what the package index gives.
. "$(dirname "$0")/../common.sh"
tried=0
for version in ${VERSIONS:-2.18.3 2.21.5 2.26.2 newest}; do
  wanted=nvidia-nccl-cu12
  [ "$version" = newest ] || wanted="$wanted==$version"
  rm -rf "$work/wheel" && mkdir "$work/wheel"
  timeout 600 "$python" -m pip download -q --no-deps --dest "$work/wheel" "$wanted" 2> "$work/pip" || { echo "$version: could not be fetched: $(tail -1 "$work/pip")"; continue; }
  (cd "$work/wheel" && "$python" -m zipfile -e ./*.whl .)
  REAL_NCCL=$(find "$work/wheel" -name libnccl.so.2) $GO test -count=1 -v -run RealLibraryWithoutGPU ./csrc/comm/nccl/ > "$work/said" 2>&1 || { cat "$work/said"; echo "FAILED: NCCL $version"; exit 1; }
  grep -E -m 1 'refused|no id|there is a GPU' "$work/said" | sed -E "s#\\(.*libnccl.so.2\\)#(wheel $version)#"
  tried=$((tried + 1))
done
[ $tried -gt 0 ] || { echo "skipped: no wheel could be fetched"; exit 0; }
echo "$tried of NVIDIA's libraries: every call is there, ids differ, and without a GPU each refuses by an error"
