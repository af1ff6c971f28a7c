//go:build cgo

package device

/*
#include "device.h"

static const char *mt_graph_begin(const mt_graphs *g, mt_context *c) { return g->begin(c); }
static const char *mt_graph_end(const mt_graphs *g, mt_context *c, void **graph, int64_t *nodes) { return g->end(c, graph, nodes); }
static const char *mt_graph_launch(const mt_graphs *g, mt_context *c, void *graph) { return g->launch(c, graph); }
static void mt_graph_drop(const mt_graphs *g, mt_context *c, void *graph) { g->drop(c, graph); }
*/
import "C"

import "unsafe"

// libraryGraphs are the graphs of a kernel library.
type libraryGraphs struct{ library *library }

// Graphs are nil where the library has none.
func (l *library) Graphs() graphs {
	if l.api.graphs == nil {
		return nil
	}
	return libraryGraphs{l}
}

func (g libraryGraphs) begin() error {
	err := trouble("beginning a graph", C.mt_graph_begin(g.library.api.graphs, g.library.context))
	g.library.taking = err == nil
	return err
}

func (g libraryGraphs) end() (graph unsafe.Pointer, nodes int64, err error) {
	var n C.int64_t
	g.library.taking = false
	err = trouble("ending a graph", C.mt_graph_end(g.library.api.graphs, g.library.context, &graph, &n))
	if err == nil {
		g.library.graphs++
	}
	return graph, int64(n), err
}

func (g libraryGraphs) launch(graph unsafe.Pointer) error {
	defer g.library.trail.call()()
	if t := g.library.trail; t != nil {
		t.mark()
	}
	return trouble("launching a graph", C.mt_graph_launch(g.library.api.graphs, g.library.context, graph))
}

func (g libraryGraphs) drop(graph unsafe.Pointer) {
	C.mt_graph_drop(g.library.api.graphs, g.library.context, graph)
	g.library.graphs--
}
