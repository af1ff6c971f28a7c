# Routers that starve experts: every token to one expert, none to those of a rank, none in some
# micro-batches; and a token that is not a number. On one rank, 2 and 4, goroutines and
# processes, by either dispatcher, with and without a capacity, padded to it, in f32 and bf16: runs
# end, say which experts got nothing and where the NaN was, and no rank holds more than `plan run` says.
. "$(dirname "$0")/../common.sh"
MONOTRON_STARVED=all $GO test -count=1 -timeout 2h ./tests -run TestStarvedExperts -v | grep -E 'runs|starved_test|code|^(ok|FAIL|---)'
