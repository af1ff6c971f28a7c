# Kernels broken on purpose are found, those of the table are clean: ThreadSanitizer and
# AddressSanitizer over recorded calls of every op.
. "$(dirname "$0")/../common.sh"
make --no-print-directory test-emu-race
