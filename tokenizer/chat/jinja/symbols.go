package jinja

import (
	"fmt"
	"maps"
	"slices"
)

// How a frame finds the value of a name when it is entered (jinja2.idtracking).
const (
	loadParameter = iota // given by whoever enters
	loadResolve          // looked up in the context
	loadAlias            // that of a frame around
	loadUndefined        // none yet
)

type load struct {
	action int
	param  string // the name to look up, or the identifier of the frame around
}

// symbols are the names that a frame knows. A name's identifier is that of a Python local in the
// code that Jinja would write: frames of one function at one level share it.
type symbols struct {
	level  int
	parent *symbols
	base   *symbols          // in a branch of an if: those before it, which it adds to
	refs   map[string]string // name to identifier
	loads  map[string]load   // by identifier
	stores map[string]bool
}

func newSymbols(parent *symbols) *symbols {
	s := &symbols{parent: parent, refs: map[string]string{}, loads: map[string]load{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

// branch is a copy of s, that writes down only what comes to it.
func (s *symbols) branch() *symbols {
	b := newSymbols(s.parent)
	b.level, b.base = s.level, s
	return b
}

// own is the identifier that the frame itself has for a name, "" where it has none.
func (s *symbols) own(name string) string {
	for ; s != nil; s = s.base {
		if id, found := s.refs[name]; found {
			return id
		}
	}
	return ""
}

func (s *symbols) storesName(name string) bool {
	for ; s != nil; s = s.base {
		if s.stores[name] {
			return true
		}
	}
	return false
}

func (s *symbols) define(name string, l load) string {
	id := fmt.Sprintf("l_%d_%s", s.level, name)
	s.refs[name] = id
	s.loads[id] = l
	return id
}

// ref is the identifier of a name, "" where no frame knows it.
func (s *symbols) ref(name string) string {
	for ; s != nil; s = s.parent {
		if id := s.own(name); id != "" {
			return id
		}
	}
	return ""
}

func (s *symbols) findLoad(id string) (load, bool) {
	for ; s != nil; s = s.parent {
		if l, found := s.loads[id]; found {
			return l, true
		}
	}
	return load{}, false
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if s.own(name) != "" {
		return
	}
	if s.parent != nil {
		if outer := s.parent.ref(name); outer != "" {
			s.define(name, load{loadAlias, outer})
			return
		}
	}
	s.define(name, load{action: loadUndefined})
}

func (s *symbols) declareParameter(name string) string {
	s.stores[name] = true
	return s.define(name, load{action: loadParameter})
}

func (s *symbols) load(name string) {
	if s.ref(name) == "" {
		s.define(name, load{loadResolve, name})
	}
}

// merge joins what the branches of an if store.
func (s *symbols) merge(branches ...*symbols) {
	stores := map[string]bool{}
	for _, b := range branches {
		maps.Copy(stores, b.stores)
	}
	maps.DeleteFunc(stores, func(name string, _ bool) bool { return s.storesName(name) })
	for _, b := range branches {
		maps.Copy(s.refs, b.refs)
		maps.Copy(s.loads, b.loads)
		maps.Copy(s.stores, b.stores)
	}
	for name := range stores {
		id := s.ref(name)
		l := load{loadResolve, name}
		if s.parent != nil {
			if outer := s.parent.ref(name); outer != "" {
				l = load{loadAlias, outer}
			}
		}
		s.loads[id] = l
	}
}

// parameters are the identifiers of all parameters that a frame sees.
func (s *symbols) parameters() map[string]bool {
	found := map[string]bool{}
	for ; s != nil; s = s.parent {
		for id, l := range s.loads {
			if l.action == loadParameter {
				found[id] = true
			}
		}
	}
	return found
}

// stored are the names that a frame and those around it assign, with their identifiers.
func (s *symbols) stored() map[string]string {
	found := map[string]string{}
	for ; s != nil; s = s.parent {
		for _, name := range slices.Sorted(maps.Keys(s.stores)) {
			if found[name] == "" {
				found[name] = s.ref(name)
			}
		}
	}
	return found
}

// analyze enters the names in a statement's own frame.
func (s *symbols) analyze(n node) {
	switch n := n.(type) {
	case *assignBlockNode:
		s.visitAll(n.body)
	case *callBlockNode:
		s.visitAll(names(n.args))
		s.visitAll(n.defaults)
		s.visitAll(n.body)
	case *withNode:
		s.visitAll(n.targets)
		s.visitAll(n.body)
	default:
		s.visitAll(children(n))
	}
}

// analyzeFor enters the names of one of a loop's three frames: body, else, test.
func (s *symbols) analyzeFor(n *forNode, part string) {
	switch part {
	case "body":
		s.visitTarget(n.target)
		s.visitAll(n.body)
	case "else":
		s.visitAll(n.orElse)
	case "test":
		s.visitTarget(n.target)
		s.visit(n.test)
	}
}

// visitTarget declares the names of a loop's target as parameters.
func (s *symbols) visitTarget(n node) {
	if name, is := n.(*nameNode); is {
		s.declareParameter(name.name)
		return
	}
	for _, child := range children(n) {
		s.visitTarget(child)
	}
}

func (s *symbols) visitAll(list []node) {
	for _, n := range list {
		s.visit(n)
	}
}

// visit enters the names of a statement inside a frame; statements with frames of their own
// count only with what they evaluate outside of those.
func (s *symbols) visit(n node) {
	switch n := n.(type) {
	// Names are parameters, stored or loaded.
	case *nameNode:
		switch n.ctx {
		case 'p':
			s.declareParameter(n.name)
		case 's':
			s.store(n.name)
		default:
			s.load(n.name)
		}
	case *nsRefNode:
		s.load(n.name)
	// The branches of an if share the frame: a name that one of them stores may be undefined after it.
	case *ifNode:
		s.visitIf(n)
	// Statements with a frame of their own.
	case *macroNode:
		s.store(n.name)
	case *loaderNode:
		s.visitAll(n.parts)
		for _, name := range n.targets {
			s.store(name)
		}
	case *assignNode:
		s.visit(n.value)
		s.visit(n.target)
	case *forNode:
		s.visit(n.iter)
	case *callBlockNode:
		if n.call != nil {
			s.visit(n.call)
		}
	case *filterBlockNode:
		s.visit(n.filter)
	case *withNode:
		s.visitAll(n.values)
	case *assignBlockNode:
		s.visit(n.target)
	case *blockNode:
	// All others evaluate all of their parts in this frame.
	default:
		s.visitAll(children(n))
	}
}

func (s *symbols) visitIf(n *ifNode) {
	s.visit(n.test)
	body, elifs, orElse := s.branch(), s.branch(), s.branch()
	body.visitAll(n.body)
	for _, e := range n.elifs {
		elifs.visit(e)
	}
	orElse.visitAll(n.orElse)
	s.merge(body, elifs, orElse)
}

// undeclared are those of the names that nodes use before they assign them.
func undeclared(list []node, wanted ...string) map[string]bool {
	open, found := map[string]bool{}, map[string]bool{}
	for _, w := range wanted {
		open[w] = true
	}
	// A name that is read first is found, one that is assigned first is not looked up.
	visit := func(n node) bool {
		if name, is := n.(*nameNode); is {
			if name.ctx == 'l' && open[name.name] {
				found[name.name] = true
			} else {
				delete(open, name.name)
			}
		}
		return len(found) < len(open) || len(open) == 0
	}
	// In the order of Jinja's visitor, which does not enter blocks.
	var walk func(n node) bool
	walk = func(n node) bool {
		if _, is := n.(*blockNode); is {
			return true
		}
		if !visit(n) {
			return false
		}
		for _, child := range children(n) {
			if !walk(child) {
				return false
			}
		}
		return true
	}
	for _, n := range list {
		if !walk(n) {
			break
		}
	}
	return found
}
