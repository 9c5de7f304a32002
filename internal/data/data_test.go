package data_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

func fold(bodies ...tutti.Body) *data.State {
	s := data.NewState()
	for i, b := range bodies {
		s.Apply(tutti.Event{Seq: uint64(i + 1), By: "operator:eva", Body: b})
	}
	return s
}

func set(key, value string, owner tutti.NodeName) *tutti.ValueSet {
	return &tutti.ValueSet{Key: key, Value: json.RawMessage(value), Owner: owner}
}

func exports(node tutti.NodeName, es ...tutti.Export) *tutti.ExportsSet {
	return &tutti.ExportsSet{Node: node, Exports: es, Count: len(es)}
}

func overlay(job tutti.JobID, node tutti.NodeName, es ...tutti.Export) *tutti.ExportsSet {
	return &tutti.ExportsSet{Node: node, Job: job, Overlay: true, Exports: es, Count: len(es)}
}

func web(title string) tutti.Export { return tutti.Export{Type: "Web", Title: title} }

func TestAnswerValue(t *testing.T) {
	log := []tutti.Body{
		set("a/b", `{"y": 1, "x": 1.0}`, ""),
		set("shared/hiera/port", `80`, ""),
		set("shared/hiera/tls", `false`, ""),
		set("node/web/hiera/port", `81`, "web"),
		set("node/web.example.net/hiera/port", `82`, ""),
		set("node/web/hiera/swift::ring", `"r"`, "web"),
		set("node/gone/x", `1`, "gone"),
		set("node/gone/by-operator", `1`, ""),
		set("shared/by-gone", `1`, "gone"),
		set("shared/hiera/by-gone", `1`, "gone"),
		set("unset", `1`, ""),
		&tutti.ValueUnset{Key: "unset"},
		set("node/back/hiera/port", `83`, ""),
		&tutti.ValueUnset{Key: "node/back/hiera/port"},
		&tutti.NodeRemoved{Node: "gone"},
	}
	for _, tc := range []struct {
		reason string
		kind   tutti.QueryKind
		key    string
		node   tutti.NodeName
		want   string // empty: not found
	}{
		{"a value is canonical", tutti.QueryValue, "a/b", "web", `{"x":1.0,"y":1}`},
		{"a key that nobody set", tutti.QueryValue, "a", "web", ``},
		{"a key below a value", tutti.QueryValue, "a/b/c", "web", ``},
		{"a withdrawn value", tutti.QueryValue, "unset", "web", ``},
		{"a hiera value by its path", tutti.QueryValue, "shared/hiera/port", "web", `80`},
		{"what a removed node published goes", tutti.QueryValue, "node/gone/x", "web", ``},
		{"wherever it was", tutti.QueryValue, "shared/by-gone", "web", ``},
		{"from hiera, too", tutti.QueryHiera, "by-gone", "web", ``},
		{"what an operator said about it stays", tutti.QueryValue, "node/gone/by-operator", "web", `1`},

		{"a shared hiera key", tutti.QueryHiera, "port", "db", `80`},
		{"a node's own key is over it", tutti.QueryHiera, "port", "web", `81`},
		{"not that of a node whose name is a prefix", tutti.QueryHiera, "port", "web.example.net", `82`},
		{"nor of one that is longer", tutti.QueryHiera, "port", "web.example", `80`},
		{"shared keys beside own ones", tutti.QueryHiera, "tls", "web", `false`},
		{"a key with colons", tutti.QueryHiera, "swift::ring", "web", `"r"`},
		{"somebody else's own key", tutti.QueryHiera, "swift::ring", "db", ``},
		{"the shared key comes back", tutti.QueryHiera, "port", "back", `80`},
		{"a key that no value can have", tutti.QueryHiera, "with space", "web", ``},
		{"a path is no hiera key", tutti.QueryHiera, "a/b", "web", ``},
	} {
		s := fold(log...)
		got := s.Answer(tutti.Query{Kind: tc.kind, Key: tc.key}, data.Asker{Node: tc.node})
		want := data.Answer{Found: tc.want != "", Seq: uint64(len(log))}
		if want.Found {
			want.Value, want.Digest = json.RawMessage(tc.want), got.Digest
			if got.Digest.Validate() != nil {
				t.Errorf("%s: digest %q", tc.reason, got.Digest)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		// For each key, the method Hiera must return the same value as a hiera question.
		if all := s.Hiera(tc.node); tc.kind == tutti.QueryHiera && string(all[tc.key]) != tc.want {
			t.Errorf("%s: Hiera has %s, want %s", tc.reason, all[tc.key], tc.want)
		}
	}
}

func TestAnswerCollect(t *testing.T) {
	const job, other = tutti.JobID("j"), tutti.JobID("other")
	started, ended := &tutti.JobStarted{Job: job}, &tutti.JobFinished{Job: job}
	for _, tc := range []struct {
		reason string
		log    []tutti.Body
		asker  data.Asker
		filter string
		want   []string // NODE/TITLE
	}{
		{"nobody exports", nil, data.Asker{Node: "a"}, ``, nil},
		{"all but one's own, by title", []tutti.Body{exports("b", web("2"), web("1")), exports("c", web("1")), exports("a", web("3"))},
			data.Asker{Node: "a"}, ``, []string{"b/1", "c/1", "b/2"}},
		{"a longer name is somebody else", []tutti.Body{exports("a.example.net", web("1"))}, data.Asker{Node: "a"}, ``, []string{"a.example.net/1"}},
		{"only the type asked for", []tutti.Body{exports("b", web("1"), tutti.Export{Type: "Web::Site", Title: "2"})}, data.Asker{Node: "a"}, ``, []string{"b/1"}},
		{"the filter counts", []tutti.Body{exports("b", web("1"), web("2"))}, data.Asker{Node: "a"}, `["=","title","2"]`, []string{"b/2"}},
		{"a set replaces the one before", []tutti.Body{exports("b", web("1")), exports("b", web("2"))}, data.Asker{Node: "a"}, ``, []string{"b/2"}},
		{"an empty set, too", []tutti.Body{exports("b", web("1")), exports("b")}, data.Asker{Node: "a"}, ``, nil},
		{"a removed node exports nothing", []tutti.Body{exports("b", web("1")), exports("c", web("2")), &tutti.NodeRemoved{Node: "b"}}, data.Asker{Node: "a"}, ``, []string{"c/2"}},

		{"a run that reads the overlay sees its job's sets instead", []tutti.Body{started, exports("b", web("1")), exports("c", web("1")), overlay(job, "b", web("2"))},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, []string{"c/1", "b/2"}},
		{"an empty set of the job hides the current one", []tutti.Body{started, exports("b", web("1")), overlay(job, "b")},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, nil},
		{"a run that does not read it sees what is", []tutti.Body{started, exports("b", web("1")), overlay(job, "b", web("2"))},
			data.Asker{Node: "a", Job: job}, ``, []string{"b/1"}},
		{"another job sees nothing of it", []tutti.Body{started, &tutti.JobStarted{Job: other}, exports("b", web("1")), overlay(job, "b", web("2"))},
			data.Asker{Node: "a", Job: other, Overlay: true}, ``, []string{"b/1"}},
		{"nor does a run without a job", []tutti.Body{started, exports("b", web("1")), overlay(job, "b", web("2"))},
			data.Asker{Node: "a", Overlay: true}, ``, []string{"b/1"}},
		{"one's own set is not seen there either", []tutti.Body{started, overlay(job, "a", web("1"))},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, nil},
		{"it goes with the job", []tutti.Body{started, exports("b", web("1")), overlay(job, "b", web("2")), ended},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, []string{"b/1"}},
		{"what comes later is dropped", []tutti.Body{started, exports("b", web("1")), ended, overlay(job, "b", web("2"))},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, []string{"b/1"}},
		{"a removed node leaves it", []tutti.Body{started, overlay(job, "b", web("2")), &tutti.NodeRemoved{Node: "b"}},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, nil},
		{"what its node then exports in that job is newer", []tutti.Body{started, overlay(job, "b", web("2")), gone(job, "b", web("1"))},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, []string{"b/1"}},
		{"in another job it is not", []tutti.Body{started, overlay(job, "b", web("2")), gone(other, "b", web("1"))},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, []string{"b/2"}},
		{"what an overlay hides comes back to others unchanged", []tutti.Body{started, overlay(job, "b", web("2")), exports("b", web("1"))},
			data.Asker{Node: "a", Job: job, Overlay: true}, ``, []string{"b/2"}},
	} {
		got := fold(tc.log...).Answer(tutti.Query{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(tc.filter)}, tc.asker)
		var names []string
		for _, e := range got.Exports {
			names = append(names, string(e.Node)+"/"+e.Title)
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if !got.Found || got.Digest.Validate() != nil {
			t.Errorf("%s: found %v, digest %q; an empty set is an answer", tc.reason, got.Found, got.Digest)
		}
	}
}

func TestAnswerRefuses(t *testing.T) {
	s := fold(set("a", `1`, ""), exports("b", web("1")))
	for _, tc := range []struct {
		reason string
		query  tutti.Query
	}{
		{"an unknown kind", tutti.Query{Kind: "lease", Key: "a"}},
		{"no kind", tutti.Query{Key: "a"}},
		{"a malformed key", tutti.Query{Kind: tutti.QueryValue, Key: "../a"}},
		{"a type with a value question", tutti.Query{Kind: tutti.QueryValue, Key: "a", Type: "Web"}},
		{"a filter with a hiera question", tutti.Query{Kind: tutti.QueryHiera, Key: "a", Filter: json.RawMessage(`["=","a",1]`)}},
		{"a key with a collect question", tutti.Query{Kind: tutti.QueryCollect, Type: "Web", Key: "a"}},
		{"a malformed type", tutti.Query{Kind: tutti.QueryCollect, Type: "web"}},
		{"a malformed filter", tutti.Query{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(`["~"]`)}},
	} {
		if _, err := data.NormalQuery(tc.query); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: NormalQuery: error %v, want code invalid", tc.reason, err)
		}
		if got := s.Answer(tc.query, data.Asker{Node: "a"}); got.Found || got.Digest != "" {
			t.Errorf("%s: got the answer %v", tc.reason, got)
		}
	}
}

func TestDigestIsOfWhatTheAskerGets(t *testing.T) {
	full := func(change func(*tutti.Export)) data.Answer {
		e := tutti.Export{Type: "Web", Title: "1", Tags: []string{"a", "b"}, File: "x.pp", Line: 1, Sensitive: []string{"s"},
			Parameters: map[string]json.RawMessage{"p": json.RawMessage(`1`), "q": json.RawMessage(`"x"`)}}
		change(&e)
		return fold(exports("b", e)).Answer(tutti.Query{Kind: tutti.QueryCollect, Type: "Web"}, data.Asker{Node: "a"})
	}
	before := full(func(*tutti.Export) {})
	for _, tc := range []struct {
		reason string
		change func(*tutti.Export)
		same   bool
	}{
		{"another line wakes nobody", func(e *tutti.Export) { e.File, e.Line = "y.pp", 7 }, true},
		{"nor the order of tags", func(e *tutti.Export) { e.Tags = []string{"b", "a", "b"} }, true},
		{"nor how a parameter is written", func(e *tutti.Export) { e.Parameters["q"] = json.RawMessage(` "\u0078"`) }, true},
		{"a parameter", func(e *tutti.Export) { e.Parameters["p"] = json.RawMessage(`2`) }, false},
		{"its type", func(e *tutti.Export) { e.Parameters["p"] = json.RawMessage(`1.0`) }, false},
		{"its name", func(e *tutti.Export) { delete(e.Parameters, "p"); e.Parameters["r"] = json.RawMessage(`1`) }, false},
		{"a parameter less", func(e *tutti.Export) { delete(e.Parameters, "p") }, false},
		{"the title", func(e *tutti.Export) { e.Title = "2" }, false},
		{"a tag", func(e *tutti.Export) { e.Tags = []string{"a"} }, false},
		{"two tags that look like one", func(e *tutti.Export) { e.Tags = []string{`a","b`} }, false},
		{"what is sensitive", func(e *tutti.Export) { e.Sensitive = nil }, false},
		{"a tag made sensitive", func(e *tutti.Export) { e.Tags, e.Sensitive = []string{"a"}, []string{"b", "s"} }, false},
	} {
		if got := full(tc.change); (got.Digest == before.Digest) != tc.same {
			t.Errorf("%s: digest %s, before %s, want same %v", tc.reason, got.Digest, before.Digest, tc.same)
		}
	}
}

func TestMayOwn(t *testing.T) {
	s := fold(set("of-a", `1`, "a"), set("of-operators", `1`, ""), set("was-of-a", `1`, "a"), &tutti.ValueUnset{Key: "was-of-a"})
	for _, tc := range []struct {
		reason, key string
		who         tutti.NodeName
		want        string
	}{
		{"nobody has it", "free", "a", ""},
		{"one's own", "of-a", "a", ""},
		{"another node's", "of-a", "a.example.net", `key "of-a": owned by node "a", so node "a.example.net" cannot publish it too: use another key`},
		{"an operator's", "of-operators", "a", `key "of-operators": set by operator:eva, so node "a" cannot publish it: let an operator unset it first, or use another key on the node`},
		{"operators may take over", "of-a", "", ""},
		{"operators share", "of-operators", "", ""},
		{"withdrawn keys are free", "was-of-a", "b", ""},
	} {
		err := s.MayOwn(tc.key, tc.who)
		got := ""
		if err != nil {
			got = err.Error()
			if tutti.CodeOf(err) != tutti.CodeConflict {
				t.Errorf("%s: code %q, want conflict", tc.reason, tutti.CodeOf(err))
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

func TestValues(t *testing.T) {
	s := fold(set("node/web/x", `1`, ""), set("node/web.example.net/x", `1`, ""), set("node/web", `1`, ""), set("a", `1`, ""))
	for _, tc := range []struct {
		reason, prefix string
		want           []string
	}{
		{"all", "", []string{"a", "node/web", "node/web.example.net/x", "node/web/x"}},
		{"the key and those below", "node/web", []string{"node/web", "node/web/x"}},
		{"with a slash", "node/web/", []string{"node/web", "node/web/x"}},
		{"half a part", "no", nil},
	} {
		var got []string
		for _, v := range s.Values(tc.prefix) {
			got = append(got, v.Key)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

func TestOutdated(t *testing.T) {
	s := fold(set("a", `1`, ""), set("b", `1`, ""), exports("b", web("1")))
	asker := data.Asker{Node: "a"}
	read := func(q tutti.Query) tutti.Read {
		now := s.Answer(q, asker)
		return tutti.Read{Query: q, Found: now.Found, Digest: now.Digest}
	}
	value := func(key string) tutti.Read { return read(tutti.Query{Kind: tutti.QueryValue, Key: key}) }
	reads := []tutti.Read{value("a"), value("b"), value("absent"), value("absent-still"), read(tutti.Query{Kind: tutti.QueryCollect, Type: "Web"})}
	if got := s.Outdated(reads, asker); got != nil {
		t.Errorf("nothing has changed: got %v", got)
	}
	s.Apply(tutti.Event{Seq: 9, Body: set("b", `2`, "")})
	s.Apply(tutti.Event{Seq: 10, Body: set("absent", `1`, "")})
	s.Apply(tutti.Event{Seq: 11, Body: set("a", ` 1 `, "")})
	s.Apply(tutti.Event{Seq: 12, Body: exports("c", web("2"))})
	if diff := cmp.Diff([]tutti.Read{reads[1], reads[2], reads[4]}, s.Outdated(reads, asker)); diff != "" {
		t.Errorf("what changed, and what appeared: -want +got\n%s", diff)
	}
}

func TestApplyRefusesExportsThatAreNotAtHand(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a set of two exports was folded as an empty one")
		}
	}()
	fold(&tutti.ExportsSet{Node: "a", Set: "sha256:x", Count: 2})
}
