package jinja

// node is a part of a parsed template; the types are Jinja's.
type node interface{ at() int }

// pos is the line a node begins at.
type pos int

func (p pos) at() int { return int(p) }

// Statements.
type (
	outputNode struct {
		pos
		nodes []node
	}
	dataNode struct {
		pos
		text string
	}
	assignNode struct {
		pos
		target, value node
	}
	assignBlockNode struct {
		pos
		target node
		filter *filterNode
		body   []node
	}
	forNode struct {
		pos
		target, iter, test node
		body, orElse       []node
		recursive          bool
	}
	ifNode struct {
		pos
		test         node
		body, orElse []node
		elifs        []*ifNode
	}
	macroNode struct {
		pos
		name     string
		args     []*nameNode
		defaults []node
		body     []node
	}
	callBlockNode struct {
		pos
		call       *callNode // nil: a generation block
		args       []*nameNode
		defaults   []node
		body       []node
		generation bool
	}
	filterBlockNode struct {
		pos
		body   []node
		filter *filterNode
	}
	withNode struct {
		pos
		targets, values []node
		body            []node
	}
	blockNode struct {
		pos
		name             string
		body             []node
		scoped, required bool
	}
	loaderNode struct { // include, import, from, extends: a loader does not exist
		pos
		tag     string
		parts   []node
		targets []string
	}
	breakNode    struct{ pos }
	continueNode struct{ pos }
)

// Expressions.
type (
	nameNode struct {
		pos
		name string
		ctx  byte // 'l' load, 's' store, 'p' parameter
	}
	nsRefNode struct {
		pos
		name, attr string
	}
	constNode struct {
		pos
		value Value
	}
	tupleNode struct {
		pos
		items []node
	}
	listNode struct {
		pos
		items []node
	}
	dictNode struct {
		pos
		pairs []*pairNode
	}
	pairNode struct {
		pos
		key, value node
	}
	keywordNode struct {
		pos
		key   string
		value node
	}
	binaryNode struct {
		pos
		op          string
		left, right node
	}
	unaryNode struct {
		pos
		op    string
		value node
	}
	compareNode struct {
		pos
		first node
		ops   []*operandNode
	}
	operandNode struct {
		pos
		op    string
		value node
	}
	concatNode struct {
		pos
		parts []node
	}
	condNode struct {
		pos
		test, yes, no node // no may be nil
	}
	getattrNode struct {
		pos
		object node
		attr   string
	}
	getitemNode struct {
		pos
		object, index node
	}
	sliceNode struct {
		pos
		start, stop, step node // nil: not given
	}
	argsNode struct {
		args      []node
		kwargs    []*keywordNode
		dynArgs   node
		dynKwargs node
	}
	callNode struct {
		pos
		callee node
		argsNode
	}
	filterNode struct {
		pos
		value node // nil: the text of the block around
		name  string
		argsNode
	}
	testNode struct {
		pos
		value node
		name  string
		argsNode
	}
)

// children are a node's parts in the order in which Jinja visits them.
func children(n node) []node {
	switch n := n.(type) {
	// The order of fields in the classes of jinja2/nodes.py.
	case *outputNode:
		return n.nodes
	case *assignNode:
		return []node{n.target, n.value}
	case *assignBlockNode:
		return append(some(n.target, filterOrNil(n.filter)), n.body...)
	case *forNode:
		return append(append(append(some(n.target, n.iter), n.body...), n.orElse...), some(n.test)...)
	case *ifNode:
		list := append(some(n.test), n.body...)
		for _, e := range n.elifs {
			list = append(list, e)
		}
		return append(list, n.orElse...)
	case *macroNode:
		return append(append(names(n.args), n.defaults...), n.body...)
	case *callBlockNode:
		list := []node{}
		if n.call != nil {
			list = append(list, n.call)
		}
		return append(append(append(list, names(n.args)...), n.defaults...), n.body...)
	case *filterBlockNode:
		return append(append([]node{}, n.body...), n.filter)
	case *withNode:
		return append(append(append([]node{}, n.targets...), n.values...), n.body...)
	case *blockNode:
		return n.body
	case *loaderNode:
		return n.parts
	}
	return expressionChildren(n)
}

func expressionChildren(n node) []node {
	switch n := n.(type) {
	// some leaves out optional parts that are not given.
	case *tupleNode:
		return n.items
	case *listNode:
		return n.items
	case *dictNode:
		list := []node{}
		for _, p := range n.pairs {
			list = append(list, p.key, p.value)
		}
		return list
	case *binaryNode:
		return []node{n.left, n.right}
	case *unaryNode:
		return []node{n.value}
	case *compareNode:
		list := []node{n.first}
		for _, o := range n.ops {
			list = append(list, o.value)
		}
		return list
	case *concatNode:
		return n.parts
	case *condNode:
		return some(n.test, n.yes, n.no)
	case *getattrNode:
		return []node{n.object}
	case *getitemNode:
		return []node{n.object, n.index}
	case *sliceNode:
		return some(n.start, n.stop, n.step)
	case *callNode:
		return append([]node{n.callee}, n.argsNode.children()...)
	case *filterNode:
		return append(some(n.value), n.argsNode.children()...)
	case *testNode:
		return append([]node{n.value}, n.argsNode.children()...)
	}
	return nil
}

func (a *argsNode) children() []node {
	list := append([]node{}, a.args...)
	for _, k := range a.kwargs {
		list = append(list, k.value)
	}
	return append(list, some(a.dynArgs, a.dynKwargs)...)
}

func some(list ...node) []node {
	kept := []node{}
	for _, n := range list {
		if n != nil {
			kept = append(kept, n)
		}
	}
	return kept
}

func filterOrNil(f *filterNode) node {
	if f == nil {
		return nil
	}
	return f
}

func names(list []*nameNode) []node {
	out := []node{}
	for _, n := range list {
		out = append(out, n)
	}
	return out
}

// findAll calls visit for every node below n, n not among them, until it returns false.
func findAll(n node, visit func(node) bool) bool {
	for _, child := range children(n) {
		if !visit(child) || !findAll(child, visit) {
			return false
		}
	}
	return true
}
