package arguments

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
)

// maxConfig bounds that file, in bytes.
const maxConfig = 16 << 20

// configFile reads the YAML file of --config. The error is that of a file which
// cannot be read at all; wrong entries are problems.
func (p *parser) configFile() error {
	if !p.given("config") {
		return nil
	}
	file := p.values["config"].texts[0]
	data, err := exitcode.ReadFile(file, maxConfig)
	if err != nil {
		return exitcode.Errorf(exitcode.CodeOf(err), "--config: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return exitcode.Errorf(exitcode.Usage, "--config %s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return exitcode.Errorf(exitcode.Usage, "--config %s: line %d: the file must consist of `name: value` lines", file, top.Line)
	}
	lines := map[string]int{} // of each flag
	for i := 0; i+1 < len(top.Content); i += 2 {
		p.configEntry(file, top.Content[i], top.Content[i+1], lines)
	}
	return nil
}

func (p *parser) configEntry(file string, key, val *yaml.Node, lines map[string]int) {
	where := fmt.Sprintf("%s:%d", file, key.Line)
	name := strings.ReplaceAll(key.Value, "_", "-")
	f := table.Find(name)
	if f == nil {
		p.unknownName(where, key.Value)
		return
	}
	texts, ok := yamlTexts(val)
	before := lines[f.Name]
	lines[f.Name] = key.Line
	switch {
	case f.Name == "config":
		p.problem("%s: a file of flags cannot include another; write the flags here, or give them on the command line", where)
	case before > 0:
		p.problem("%s: %s is already given in line %d; remove one of the two lines", where, name, before)
	case !ok:
		p.problem("%s: %s must have a value or a list of values", where, name)
	case f.Kind == table.Switch && (len(texts) != 1 || texts[0] != "true" && texts[0] != "false"):
		p.problem("%s: %s must be true or false", where, name)
	case !p.given(f.Name) && len(texts) > 0:
		p.values[f.Name] = value{texts, where, true, ""}
	}
}

// yamlTexts is a scalar or a list of scalars; null is nothing.
func yamlTexts(n *yaml.Node) ([]string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, true
	case n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		return []string{strings.ToLower(n.Value)}, true
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, true
	case n.Kind != yaml.SequenceNode:
		return nil, false
	}
	var texts []string
	for _, entry := range n.Content {
		if entry.Kind != yaml.ScalarNode {
			return nil, false
		}
		texts = append(texts, entry.Value)
	}
	return texts, true
}

func (p *parser) unknownName(where, name string) {
	near := argv.Nearest(table.Arities(), strings.ReplaceAll(name, "_", "-"))
	p.spoil(near...)
	suggestion := ""
	if len(near) > 0 {
		suggestion = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	p.problem("%s: unknown name %q%s", where, name, suggestion)
}
