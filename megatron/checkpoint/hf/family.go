package hf

import (
	"fmt"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
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
		return "", exitcode.Errorf(exitcode.Usage, "no Hugging Face architecture can represent this model")
	}
	return nearest, exitcode.With(exitcode.Usage, &inexpressible{holderOf(nearest), least})
}

// Expresses reports whether family's architecture can hold m; the error lists
// everything that it cannot.
func Expresses(family string, m *spec.Model) error {
	if err := CheckFamily(family); err != nil {
		return err
	}
	row := rows[family]
	if lacks, _ := row.lacks(family, m); len(lacks) > 0 {
		return exitcode.With(exitcode.Usage, &inexpressible{holderOf(family), lacks})
	}
	return nil
}

// CheckFamily refuses an unknown name, and names the nearest family.
func CheckFamily(family string) error {
	if rows[family] != nil {
		return nil
	}
	name, known := strings.ToLower(family), argv.Set{}
	for f := range rows {
		known[f] = argv.One
	}
	near := argv.Nearest(known, name)
	if rows[canonical(name)] != nil { // a model with images, of which the text part is this family
		near = []string{canonical(name)}
	}
	if len(near) == 0 {
		return exitcode.Errorf(exitcode.Usage, "--family %s is unknown; the families are %s", argv.Shown(family), Known)
	}
	return exitcode.Errorf(exitcode.Usage, "--family %s is unknown; did you mean %s? The families are %s", argv.Shown(family), near[0], Known)
}

// PlainNorms is src as a family can hold it: a model with --apply-layernorm-1p whose family has norms without
// it is shown with 1 added to the weights of its norms, which computes the same. note says so; "": src is as it was.
func PlainNorms(src checkpoint.Source, o checkpoint.WriteOptions) (out checkpoint.Source, note string) {
	info := src.Info()
	if info.Model == nil || !info.Model.NormOnePlus || expressible(info, o) {
		return src, ""
	}
	plain, _ := checkpoint.NormWeights(src, false)
	if !expressible(plain.Info(), o) {
		return src, ""
	}
	return plain, checkpoint.PlainNormsNote
}

// expressible reports whether the family that a checkpoint is written as can hold its model.
func expressible(info checkpoint.Info, o checkpoint.WriteOptions) bool {
	family, err := chooseFamily(info, o)
	return err == nil && Expresses(family, info.Model) == nil
}

// ModuleFamily is the family whose names the modules of m have. Which weights its norms have does not matter.
func ModuleFamily(m *spec.Model) (string, error) {
	family, err := FamilyOf(m)
	if err == nil || !m.NormOnePlus {
		return family, err
	}
	plain := *m
	plain.NormOnePlus = false
	if family, plainErr := FamilyOf(&plain); plainErr == nil {
		return family, nil
	}
	return family, err
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
