# What a plan says of memory is what the ranks then hold, to the byte: every purpose's peak of every rank, under the layouts
# that verify has. RANKS (4) and EVERY (9, of the layouts) make it longer; RANKS=8 EVERY=1 takes hours. On the emulated GPU, which is
# slow, 2 and 20. ONLY is a pattern of DEVICE/SHAPE/PRECISION, as cpu/mixtral/f32.
source "$(dirname "$0")/../common.sh"
for device in cpu ref; do
  MONOTRON_PLAN_PROOF="$device ${RANKS:-4} ${EVERY:-9}" $GO test -count=1 -timeout 12h ./tools/verify/layouts -run "TestPlannedMemory/${ONLY:-}" -v | grep -E '^ +(--- |memory_test)|^(ok|FAIL)'
done
if [ -e bin/libmt_cudaemu.so ]; then
  MONOTRON_CUDA_LIBRARY=$PWD/bin/libmt_cudaemu.so MONOTRON_PLAN_PROOF="cuda ${RANKS:-2} ${EVERY:-20}" \
    $GO test -count=1 -timeout 12h ./tools/verify/layouts -run "TestPlannedMemory/${ONLY:-}" -v | grep -E '^ +(--- |memory_test)|^(ok|FAIL)'
else
  echo "the emulated GPU is not built (make emu): left out"
fi
