// Package osadvice asks the system for what only makes a run faster: large pages,
// reading ahead, writing early. Every call is a wish that may go unheard, and that
// only Linux hears; nothing depends on it.
package osadvice
