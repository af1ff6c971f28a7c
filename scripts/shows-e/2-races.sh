# Kernels broken on purpose are found, those of the table are clean: ThreadSanitizer and
# AddressSanitizer over recorded calls of every op.
cd "$(dirname "$0")/../.." || exit 1
make --no-print-directory test-emu-race
