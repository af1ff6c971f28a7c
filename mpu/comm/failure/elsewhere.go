package failure

import "fmt"

// Elsewhere is the error of a rank that gives up because another rank has, whose own
// error says why.
type Elsewhere struct{ text string }

// Elsewheref makes one.
func Elsewheref(format string, a ...any) error { return &Elsewhere{fmt.Sprintf(format, a...)} }

func (e *Elsewhere) Error() string   { return e.text }
func (e *Elsewhere) Fill(v *Verdict) { v.Kind = Other }
