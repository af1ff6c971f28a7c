package device

import (
	"runtime"
	"time"
)

// stint is how long a goroutine has computed without a word to Go's scheduler. Whoever does so for
// 10 ms has its processor taken while it is in C, and for a while after the scheduler's own thread
// checks some thousand times a second whether it happens again, and pushes threads off their cores.
type stint struct{ began time.Time }

// rest yields to the scheduler now and then.
func (s *stint) rest() {
	if now := time.Now(); now.Sub(s.began) > 4*time.Millisecond {
		s.began = now
		runtime.Gosched()
	}
}
