#include "textflag.h"

// func Pause(): the barrier takes longer than YIELD, which most cores ignore.
TEXT ·Pause(SB), NOSPLIT, $0-0
	ISB $15
	RET
