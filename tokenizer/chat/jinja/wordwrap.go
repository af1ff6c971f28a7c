package jinja

import "strings"

// wrapper is Python's textwrap.TextWrapper, as Jinja calls it.
type wrapper struct {
	r          *run
	width      int
	breakLong  bool
	breakHyphs bool
}

func wordWrap(r *run, v Value, args []Value) Value {
	w := &wrapper{r: r, width: indexOr(args[0], "width", 79)}
	w.breakLong = args[1] == nil || r.truth(args[1])
	w.breakHyphs = args[3] == nil || r.truth(args[3])
	by := "\n"
	if _, none := given(args[2]).(None); !none {
		by = textArg(args[2])
	}
	s, is := textOf(v)
	if !is {
		if u, undefined := v.(*Undefined); undefined {
			u.use()
		}
		fail("AttributeError", "'%s' object has no attribute 'splitlines'", typeName(v))
	}
	if _, safe := v.(Markup); safe {
		unsupported("wordwrap of a Markup")
	}
	// Each line is a paragraph of its own.
	var out buffer
	for i, line := range r.lines(s, false) {
		if w.width <= 0 {
			valueError("invalid width %d (must be > 0)", w.width)
		}
		if i > 0 {
			r.write(&out, by)
		}
		for j, part := range w.wrap([]rune(line)) {
			if j > 0 {
				r.write(&out, by)
			}
			r.write(&out, part)
		}
	}
	return r.take(&out)
}

// isBlank is what textwrap calls whitespace, which is less than str.isspace.
func isBlank(c rune) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// chunks cuts a text into words, blanks and pieces of hyphenated words.
func (w *wrapper) chunks(s []rune) (list [][]rune) {
	w.r.allocTimes(len(s), 8)
	for i := 0; i < len(s); {
		n := w.chunk(s, i)
		w.r.step(1)
		list = append(list, s[i:n])
		i = n
	}
	return list
}

func isLetterOf(c rune) bool { return isWord(c) && !isDecimal(c) }

func wordPunct(c rune) bool { return isWord(c) || strings.ContainsRune(`!"'&.,?`, c) }

// hyphens is how many hyphens stand at i.
func hyphens(s []rune, i int) int {
	n := 0
	for i+n < len(s) && s[i+n] == '-' {
		n++
	}
	return n
}

// chunk is the end of the chunk that begins at i (textwrap's wordsep_re).
func (w *wrapper) chunk(s []rune, i int) int {
	j := i
	for j < len(s) && isBlank(s[j]) {
		j++
	}
	if j > i {
		return j
	}
	// Without breaks at hyphens a word ends at a blank.
	if !w.breakHyphs {
		for j < len(s) && !isBlank(s[j]) {
			j++
		}
		return j
	}
	dash := func(at int) int { // the end of an em-dash that stands between words
		n := hyphens(s, at)
		w.r.step(1 + n/8)
		if n >= 2 && at+n < len(s) && isWord(s[at+n]) && at > 0 && wordPunct(s[at-1]) {
			return at + n
		}
		return -1
	}
	if end := dash(i); end > 0 {
		return end
	}
	// A word ends behind a hyphen between letters, in front of an em-dash, or at a blank.
	letter := func(at int) bool { return at >= 0 && at < len(s) && isLetterOf(s[at]) }
	for j = i + 1; ; j++ {
		w.r.step(1)
		if j >= len(s) || isBlank(s[j]) {
			return min(j, len(s))
		}
		if s[j] == '-' {
			before := letter(j-2) && letter(j-1) || letter(j-3) && j >= 2 && s[j-2] == '-' && wordPunct(s[j-1])
			after := letter(j+1) && (letter(j+2) || j+2 < len(s) && s[j+2] == '-' && letter(j+3))
			if before && after {
				return j + 1
			}
			if dash(j) > 0 {
				return j
			}
		}
	}
}

// wrap is the lines of one paragraph.
func (w *wrapper) wrap(s []rune) (lines []string) {
	chunks := w.chunks(s)
	blank := func(c []rune) bool {
		for _, x := range c {
			if !isSpace(x) {
				return false
			}
		}
		return true
	}
	// Blanks at the beginning of a line go, but in the first.
	for len(chunks) > 0 {
		if blank(chunks[0]) && len(lines) > 0 {
			chunks = chunks[1:]
		}
		var line [][]rune
		length := 0
		// Words that fit; one that is too long is cut; blanks at the end go.
		for len(chunks) > 0 && length+len(chunks[0]) <= w.width {
			line, length = append(line, chunks[0]), length+len(chunks[0])
			chunks = chunks[1:]
		}
		if len(chunks) > 0 && len(chunks[0]) > w.width {
			line, chunks = w.long(line, chunks, w.width-length)
		}
		if len(line) > 0 && blank(line[len(line)-1]) {
			line = line[:len(line)-1]
		}
		if len(line) > 0 {
			var b strings.Builder
			for _, c := range line {
				b.WriteString(string(c))
			}
			lines = append(lines, w.r.text(b.String()))
		}
	}
	return lines
}

// long takes what fits of a word that is longer than a line.
func (w *wrapper) long(line, chunks [][]rune, left int) ([][]rune, [][]rune) {
	word := chunks[0]
	if w.breakLong {
		end := left
		if w.breakHyphs && len(word) > left {
			hyphen := lastHyphen(word[:left])
			if hyphen > 0 && strings.Trim(string(word[:hyphen]), "-") != "" {
				end = hyphen + 1
			}
		}
		return append(line, word[:end]), replaced(chunks, word[end:])
	}
	if len(line) == 0 {
		return [][]rune{word}, chunks[1:]
	}
	return line, chunks
}

// replaced is chunks with another first one.
func replaced(chunks [][]rune, first []rune) [][]rune {
	chunks[0] = first
	return chunks
}

func lastHyphen(s []rune) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '-' {
			return i
		}
	}
	return -1
}
