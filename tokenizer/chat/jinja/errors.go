package jinja

import (
	"fmt"
	"runtime"
)

// Error is why a template was refused or a render ended. Class is the class of Python's
// exception, or one of ours: Limit (a bound was reached), Unsupported (Python would answer, this
// package does not).
type Error struct {
	Class   string
	Message string
	Line    int // of the template, from 1; 0: unknown
}

// raised is the class of raise_exception: the template's own words.
const raised = "TemplateError"

// Error is the message with class and line; what raise_exception was given stands as it is.
func (e *Error) Error() string {
	switch {
	case e.Class == raised:
		return e.Message
	case e.Line > 0:
		return fmt.Sprintf("line %d: %s: %s", e.Line, e.Class, e.Message)
	}
	return e.Class + ": " + e.Message
}

// fail ends the render; the line is filled in where the error is recovered.
func fail(class, format string, args ...any) {
	most := 2000
	if class == raised {
		most = 1 << 16 // the template's own words, which clients compare
	}
	panic(&Error{Class: class, Message: cut(fmt.Sprintf(format, args...), 0, most)})
}

func typeError(format string, args ...any)   { fail("TypeError", format, args...) }
func valueError(format string, args ...any)  { fail("ValueError", format, args...) }
func unsupported(format string, args ...any) { fail("Unsupported", format, args...) }

// catch runs f and returns the error it ended with, if that is of one of the classes; any other
// continues.
func catch(f func(), classes ...string) (caught *Error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		e, is := p.(*Error)
		if is {
			for _, class := range classes {
				if e.Class == class {
					caught = e
					return
				}
			}
		}
		panic(p)
	}()
	f()
	return nil
}

// Internal is the class of an error that is a mistake of this package. Templates come from
// strangers: such a mistake must not end the process.
const Internal = "InternalError"

// recovered stores the *Error that ended a call, or makes one of a runtime error; other panics
// continue.
func recovered(line *int, err *error) {
	p := recover()
	if p == nil {
		return
	}
	e, is := p.(*Error)
	if !is {
		mistake, is := p.(runtime.Error)
		if !is {
			panic(p)
		}
		e = &Error{Class: Internal, Message: mistake.Error()}
	}
	if e.Line == 0 {
		e.Line = *line
	}
	*err = e
}
