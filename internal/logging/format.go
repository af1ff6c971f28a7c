package logging

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Formats of notes (--log-format).
const (
	Text = "text" // a line for people, in colour on a terminal
	JSON = "json" // an object for machines
)

// levels are those of --log-level.
var levels = map[string]zerolog.Level{"debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "warning": zerolog.WarnLevel, "error": zerolog.ErrorLevel}

// Levels are the values of --log-level, the one that prints most first.
func Levels() []string { return []string{"debug", "info", "warning", "error"} }

// now is a note's time, to the microsecond, as Megatron's lines have it.
func now() string { return time.Now().Format("2006-01-02T15:04:05.000000Z07:00") }

// writer turns zerolog's objects into what w is to show.
func writer(w io.Writer, format string) io.Writer {
	if format == JSON {
		return w
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" {
		return terminal(w)
	}
	return zerolog.ConsoleWriter{Out: w, NoColor: true, PartsOrder: []string{zerolog.MessageFieldName}, FieldsExclude: fieldNames}
}

// fieldNames are what a plain line leaves out.
var fieldNames = []string{"time", "component", "rank", "step", "code"}

// terminal shows the hour, the level in colour, the text and who says it.
func terminal(w io.Writer) io.Writer {
	return zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, TimeLocation: time.Local}
}

// Count is a number with its noun: "1 host", "4 ranks".
func Count[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(int64(n), 10) + " " + noun
}
