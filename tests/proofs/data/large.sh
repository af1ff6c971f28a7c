# Index arrays whose entries and samples 32 bits cannot count: the sample index over 2^32 entries, plans, samples and draws beyond.
# Some seconds of a processor; 16 GiB of addresses, but no memory to speak of.
. "$(dirname "$0")/../common.sh"
MONOTRON_LARGE=1 "$GO" test ./dataset -count=1 -v -run 'PlanOfMany|TooMany|33Bits|32Bits' >"$work/log" || { tail -20 "$work/log"; exit 1; }
grep -E '^--- ' "$work/log"
! grep -q SKIP "$work/log"
