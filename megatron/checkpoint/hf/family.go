package hf

import (
	"fmt"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// FamilyOf names the family that can express m: what a model trained here is
// exported as. The error says what the nearest family lacks.
func FamilyOf(m *spec.Model) (string, error) {
	nearest, least := "", []string(nil)
	for _, family := range order {
		if !writable(family, m) {
			continue
		}
		lacks, unread := rows[family].lacks(family, m)
		switch {
		case len(lacks) == 0:
			return family, nil
		case !unread && (rows[family].mixture != nil) == (m.Experts != nil) && (least == nil || len(lacks) < len(least)):
			nearest, least = family, lacks
		}
	}
	if least == nil {
		return "", exitcode.Errorf(exitcode.Usage, "no architecture of Hugging Face can represent this model")
	}
	return nearest, exitcode.With(exitcode.Usage, &inexpressible{holderOf(nearest), least})
}

// Expresses reports whether family's architecture can hold m; the error lists
// everything that it cannot.
func Expresses(family string, m *spec.Model) error {
	row := rows[family]
	if row == nil {
		return exitcode.Errorf(exitcode.Usage, "--family must be one of %s, not %s", Known, family)
	}
	if lacks, _ := row.lacks(family, m); len(lacks) > 0 {
		return exitcode.With(exitcode.Usage, &inexpressible{holderOf(family), lacks})
	}
	return nil
}

func holderOf(family string) string {
	return fmt.Sprintf("the %s architecture of Hugging Face", family)
}

// inexpressible is what a model has and those who should hold it have not.
type inexpressible struct {
	holder string
	lacks  []string
}

func (e *inexpressible) Error() string {
	return e.holder + " cannot represent: " + strings.Join(e.lacks, "; ")
}

// activationName is what Hugging Face's configs call the activation; "" where they have no word.
func activationName(m *spec.Model) string {
	a, err := activations.Of(m.Activation)
	if err != nil || len(a.Row().HF) == 0 {
		return ""
	}
	return a.Row().HF[0]
}
