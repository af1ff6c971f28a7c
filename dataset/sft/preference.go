package sft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Rule is how rows of preference data become tokens. TRL's trainers have three.
type Rule string

// Rules.
const (
	RuleDPO Rule = "dpo" // pairs: texts end with the end-of-sequence token, messages as the template says
	// Pairs, also for SimPO: messages are rendered to text, every text is put between the tokens for
	// beginning and end.
	RuleORPO Rule = "orpo"
	RuleKTO  Rule = "kto" // answers with a label, as RuleDPO; of a pair one is good, one bad
)

// Preference is a row of preference data.
type Preference struct {
	Line    int64
	Answers []Document // the better one and the worse one; or the one that has a label, and its prompt with another row's answer
	Good    bool       // the label
	Unused  string     // as Document.Unused
	full    []answered // of the answers, before truncation
}

// Last is the last token of the first answer, as a list; empty where that has none.
func (r *Preference) Last() []int32 { return r.Answers[0].Last() }

// Paired reports whether the row is two answers to learn from.
func (r Rule) Paired() bool { return r != RuleKTO }

// From is where the answer begins: the number of its first token.
func (d *Document) From() int {
	if len(d.Learn) == 0 {
		return len(d.IDs)
	}
	return d.Learn[0][0]
}

// cutAnswer is an answer with at most n tokens.
func cutAnswer(a answered, line int64, n int) Document {
	d := Document{IDs: a.ids, Line: line, Length: len(a.ids)}
	if a.from < len(a.ids) {
		d.Learn = [][2]int{{a.from, len(a.ids)}}
	}
	d.truncate(n)
	return d
}

// ReadPreferences reads the rows of a file of JSON lines, a JSON array or Parquet, in its order, those
// included that training drops: their prompts leave no token of an answer within c.Length. Of pairs RuleKTO
// makes two rows, all good answers before all bad ones.
func ReadPreferences(path string, tok tokenizer.Tokenizer, c Config) (rows []Preference, err error) {
	// Rows are rendered as they are read; a file has pairs or single answers, not both.
	render := &renderer{tok: tok, config: c}
	err = eachRow(path, func(text []byte) (made Preference, err error) {
		a, err := parsePreference(text, c.Rule)
		if err != nil {
			return made, err
		}
		made.Good, made.Unused = a.label, a.unused
		made.full, err = render.tokens(a)
		return made, err
	}, func(where string, line int64, made Preference) error {
		made.Line = line
		if len(rows) > 0 && len(rows[0].full) != len(made.full) {
			return exitcode.Errorf(exitcode.BadData, "%s: some rows are pairs of answers and some are single answers with a label; write only one kind in a file", where)
		}
		rows = append(rows, made)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// KTO learns from single answers.
	if c.Rule == RuleKTO && len(rows) > 0 && len(rows[0].full) == 2 {
		rows = unpaired(rows)
	}
	// Each answer is cut to the length.
	for i := range rows {
		for _, a := range rows[i].full {
			rows[i].Answers = append(rows[i].Answers, cutAnswer(a, rows[i].Line, c.Length))
		}
	}
	return rows, nil
}

// unpaired are the answers of pairs as rows: all good ones, then all bad ones.
func unpaired(rows []Preference) (out []Preference) {
	for i, good := range []bool{true, false} {
		for _, r := range rows {
			out = append(out, Preference{Line: r.Line, Good: good, full: r.full[i : i+1 : i+1]})
		}
	}
	return out
}

// fits reports whether a row has tokens of each answer within n.
func (r *Preference) fits(n int) bool {
	for _, a := range r.full {
		if a.from >= n {
			return false
		}
	}
	return true
}

// mismatch gives each row a second answer: its prompt with the answer of the row before it, of the
// first row of a block that of the block's last, which is its own where the last block has one row.
func mismatch(rows []Preference, block, length int) {
	for from := 0; from < len(rows); from += block {
		to := min(from+block, len(rows))
		for i := from; i < to; i++ {
			other := i - 1
			if i == from {
				other = to - 1
			}
			own, next := rows[i].full[0], rows[other].full[0]
			mixed := answered{from: own.from}
			mixed.ids = append(append(mixed.ids, own.ids[:own.from]...), next.ids[next.from:]...)
			rows[i].Answers = append(rows[i].Answers, cutAnswer(mixed, rows[i].Line, length))
		}
	}
}

// Preferences is the rows of a file that fit. It is a dataset.Dataset of one pass over them.
type Preferences struct {
	Rows   []Preference
	Counts Counts
	Rule   Rule
	length int
	pad    int32
}

// NewPreferences reads the rows of a file.
func NewPreferences(path string, tok tokenizer.Tokenizer, c Config) (*Preferences, error) {
	all, err := ReadPreferences(path, tok, c)
	if err != nil {
		return nil, err
	}
	s := &Preferences{Rule: c.Rule, length: c.Length, pad: padOf(tok)}
	// Rows without a token of an answer within the length are dropped.
	for _, r := range all {
		s.Counts.Rows++
		s.Counts.count(r.Unused)
		if !r.fits(c.Length) {
			s.Counts.Dropped++
			continue
		}
		s.Rows = append(s.Rows, r)
	}
	if len(s.Rows) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: among the first %d tokens of each row, none belongs to an answer (%d rows were read); raise --seq-length or check the rows with `monotron inspect samples --labels`", path, c.Length, s.Counts.Rows)
	}
	// What is left is counted.
	for _, r := range s.Rows {
		cut := false
		for _, d := range r.Answers {
			s.Counts.Tokens, s.Counts.Learned = s.Counts.Tokens+len(d.IDs), s.Counts.Learned+d.Learned()
			cut = cut || d.Cut > 0
		}
		if cut {
			s.Counts.Truncated++
		}
	}
	// KTO compares each prompt with the answer of another row.
	if c.Rule == RuleKTO {
		mismatch(s.Rows, max(1, c.Block), c.Length)
	}
	// The complete texts were needed until here.
	for i := range s.Rows {
		s.Rows[i].full = nil
	}
	return s, nil
}

// Len is the number of rows.
func (s *Preferences) Len() int64 { return int64(len(s.Rows)) }

// Paired reports whether a sample has two sequences.
func (s *Preferences) Paired() bool { return s.Rule.Paired() }

// Sample is row k: the better answer with the worse one in Also, or the answer that has a label.
// The loss mask counts the tokens of the answers.
func (s *Preferences) Sample(k int64) (dataset.Sample, error) {
	if k < 0 || k >= s.Len() {
		return dataset.Sample{}, exitcode.Errorf(exitcode.Internal, "internal error: row %d was requested, but there are %d rows; report this, and include the command line", k, s.Len())
	}
	out := s.sequence(&s.Rows[k].Answers[0])
	if s.Paired() {
		out.Also = []dataset.Sample{s.sequence(&s.Rows[k].Answers[1])}
	}
	out.Row = k
	return out, nil
}

// Mismatched is row k's prompt with the answer of another row, of RuleKTO.
func (s *Preferences) Mismatched(k int64) dataset.Sample {
	out := s.sequence(&s.Rows[k].Answers[1])
	out.Row = k
	return out
}

func (s *Preferences) sequence(d *Document) dataset.Sample {
	return laid([]*Document{d}, s.length, false, s.pad)
}

// Sum is a SHA-256 of the tokens and of where the answers begin.
func (s *Preferences) Sum() string {
	h := sha256.New()
	for _, r := range s.Rows {
		for _, d := range r.Answers {
			_ = binary.Write(h, binary.LittleEndian, []int64{int64(len(d.IDs)), int64(d.From())}) // a hash takes everything
			_ = binary.Write(h, binary.LittleEndian, d.IDs)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Good counts the rows whose answer is good.
func (s *Preferences) Good() (n int) {
	for _, r := range s.Rows {
		if r.Good {
			n++
		}
	}
	return n
}

// String says what became of the rows.
func (s *Preferences) String() string {
	kinds := fmt.Sprintf("%d pairs of answers", len(s.Rows))
	if !s.Paired() {
		kinds = fmt.Sprintf("%d good and %d bad answers", s.Good(), len(s.Rows)-s.Good())
	}
	n := s.Counts
	return fmt.Sprintf("%d rows have %s; %d of %d tokens are in answers; %d rows are truncated at --seq-length %d, and %d rows whose prompt is at least that long are dropped", n.Rows, kinds, n.Learned, n.Tokens, n.Truncated, s.length, n.Dropped)
}
