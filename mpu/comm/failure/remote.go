package failure

import "fmt"

// Remote is the error of a rank that gives up because another rank has, whose own
// error says why.
type Remote struct{ text string }

// Remotef makes one.
func Remotef(format string, a ...any) error { return &Remote{fmt.Sprintf(format, a...)} }

func (e *Remote) Error() string   { return e.text }
func (e *Remote) Fill(v *Verdict) { v.Kind = Other }
