package exitcode

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// JSON reads text, the content of the JSON file path, into a value, as json.Unmarshal does. Its error is
// BadData and names the file and the line.
func JSON(path string, text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if err == nil {
		return nil
	}
	line, what := explain(text, err)
	return Errorf(BadData, "%s:%d: %s", path, line, what)
}

// explain is the line of text that an error of json.Unmarshal is about, and the error in plain words.
func explain(text []byte, err error) (line int, what string) {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	at := int64(len(text))
	switch what = strings.TrimPrefix(err.Error(), "json: "); {
	case errors.As(err, &syntax) && syntax.Offset >= at:
		what = "the file ends inside a JSON value"
	case errors.As(err, &syntax):
		at, what = syntax.Offset, "not valid JSON: "+what
	case errors.As(err, &kind) && kind.Field != "":
		at, what = kind.Offset, "the value of "+kind.Field+" has the wrong type ("+kind.Value+")"
	case errors.As(err, &kind):
		at, what = kind.Offset, "the JSON value has the wrong type ("+kind.Value+")"
	}
	return 1 + bytes.Count(text[:min(max(at, 0), int64(len(text)))], []byte("\n")), what
}
