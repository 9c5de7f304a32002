package plain_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
)

// The map `checked` has the types of a result's texts that Validate checks.
var checked = map[reflect.Type]bool{
	reflect.TypeFor[tutti.RunID](): true, reflect.TypeFor[tutti.Digest](): true, reflect.TypeFor[tutti.Reason](): true,
}

// The function `texts` calls f for each text in a value, with the place of the text. If a list is
// empty, texts first puts two elements into the list, to reach the texts in them.
func texts(v reflect.Value, at string, f func(at string, text reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			texts(v.Field(i), at+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // JSON, see TestAFilterStaysJSON
		}
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		}
		for i := range v.Len() {
			texts(v.Index(i), fmt.Sprintf("%s[%d]", at, i), f)
		}
	case reflect.String:
		if !checked[v.Type()] {
			f(at, v)
		}
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64:
	default:
		panic(at + " is of a kind that this test does not know: " + v.Kind().String())
	}
}

// TestAllTextsOfAResultAreWords checks that Result makes all texts safe. It fails if Result forgets a new field.
func TestAllTextsOfAResultAreWords(t *testing.T) {
	var r tutti.Result
	count := 0
	texts(reflect.ValueOf(&r).Elem(), "Result", func(_ string, text reflect.Value) {
		text.SetString(strings.Repeat("\x1b]0;x\u202e\xff", 20))
		count++
	})
	if count < 20 {
		t.Fatalf("the test has found %d texts", count)
	}
	out := plain.Result(r)
	texts(reflect.ValueOf(&out).Elem(), "Result", func(at string, text reflect.Value) {
		if s := text.String(); strings.ContainsAny(s, "\x1b\u202e") || !utf8.ValidString(s) || s == "" {
			t.Errorf("%s: %q", at, s)
		}
	})
}

func TestAFilterStaysJSON(t *testing.T) {
	in := tutti.Query{Kind: tutti.QueryCollect, Type: "T", Filter: json.RawMessage(`["=","title","` + strings.Repeat("\x7f", 1000) + `"]`)}
	if out := plain.Query(in); !json.Valid(out.Filter) || strings.Contains(string(out.Filter), "\x7f") {
		t.Errorf("%.100q", out.Filter)
	}
}

// full returns a result that contains a text as often as possible.
func full(text string) tutti.Result {
	r := tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseResources, Message: text, Phase: text, Cold: text}
	for range tutti.MaxFailures {
		r.Failures = append(r.Failures, tutti.Failure{Resource: text, File: text, Line: 1, Column: 2, Message: text})
		r.Changes = append(r.Changes, tutti.Change{Resource: text, File: text, Line: 1, Message: text})
		r.Owed = append(r.Owed, tutti.Owed{Resource: text})
	}
	return r
}

// TestAResultFitsIntoTheLog checks that a result fits into the log, no matter what the node reports.
func TestAResultFitsIntoTheLog(t *testing.T) {
	size := func(r tutti.Result) int {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return len(raw)
	}
	for reason, text := range map[string]string{
		"what is replaced by more":   strings.Repeat("\x7f", 4096),
		"what JSON makes longer":     strings.Repeat("<", 4096),
		"lines":                      strings.Repeat("\n", 4096),
		"a text of 200 kilobytes":    strings.Repeat("x\x7f", 100_000),
		"half of what is a text":     strings.Repeat("x", 2048),
		"bytes that are not UTF-8":   strings.Repeat("\xff\xfe", 2048),
		"separators of another kind": strings.Repeat("\u2028", 1300),
	} {
		out := plain.Result(full(text))
		if n := size(out); n > 66<<10 {
			t.Errorf("%s: %d bytes", reason, n)
		}
		if len(out.Owed) != tutti.MaxFailures {
			t.Errorf("%s: %d owed refreshes", reason, len(out.Owed))
		}
		if len(out.Failures) == 0 || out.Failures[0].Line != 1 || out.Failures[0].Column != 2 || !strings.Contains(out.Message, "(left out, because they are too long: ") && len(out.Changes) < tutti.MaxFailures {
			t.Errorf("%s: %d failures, %d changes, message %.100q", reason, len(out.Failures), len(out.Changes), out.Message)
		}
	}
	waits := tutti.Result{Outcome: tutti.Waiting}
	for range tutti.MaxFailures {
		waits.Waits = append(waits.Waits, tutti.Wait{Query: tutti.Query{Kind: tutti.QueryCollect, Type: "T", Filter: json.RawMessage(`["=","title","` + strings.Repeat("<", 8000) + `"]`)}})
	}
	if out := plain.Result(waits); size(out) > 256<<10 || len(out.Waits) == 0 || !strings.Contains(out.Message, "questions that it waits for)") {
		t.Errorf("%d questions, %d bytes, message %q", len(out.Waits), size(out), out.Message)
	}
}

// TestAnHonestResultIsNotCut checks that the result of an honest node is not cut, even if all
// failures contain the last lines of a journal.
func TestAnHonestResultIsNotCut(t *testing.T) {
	r := tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseResources, Message: "Systemd start for unit0 failed!"}
	for i := range tutti.MaxFailures {
		r.Failures = append(r.Failures, tutti.Failure{
			Resource: fmt.Sprintf("Service[unit%d]", i), File: "/etc/puppetlabs/code/environments/production/modules/app/manifests/init.pp", Line: i,
			Message: fmt.Sprintf("Systemd start for unit%d failed!\njournalctl log for unit%d:\n%s", i, i, strings.Repeat("Nov 26 03:00:00 web-01 unit[1]: \"cannot\" bind <port>\n", 40)),
		})
	}
	for i, f := range plain.Result(r).Failures {
		if f != r.Failures[i] {
			t.Errorf("failure %d: %+v", i, f)
		}
	}
}
