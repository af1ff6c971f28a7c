package exitcode

import "testing"

// Claim (docs/exit-codes.md): an error in a JSON file names the file and the line.
func TestJSONNamesTheLine(t *testing.T) {
	type shape struct {
		Width int `json:"width"`
	}
	for text, want := range map[string]string{
		"{\"width\": 3}":                 "",
		"{\n \"width\": x\n}":            "f.json:2: not valid JSON: invalid character 'x' looking for beginning of value",
		"{\n \"width\": 3,\n":            "f.json:3: the file ends inside a JSON value",
		"":                               "f.json:1: the file ends inside a JSON value",
		"{\n\n \"width\": \"three\"}":    "f.json:3: the value of width has the wrong type (string)",
		"[1]":                            "f.json:1: the JSON value has the wrong type (array)",
		"{\"width\": 3}\n{\"width\": 4}": "f.json:2: not valid JSON: invalid character '{' after top-level value",
	} {
		var s shape
		err := JSON("f.json", []byte(text), &s)
		if want == "" {
			if err != nil || s.Width != 3 {
				t.Errorf("%q: %v, %+v", text, err, s)
			}
		} else if err == nil || err.Error() != want || CodeOf(err) != BadData {
			t.Errorf("%q: %v (code %d), want %q", text, err, CodeOf(err), want)
		}
	}
}
