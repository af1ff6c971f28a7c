# Ranks in every kind of layout on emulated GPUs, whose memory the host cannot touch: the
# CPU's losses, a checkpoint from one layout to another, generation.
cd "$(dirname "$0")/../.." || exit 1
make --no-print-directory build emu && sh scripts/cuda-layouts.sh
