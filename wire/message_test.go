package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

func TestAManifestStaysInsideItsTree(t *testing.T) {
	file := tutti.CodeFile{Digest: tutti.DigestOf(nil)}
	link := func(to string) tutti.CodeFile { return tutti.CodeFile{Link: to} }
	cases := map[string]struct {
		reason string
		files  map[string]tutti.CodeFile
		code   tutti.Code
	}{
		"empty":               {"nothing is inside", nil, ""},
		"files and links":     {"", map[string]tutti.CodeFile{"a/b": file, "a/c": link("b"), "d": link("a/b"), "a/up": link("../d"), "e": link("a")}, ""},
		"parent":              {"out of the tree", map[string]tutti.CodeFile{"../a": file}, tutti.CodeRefused},
		"absolute":            {"out of the tree", map[string]tutti.CodeFile{"/a": file}, tutti.CodeRefused},
		"the tree itself":     {"no file", map[string]tutti.CodeFile{".": file}, tutti.CodeRefused},
		"unclean":             {"two names of one file", map[string]tutti.CodeFile{"a//b": file}, tutti.CodeRefused},
		"absolute link":       {"out of the tree", map[string]tutti.CodeFile{"a": link("/etc/passwd")}, tutti.CodeRefused},
		"link to outside":     {"out of the tree", map[string]tutti.CodeFile{"a/b": link("../../x")}, tutti.CodeRefused},
		"link through a link": {"d/.. is not the tree if d is a link", map[string]tutti.CodeFile{"d": link("."), "a": link("d/../x")}, tutti.CodeRefused},
		"file below link":     {"it would be written elsewhere", map[string]tutti.CodeFile{"a": link("b"), "a/x": file}, tutti.CodeRefused},
		"file below file":     {"no directory", map[string]tutti.CodeFile{"a": file, "a/b/c": file}, tutti.CodeRefused},
		"a zero byte":         {"no file system takes it", map[string]tutti.CodeFile{"a\x00": file}, tutti.CodeInvalid},
		"a long path":         {"no file system takes it", map[string]tutti.CodeFile{strings.Repeat("a/", 2000) + "b": file}, tutti.CodeInvalid},
		"less than nothing":   {"sizes are summed", map[string]tutti.CodeFile{"a": {Digest: file.Digest, Size: -1}}, tutti.CodeInvalid},
		"no digest":           {"no content", map[string]tutti.CodeFile{"a": {}}, tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tutti.CodeManifest{Version: 1, Environment: "production", Files: tc.files}.Validate()
			if tutti.CodeOf(err) != tc.code {
				t.Errorf("%s: %v, want code %q", tc.reason, err, tc.code)
			}
		})
	}
	if err := (tutti.CodeManifest{Version: 2}).Validate(); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("a later version: %v, want it invalid", err)
	}
}

func TestResults(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := tutti.Result{Run: "01234567-89ab-cdef-0123-456789abcdef", Outcome: tutti.Changed, StartedAt: start, EndedAt: start.Add(time.Second)}
	cases := map[string]struct {
		change func(*tutti.Result)
		ok     bool
	}{
		"good":                 {func(*tutti.Result) {}, true},
		"failed with a reason": {func(r *tutti.Result) { r.Outcome, r.Reason = tutti.Failed, tutti.BecauseCompile }, true},
		"stopped":              {func(r *tutti.Result) { r.Outcome, r.Stopped = "", true }, true},
		"no run":               {func(r *tutti.Result) { r.Run = "x" }, false},
		"no outcome":           {func(r *tutti.Result) { r.Outcome = "" }, false},
		"failed without":       {func(r *tutti.Result) { r.Outcome = tutti.Failed }, false},
		"good with a reason":   {func(r *tutti.Result) { r.Reason = tutti.BecauseCompile }, false},
		"unknown reason":       {func(r *tutti.Result) { r.Outcome, r.Reason = tutti.Failed, "weather" }, false},
		"too many failures":    {func(r *tutti.Result) { r.Failures = make([]tutti.Failure, tutti.MaxFailures+1) }, false},
		"backwards":            {func(r *tutti.Result) { r.EndedAt = start.Add(-1) }, false},
		"no digest":            {func(r *tutti.Result) { r.Log = "x" }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := good
			tc.change(&r)
			if err := r.Validate(); (err == nil) != tc.ok {
				t.Errorf("%+v: %v", r, err)
			}
		})
	}
	if good.Duration() != time.Second {
		t.Errorf("duration %s", good.Duration())
	}
}

func TestWhatAStepAccepts(t *testing.T) {
	resources := tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseResources}
	compile := tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}
	lost := tutti.Result{Outcome: tutti.Lost}
	cases := map[string]struct {
		accept  []tutti.Accept
		accepts []tutti.Result
		refuses []tutti.Result
	}{
		"nothing":   {nil, []tutti.Result{{Outcome: tutti.Changed}, {Outcome: tutti.Unchanged}}, []tutti.Result{resources, compile, lost, {Outcome: tutti.Interrupted}, {Outcome: tutti.Waiting}, {}}},
		"resources": {[]tutti.Accept{tutti.AcceptFailedResources}, []tutti.Result{resources, {Outcome: tutti.Changed}}, []tutti.Result{compile, lost}},
		"lost":      {[]tutti.Accept{tutti.AcceptLost}, []tutti.Result{lost}, []tutti.Result{resources, compile}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			step := tutti.RunStep{Accept: tc.accept}
			for _, r := range tc.accepts {
				if !step.Accepts(r) {
					t.Errorf("%+v is not accepted", r)
				}
			}
			for _, r := range tc.refuses {
				if step.Accepts(r) {
					t.Errorf("%+v is accepted", r)
				}
			}
		})
	}
}

func TestWhatAWaitSays(t *testing.T) {
	for want, wait := range map[string]tutti.WaitStep{
		"http://x/y":                             {HTTP: "http://x/y"},
		"tcp x:1":                                {TCP: "x:1"},
		"the catalogs in PuppetDB http://x:8080": {PuppetDB: "http://x:8080"},
		"value a/b":                              {Value: "a/b"},
		`value a/b = "up"`:                       {Value: "a/b", Equals: []byte(`"up"`)},
	} {
		if got := wait.Subject(); got != want {
			t.Errorf("subject %q, want %q", got, want)
		}
	}
}

func TestAResultAndWhatItEncloses(t *testing.T) {
	result := tutti.Result{Run: "r", Outcome: tutti.Changed, Message: "two\nlines", StartedAt: time.Unix(1, 0).UTC(), EndedAt: time.Unix(2, 0).UTC()}
	enclosed := [][]byte{[]byte("a\nb"), {}, {0, 0xff, '\n'}}
	whole, err := wire.Ended{Result: result, Enclosed: enclosed}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		message []byte
		want    [][]byte
		code    tutti.Code
	}{
		"whole":     {"content of any bytes comes back", whole, enclosed, ""},
		"plain":     {"a result alone is one that encloses nothing", plain, nil, ""},
		"cut off":   {"it is to be sent again, not given up", whole[:len(whole)-1], nil, tutti.CodeConflict},
		"head only": {"it is to be sent again, not given up", whole[:bytes.IndexByte(whole, '\n')], nil, tutti.CodeConflict},
		"no result": {"", []byte("{"), nil, tutti.CodeInvalid},
		"negative":  {"no content is so", []byte(`{"enclosed":[-1]}` + "\nx"), nil, tutti.CodeInvalid},
		"many":      {"large content goes by itself", fmt.Appendf(nil, `{"enclosed":[%d,1]}`+"\n%s", wire.MaxEnclosed, make([]byte, wire.MaxEnclosed+1)), nil, tutti.CodeInvalid},
		"large":     {"large content goes by itself", fmt.Appendf(nil, `{"enclosed":[%d]}`, wire.MaxEnclosed+1), nil, tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeEnded(tc.message)
			if tutti.CodeOf(err) != tc.code {
				t.Fatalf("%s: %v, want code %q", tc.reason, err, tc.code)
			}
			if tc.code == "" && (got.Message != result.Message || !slices.EqualFunc(tc.want, got.Enclosed, bytes.Equal)) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestAManifestIsOfAnEnvironment(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "Production", "a\x00", strings.Repeat("a", 64)} {
		if err := (tutti.CodeManifest{Version: 1, Environment: name}).Validate(); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("environment %q: %v, want it refused", name, err)
		}
	}
}
