# What a plan says of memory is what the ranks then hold, to the byte: every purpose's peak of every rank, under the layouts
# that verify has. RANKS (4) and EVERY (9, of the layouts) make it longer; RANKS=8 EVERY=1 takes hours. On the emulated GPU, which is
# slow, 2 and 20. ONLY is a pattern of DEVICE/SHAPE/PRECISION, as cpu/mixtral/f32.
source "$(dirname "$0")/../common.sh"
prove() { # DEVICE RANKS EVERY
  MONOTRON_PLAN_PROOF="$*" $GO test -count=1 -timeout 12h ./tools/verify/layouts -run "TestPlannedMemory/${ONLY:-}" -v | grep -E '^ +(--- |memory_test)|^(ok|FAIL)' | tee -a "$work/said"
}
for device in cpu ref; do prove $device "${RANKS:-4}" "${EVERY:-9}"; done
if [ -e bin/libmt_cudaemu.so ]; then
  MONOTRON_CUDA_LIBRARY=$PWD/bin/libmt_cudaemu.so prove cuda "${RANKS:-2}" "${EVERY:-20}"
else
  echo "the emulated GPU is not built (make emu): left out"
fi
grep -q ' layouts$' "$work/said" || { echo "FAILED: nothing is called ${ONLY:-}"; exit 1; }
