package arguments

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
)

// assign writes values into the build, in the order of the rows. A flag whose value is wrong
// keeps its default.
func (p *parser) assign() {
	var inert, given []*table.Flag
	for name := range p.values {
		given = append(given, table.Find(name))
	}
	slices.SortFunc(given, table.Compare)
	for _, f := range given {
		v := p.values[f.Name]
		switch {
		case f.Kind == table.Switch && !p.isOn(f.Name):
		case f.Class == table.Refused:
			p.refuse(f)
		case p.assignOne(f, v) && f.Class == table.Accepted:
			inert = append(inert, f)
		}
	}
	p.noteInert(inert)
}

func defaults(f *table.Flag) []string {
	if f.Kind >= table.Ints {
		return strings.Fields(f.Default)
	}
	return []string{f.Default}
}

// assignOne checks the values of a flag and writes them where they go.
func (p *parser) assignOne(f *table.Flag, v value) bool {
	shown := *f // errors name the flag as it was typed
	shown.Name = cmp.Or(v.typed, f.Name)
	texts, err := checkValues(&shown, v.texts)
	if err == nil && f.Class == table.Works {
		err = p.set(f, texts)
	}
	if err != nil {
		p.spoil(f.Name)
		p.problems = append(p.problems, err)
	}
	return err == nil
}

// noteInert says once which flags have no effect here, those of one reason
// together.
func (p *parser) noteInert(rows []*table.Flag) {
	for len(rows) > 0 {
		why := rows[0].Why
		var names []string
		rows = slices.DeleteFunc(rows, func(f *table.Flag) bool {
			if f.Why == why {
				names = append(names, "--"+f.Name)
			}
			return f.Why == why
		})
		verb := "has"
		if len(names) > 1 {
			verb = "have"
		}
		p.notice("%s %s no effect in monotron: %s", strings.Join(names, ", "), verb, why)
	}
}

// checkValues checks count, numbers and choices, and writes other spellings of a
// value in the one that the table knows.
func checkValues(f *table.Flag, texts []string) ([]string, error) {
	if err := checkCount(f, len(texts)); err != nil {
		return nil, err
	}
	out := slices.Clone(texts)
	for i, text := range out {
		if other, ok := f.Same[text]; ok {
			text = other
		}
		var err error
		if out[i], err = checkValue(f, text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func checkCount(f *table.Flag, n int) error {
	switch {
	case f.Kind != table.Switch && f.Kind < table.Ints && n != 1:
		return fmt.Errorf("--%s accepts one value, but has %d", f.Name, n)
	case f.Count > 0 && n != f.Count:
		return fmt.Errorf("--%s accepts %d values, but has %d", f.Name, f.Count, n)
	}
	return nil
}

func checkValue(f *table.Flag, text string) (string, error) {
	if f.Kind.Numeric() {
		var err error
		if text, err = f.Number(text); err != nil {
			return "", err
		}
	}
	if why, ok := f.Refuse[text]; ok {
		return "", fmt.Errorf("--%s %s: %s", f.Name, text, why)
	}
	if f.Choices != nil && f.Kind != table.Switch && !slices.Contains(f.Choices, text) {
		return "", argv.WrongChoice(f.Name, text, f.Choices...)
	}
	return text, nil
}
