package data_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/hostile"
)

func checkRefused(t *testing.T, err error) {
	t.Helper()
	if tutti.CodeOf(err) != tutti.CodeInvalid || len(err.Error()) > tutti.MaxErrorText {
		t.Errorf("code %q, %d bytes: %.100v", tutti.CodeOf(err), len(err.Error()), err)
	}
}

// The function `same` reports whether two JSON values are equal for Puppet, without the canonical form. Two whole
// numbers are equal if their exact values are equal. Two other numbers are equal if they are the same 64-bit number.
func same(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		realA, realB := strings.ContainsAny(string(a), ".eE"), strings.ContainsAny(string(b), ".eE")
		if realA || realB {
			fa, errA := a.Float64()
			fb, errB := b.Float64()
			return realA == realB && errA == nil && errB == nil && fa == fb
		}
		wholeA, _ := new(big.Int).SetString(string(a), 10)
		wholeB, _ := new(big.Int).SetString(string(b), 10)
		return wholeA.Cmp(wholeB) == 0
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !same(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			other, there := b[name]
			if !there || !same(v, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q was accepted: %v", raw, err)
	}
	return v
}

// FuzzCanonical checks that a canonical form stays the same when it is converted again,
// and that it means the same value. Equal values have equal canonical forms, and
// different values have different canonical forms.
func FuzzCanonical(f *testing.F) {
	for i, seed := range []string{
		`{"b":1,"a":[1.0,1e5,-0],"":null}`, `"\ud800\udc00\u0000\u001f\u007f\/"`, `"\ud800"`, `[[[]]]`, `1e-400`, `-0.0`, `1e400`, `123456789012345678901234567890`, `1E+21`, `0.000001`,
		`{"a":1,"a":2}`, `"\ufffd"`, " [1 , 2] ", strings.Repeat("[", 300) + strings.Repeat("]", 300),
	} {
		f.Add([]byte(seed), []byte(seed), uint64(i))
		f.Add([]byte(seed), []byte(`[1,1.0,"1",true,null]`), uint64(0))
	}
	f.Fuzz(func(t *testing.T, raw, other []byte, seed uint64) {
		once, err := data.Canonical(raw)
		if err != nil {
			checkRefused(t, err)
			return
		}
		again, err := data.Canonical(once)
		if err != nil || !bytes.Equal(again, once) || !utf8.Valid(once) {
			t.Errorf("not canonical: %q becomes %q, then %q, error %v", raw, once, again, err)
		}
		if !same(decoded(t, raw), decoded(t, once)) {
			t.Errorf("%q says something else than %q", once, raw)
		}
		other = hostile.Mangle(other, seed)
		form, err := data.Canonical(other)
		if err == nil && same(decoded(t, raw), decoded(t, other)) != bytes.Equal(once, form) {
			t.Errorf("%q and %q: %q and %q", raw, other, once, form)
		}
		if err == nil && data.Equal(raw, other) != bytes.Equal(once, form) {
			t.Errorf("%q and %q: equal %v", raw, other, data.Equal(raw, other))
		}
	})
}

// FuzzFilter checks that a normal form stays the same when it is normalized again, and
// that it accepts the same exports as the filter.
func FuzzFilter(f *testing.F) {
	export := `{"type":"A","title":"x","tags":["a","b"],"parameters":{"x":1.0,"y":{"a":[1]}},"sensitive":["pw"]}`
	for i, seed := range []string{
		`null`, `["=","tag","A"]`, nested(3), chain(4), `["and",["or",["and",["=","x",1.0]]]]`, `["!=","pw",null]`,
		`["or",["!=","title","x"],["=","y",{"a":[1]}],["or",["=","tag","b"],["=","tag","B"]]]`,
	} {
		f.Add([]byte(seed), []byte(export), uint64(0))
		f.Add([]byte(seed), []byte(export), uint64(i+1))
	}
	f.Fuzz(func(t *testing.T, raw, export []byte, seed uint64) {
		raw = hostile.Mangle(raw, seed)
		once, err := data.Normalize(raw)
		if err != nil {
			checkRefused(t, err)
			return
		}
		again, err := data.Normalize(once)
		if err != nil || !bytes.Equal(again, once) || len(once) > data.MaxFilter {
			t.Errorf("no normal form: %q becomes %q, then %q, error %v", raw, once, again, err)
		}
		var e tutti.Export
		if json.Unmarshal(export, &e) != nil {
			return
		}
		kept, err := data.CheckExports("n", []tutti.Export{e})
		if err != nil {
			checkRefused(t, err)
			return
		}
		one, err := data.ParseFilter(raw)
		if err != nil {
			t.Fatal(err)
		}
		two, err := data.ParseFilter(once)
		if err != nil {
			t.Fatal(err)
		}
		if one.Match(kept[0]) != two.Match(kept[0]) {
			t.Errorf("%q and its normal form %q differ about %s", raw, once, export)
		}
	})
}

// FuzzExports checks a set that CheckExports accepts. The set stays the same
// when it is stored and read back, and gives the same answers. The normal form
// of a normal question is the same question.
func FuzzExports(f *testing.F) {
	set := `[{"type":"A","title":"x","tags":["b","a","a"],"parameters":{"p":{"__ptype":"Sensitive"},"q":1e3},"sensitive":["pw"],"file":"a.pp","line":1},{"type":"A::B","title":"<&>"}]`
	for seed := range uint64(20) {
		f.Add([]byte(set), []byte(`{"kind":"collect","type":"A","filter":["=","tag","a"]}`), seed)
	}
	f.Fuzz(func(t *testing.T, raw, question []byte, seed uint64) {
		var exports []tutti.Export
		var q tutti.Query
		if json.Unmarshal(hostile.Mangle(raw, seed), &exports) != nil || json.Unmarshal(question, &q) != nil {
			return
		}
		kept, err := data.CheckExports("", exports)
		if err != nil {
			checkRefused(t, err)
			return
		}
		stored, err := json.Marshal(kept)
		if err != nil {
			t.Fatalf("accepted, and cannot be kept: %v", err)
		}
		var back []tutti.Export
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		normal, err := data.NormalQuery(q)
		if err != nil {
			checkRefused(t, err)
			return
		}
		if again, err := data.NormalQuery(normal); err != nil || fmt.Sprint(again) != fmt.Sprint(normal) {
			t.Errorf("%s: normal form %v, of it %v, %v", question, normal, again, err)
		}
		one, two := answered(kept, q), answered(back, normal)
		if one.Found != two.Found || one.Digest != two.Digest || len(one.Exports) != len(two.Exports) {
			t.Errorf("now %+v, after a restart %+v", one, two)
		}
	})
}

func answered(exports []tutti.Export, q tutti.Query) data.Answer {
	s := data.NewState()
	s.Apply(tutti.Event{Seq: 1, Body: &tutti.ExportsSet{Node: "n", Count: len(exports), Exports: exports}})
	if cost := s.Cost(q); cost < 0 {
		panic("a question costs less than nothing")
	}
	return s.Answer(q, data.Asker{Node: "other"})
}
