package pickle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
)

// corpus is golden/checkpoint/pickle: files of torch.save with their contents.
type corpus struct {
	dir   string
	cases map[string]struct {
		Expect string          `json:"expect"`
		Value  json.RawMessage `json:"value"`
	}
	tensors *safetensors.File
}

func openCorpus(t *testing.T) *corpus {
	c := &corpus{dir: golden.Dir(t, "checkpoint/pickle")}
	text, err := os.ReadFile(filepath.Join(c.dir, "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Files json.RawMessage }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all.Files, &c.cases); err != nil {
		t.Fatal(err)
	}
	if c.tensors, err = safetensors.Open(filepath.Join(c.dir, "expected.safetensors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.tensors.Close() })
	return c
}

// tree is the description of a file's object.
func (c *corpus) tree(t *testing.T, name string) any {
	t.Helper()
	var tree any
	d := json.NewDecoder(bytes.NewReader(c.cases[name].Value))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// Every value of every file of the corpus, tensors by their bytes.
func TestCorpus(t *testing.T) {
	c := openCorpus(t)
	for name, want := range c.cases {
		t.Run(name, func(t *testing.T) {
			f, err := Open(filepath.Join(c.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if want.Expect == "read" {
				c.compare(t, name, "", f.Root, c.tree(t, name))
			}
		})
	}
}

// What is written is read back the same: every file of the corpus saved again.
func TestCorpusWrittenAgain(t *testing.T) {
	c := openCorpus(t)
	done := 0
	for name, want := range c.cases {
		if want.Expect != "read" || name == "objects.pt" || name == "newer-dtypes.pt" || name == "dtypes.pt" {
			continue // a list inside itself, and types that torch writes as untyped storages
		}
		f, err := Open(filepath.Join(c.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		n, err := Save(t.Context(), &out, "archive", f.Root)
		if err != nil || n != int64(out.Len()) {
			t.Fatalf("%s: %d of %d bytes, %v", name, n, out.Len(), err)
		}
		again, err := Read(name, bytes.NewReader(out.Bytes()), n)
		if err != nil {
			t.Fatal(err)
		}
		c.compare(t, name, "", again.Root, c.tree(t, name))
		_ = f.Close()
		done++
	}
	if done < 15 {
		t.Errorf("only %d files were written", done)
	}
}

// compare checks v against the description of the corpus.
func (c *corpus) compare(t *testing.T, file, path string, v Value, want any) {
	t.Helper()
	fail := func(is any) {
		t.Errorf("%s %s: %.200v (%s), want %.200v", file, path, fmt.Sprint(is), TypeName(v), fmt.Sprint(want))
	}
	switch w := want.(type) {
	case nil:
		if v != nil {
			fail(v)
		}
	case bool:
		if v != w {
			fail(v)
		}
	case json.Number:
		if fmt.Sprint(v) == w.String() {
			return
		}
		n, err := w.Float64()
		if f, ok := Float(v); err != nil || !ok || f != n {
			fail(v)
		}
	case map[string]any:
		c.compareTyped(t, file, path, v, w)
	default:
		t.Fatalf("%s %s: the description holds a %T", file, path, want)
	}
}

func (c *corpus) compareTyped(t *testing.T, file, path string, v Value, w map[string]any) {
	t.Helper()
	fail := func(is any) {
		t.Errorf("%s %s: %.200v (%s), want %.200v", file, path, fmt.Sprint(is), TypeName(v), fmt.Sprint(w))
	}
	kind := w["type"].(string)
	entries := func() [][2]any {
		var list [][2]any
		items, _ := w["items"].([]any)
		for _, i := range items {
			if pair, ok := i.([]any); ok && len(pair) == 2 {
				list = append(list, [2]any{pair[0], pair[1]})
			}
		}
		return list
	}
	pairs := func(d *Dict) {
		list := entries()
		if n, ok := w["str_of_index_to_index"].(json.Number); ok {
			for i := 0; fmt.Sprint(i) != n.String(); i++ {
				list = append(list, [2]any{fmt.Sprint(i), json.Number(fmt.Sprint(i))})
			}
		}
		if d == nil || len(d.Pairs) != len(list) {
			fail(v)
			return
		}
		for i, p := range list {
			key := p[0]
			if s, ok := key.(string); ok {
				key = map[string]any{"type": "str", "value": s}
			}
			c.compare(t, file, path+".<key>", d.Pairs[i].Key, key)
			name := keyText(d.Pairs[i].Key)
			c.compare(t, file, path+"."+name, d.Pairs[i].Value, p[1])
		}
	}
	each := func(items []Value) {
		list, _ := w["items"].([]any)
		if len(items) != len(list) {
			fail(items)
			return
		}
		for i := range list {
			c.compare(t, file, fmt.Sprintf("%s[%d]", path, i), items[i], list[i])
		}
	}
	switch kind {
	case "str":
		if v != w["value"] {
			fail(v)
		}
	case "int":
		n, _ := new(big.Int).SetString(fmt.Sprint(w["decimal"]), 10)
		if n == nil || fmt.Sprint(v) != n.String() {
			fail(v)
		}
	case "float", "builtins.float":
		f, err := strconv.ParseFloat(fmt.Sprint(w["value"]), 64)
		if g, ok := v.(float64); err != nil || !ok || g != f && (g == g || f == f) {
			fail(v)
		}
	case "bytes":
		b, ok := v.(Bytes)
		if !ok || fmt.Sprintf("%x", []byte(b)) != w["hex"] {
			fail(v)
		}
	case "dict", "OrderedDict", "defaultdict":
		d, _ := v.(*Dict)
		if d != nil && !strings.HasSuffix("collections."+kind, d.Class) {
			fail(d.Class)
		}
		pairs(d)
	case "argparse.Namespace", "types.SimpleNamespace":
		o, _ := v.(*Object)
		if o == nil || o.Class != kind {
			fail(v)
			return
		}
		pairs(o.Attributes())
	case "list", "tuple":
		items, _ := Items(v)
		each(items)
	case "set", "frozenset":
		s, _ := v.(*Set)
		if s == nil || s.Frozen != (kind == "frozenset") {
			fail(v)
			return
		}
		each(s.Items)
	case "same-as-file":
		c.compare(t, file, path, v, c.tree(t, w["file"].(string)))
	case "same-object-as":
		if _, ok := v.(*List); !ok {
			fail(v)
		}
	case "torch.dtype":
		if "torch."+fmt.Sprint(v) != w["repr"] {
			fail(v)
		}
	case "torch.Size":
		if fmt.Sprint(v) != strings.ReplaceAll(fmt.Sprint(w["value"]), ",", "") {
			fail(v)
		}
	case "io.BytesIO":
		b, ok := textOf(v)
		if !ok || fmt.Sprintf("%x", []byte(b)) != w["hex"] {
			fail(v)
		}
	case "builtins.bytearray":
		if fmt.Sprintf("bytearray(b'\\x%02x\\x%02x')", v.(Bytes)[0], v.(Bytes)[1]) != w["repr"] {
			fail(v)
		}
	case "torch.device", "pathlib.PosixPath", "builtins.complex":
		o, ok := v.(*Object)
		if !ok || !strings.HasSuffix(o.Class, kind[strings.LastIndexByte(kind, '.'):]) {
			fail(v)
		}
	case "tensor":
		c.compareTensor(t, file, path, v, w)
	case "numpy-scalar", "ndarray":
		c.compareArray(t, file, path, v, w)
	default:
		t.Errorf("%s %s: no comparison for %v, got a %s", file, path, w, TypeName(v))
	}
}

func (c *corpus) compareTensor(t *testing.T, file, path string, v Value, w map[string]any) {
	t.Helper()
	x, ok := v.(*Tensor)
	if !ok {
		t.Errorf("%s %s: %s, want a tensor", file, path, TypeName(v))
		return
	}
	if x.DType != dtypes[fmt.Sprint(w["dtype"])] || fmt.Sprint(x.Shape) != strings.ReplaceAll(fmt.Sprint(w["shape"]), ",", "") {
		t.Errorf("%s %s: %s%v, want %v", file, path, x.DType, x.Shape, w)
	}
	raw, err := x.Read()
	if err != nil {
		t.Errorf("%s %s: %v", file, path, err)
		return
	}
	key, _ := w["expected"].(string)
	want, err := c.tensors.Read(key)
	if err != nil {
		t.Errorf("%s %s: %v", file, path, err)
		return
	}
	if !bytes.Equal(raw, want) {
		t.Errorf("%s %s: %x, want %x", file, path, raw[:min(32, len(raw))], want[:min(32, len(want))])
	}
}

func (c *corpus) compareArray(t *testing.T, file, path string, v Value, w map[string]any) {
	t.Helper()
	a, err := asArray(v)
	if err != nil {
		t.Errorf("%s %s: %v", file, path, err)
		return
	}
	if strings.TrimLeft(a.DType, "|<") != strings.TrimLeft(fmt.Sprint(w["dtype"]), "|<") {
		t.Errorf("%s %s: type %s, want %v", file, path, a.DType, w["dtype"])
	}
	if key, ok := w["expected"].(string); ok {
		want, err := c.tensors.Read(key)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.rows(); !bytes.Equal(got, want) {
			t.Errorf("%s %s: %x, want %x", file, path, got, want)
		}
		return
	}
	one := a.Data
	if len(one) != int(a.DType[2]-'0') {
		t.Errorf("%s %s: a scalar of %d bytes", file, path, len(one))
	}
}

// Every pt- file of golden/checkpoint/bad is refused with its name and what the
// case demands; good ones are read. The tensors' bytes are read too, as a
// conversion would.
func TestBadFiles(t *testing.T) {
	dir := golden.Dir(t, "checkpoint/bad")
	folders, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, folder := range folders {
		path := filepath.Join(dir, folder.Name(), "ckpt.pt")
		text, err := os.ReadFile(filepath.Join(dir, folder.Name(), "case.json"))
		if err != nil {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			continue
		}
		var c struct {
			Must     string
			Contains []string `json:"message_contains"`
		}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		seen++
		err = readEverything(path)
		if c.Must != "refuse" {
			if err != nil {
				t.Errorf("%s: %v", folder.Name(), err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s was read", folder.Name())
			continue
		}
		for _, part := range c.Contains {
			found := false
			for _, one := range strings.Split(part, "|") {
				found = found || strings.Contains(err.Error(), one)
			}
			if !found {
				t.Errorf("%s: %v does not say %s", folder.Name(), err, part)
			}
		}
		if exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: code %d", folder.Name(), exitcode.CodeOf(err))
		}
	}
	if seen < 10 {
		t.Errorf("only %d cases", seen)
	}
}

func readEverything(path string) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	Walk(f.Root, func(_ string, v Value) bool {
		if x, ok := v.(*Tensor); ok && err == nil {
			_, err = x.Read()
		}
		return err == nil
	})
	return err
}

// Numbers at the edges of the integer opcodes survive being written and read.
func TestNumbersBothWays(t *testing.T) {
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	for _, v := range []Value{int64(0), int64(255), int64(256), int64(65535), int64(65536), int64(-1), int64(1<<31 - 1), int64(1 << 31), int64(-1 << 31),
		int64(-1<<31 - 1), int64(1<<63 - 1), int64(-1 << 63), huge, 0.1, math.Copysign(0, -1), true, false, nil, "", "Zeichen \u00e4\U0001F600", Bytes{}, Bytes{0, 127, 128, 255},
		Size{2, 3}, DType("bfloat16"), Class("torch.Tensor")} {
		text, err := Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		got, n, err := Decode("test", text)
		if err != nil || n != len(text) || !reflect.DeepEqual(got, v) && fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("%v came back as %v, %v", v, got, err)
		}
	}
}
