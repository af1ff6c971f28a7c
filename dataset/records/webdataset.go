package records

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// tarMagic stands at byte tarMagicAt of an archive.
const (
	tarMagic   = "ustar"
	tarMagicAt = 257
)

// IsTar reports whether head begins a tar archive.
func IsTar(head []byte) bool {
	return len(head) > tarMagicAt && bytes.HasPrefix(head[tarMagicAt:], []byte(tarMagic))
}

// Ends of names, behind the last dot, and what WebDataset decodes such members as.
var (
	textMembers   = []string{"txt", "text", "transcript"}
	numberMembers = []string{"cls", "cls2", "class", "count", "index", "inx", "id"}
	jsonMembers   = []string{"json", "jsn"}
	linesMembers  = []string{"jsonl", "ndjson"}
)

// Tar is the rows of an archive. Members in a row whose names agree up to the first dot of the last part are
// a row: __key__ is what they agree on, the rest of a name is a field. Fields of a .json object are fields of
// the row; one that a member has too is the member's. Members of JSON lines are rows themselves. Members of
// other kinds, folders and links are left out. most is the longest member that is read.
func Tar(from io.Reader, most func() int64) io.Reader {
	a := &archive{most: most}
	a.tar = tar.NewReader(io.TeeReader(from, &a.end))
	return &lines{next: a.next}
}

// blockEnd keeps whether the last bytes that came were zeros, and how many.
type blockEnd struct{ zeros int }

func (e *blockEnd) Write(p []byte) (int, error) {
	if kept := len(bytes.TrimRight(p, "\x00")); kept > 0 {
		e.zeros = len(p) - kept
	} else {
		e.zeros += len(p)
	}
	return len(p), nil
}

type archive struct {
	tar    *tar.Reader
	end    blockEnd
	most   func() int64
	key    string
	sample sample
	ended  bool
	inner  *bufio.Reader // of a member of JSON lines; nil: none
}

// sample is a row of several members.
type sample struct {
	given   bool
	names   []string // of its fields
	objects []byte   // the fields of its .json object
	fields  row
}

func (a *archive) next() ([]byte, error) {
	for {
		if a.inner != nil {
			line, err := a.line()
			if line != nil || err != nil {
				return line, err
			}
		}
		if a.ended {
			return nil, io.EOF
		}
		head, err := a.tar.Next()
		if err == io.EOF {
			if a.end.zeros < 512 { // the library takes a cut archive for a short one
				return nil, errors.New("the tar archive is damaged: it ends without the two empty blocks that end an archive, so it may be truncated")
			}
			a.ended = true
			if a.sample.given {
				return a.take(), nil
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the tar archive is damaged: %w", err)
		}
		row, err := a.member(head)
		if row != nil || err != nil {
			return row, err
		}
	}
}

// member adds a member to the sample, or is the row that ends with it.
func (a *archive) member(head *tar.Header) (done []byte, err error) {
	key, end := split(head.Name)
	if head.Typeflag != tar.TypeReg || end == "" {
		return nil, nil
	}
	kind := strings.ToLower(end[strings.LastIndexByte(end, '.')+1:])
	lines := slices.Contains(linesMembers, kind)
	if a.sample.given && (key != a.key || lines) {
		done = a.take()
	}
	if lines {
		a.inner = bufio.NewReader(a.tar)
		return done, nil
	}
	a.key = key
	if err := a.sample.add(key, strings.ToLower(end), kind, a.tar, a.most()); err != nil {
		return nil, fmt.Errorf("member %q: %w", head.Name, err)
	}
	return done, nil
}

// split cuts a name at the first dot of its last part; end is "" for anything but a member of a sample.
func split(name string) (key, end string) {
	folder, file := path.Split(name)
	stem, end, _ := strings.Cut(file, ".")
	if stem == "" || strings.HasPrefix(file, "__") {
		return "", ""
	}
	return folder + stem, end
}

func (s *sample) add(key, name, kind string, from io.Reader, most int64) error {
	s.given = true
	if slices.Contains(s.names, name) {
		return fmt.Errorf("the sample %q has two members of this name", key)
	}
	s.names = append(s.names, name)
	// The extension says what a member is; others, as pictures, are not read.
	text, number, object := slices.Contains(textMembers, kind), slices.Contains(numberMembers, kind), slices.Contains(jsonMembers, kind)
	if !text && !number && !object {
		return nil
	}
	value, err := readAll(from, most)
	switch {
	case err != nil:
		return err
	case text:
		return s.fields.text(name, value)
	case number:
		if value = bytes.TrimSpace(value); !isNumber(string(value)) {
			return fmt.Errorf("%.20q is not a number", value)
		}
		s.fields.raw(name, value)
		return nil
	}
	// A JSON member: an object's fields become the row's, another value is a field by the member's name.
	var fields row
	if !fields.fields(value) {
		s.fields.raw(name, value)
	} else if len(fields) > 0 {
		s.objects = append(append(s.objects, ','), fields[1:]...)
	}
	return nil
}

// take is the row so far; its sample begins again. Of equal keys a reader takes the last.
func (a *archive) take() []byte {
	var r row
	_ = r.text("__key__", bytes.ToValidUTF8([]byte(a.key), []byte("\ufffd"))) // UTF-8 by now
	r = append(r, a.sample.objects...)
	if fields := a.sample.fields; len(fields) > 0 {
		r = append(append(r, ','), fields[1:]...)
	}
	a.sample = sample{}
	return r.done()
}

// line is the next of a member of JSON lines that is not blank; nil behind the last.
func (a *archive) line() ([]byte, error) {
	for {
		var line []byte
		for {
			part, err := a.inner.ReadSlice('\n')
			line = append(line, part...)
			if int64(len(line)) > a.most() {
				return nil, errTooLong
			}
			if err == nil {
				break
			}
			if errors.Is(err, io.EOF) {
				if a.inner = nil; len(bytes.TrimSpace(line)) == 0 {
					return nil, nil
				}
				return bytes.TrimRight(line, "\r\n"), nil
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
		}
		if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}
