package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/policy"
)

// web returns a fleet file with the nodes web-01 to web-03 and one grant.
func web(t testing.TB, grant string) tutti.Fleet {
	t.Helper()
	f, err := fleet.Parse("tutti.yaml", []byte("fleet: x\ngroups: {web: {nodes: [web-01, web-02, web-03]}}\ngrants: ["+grant+"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var inWeb = []tutti.GroupName{"web"}

func parameters(pairs ...string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return out
}

// The exporter chooses type, parameters and tags of a resource that a collecting node applies as root. So a grant must
// limit all three (finding F6).
func TestExports(t *testing.T) {
	const deferred = `{"__ptype":"Deferred","name":"generate","arguments":["/bin/sh","-c","id"]}`
	sshkey := func(pairs ...string) tutti.Export {
		return tutti.Export{Type: "Sshkey", Title: "web-01", Tags: []string{"sshkey", "web-01"}, Parameters: parameters(pairs...)}
	}
	for _, tc := range []struct {
		reason, grant string
		export        tutti.Export
		want          string // text of the refusal; empty if the export is admitted
	}{
		{"what is safe", "{to: web, exports: [Sshkey]}", sshkey("key", `"x"`, "type", `"rsa"`, "host_aliases", `["a"]`), ""},
		{"a parameter that names a file", "{to: web, exports: [Sshkey]}", sshkey("target", `"/root/.ssh/authorized_keys"`), `does not admit the parameter "target"`},
		{"its provider", "{to: web, exports: [Sshkey]}", sshkey("provider", `"x"`), `the parameter "provider"`},
		{"what it is called there", "{to: web, exports: [Sshkey]}", sshkey("name", `"web-02"`), `the parameter "name"`},
		{"the word admits it", "{to: web, exports: [Sshkey], dangerous: true}", sshkey("target", `"/x"`), ""},
		{"but not what the grant leaves out", "{to: web, exports: [{type: Sshkey, parameters: [key]}], dangerous: true}", sshkey("target", `"/x"`), `the parameter "target"`},
		{"fewer parameters", "{to: web, exports: [{type: Sshkey, parameters: [key]}]}", sshkey("key", `"x"`, "type", `"rsa"`), `the parameter "type"`},
		{"relations", "{to: web, exports: [Sshkey]}", sshkey("require", `{"__ptype":"Pcore::ResourceType","type_name":"File","title":"/x"}`), ""},
		{"without relations", "{to: web, exports: [{type: Sshkey, relations: false}]}", sshkey("notify", `"x"`), `the parameter "notify"`},
		{"a tag as a parameter", "{to: web, exports: [{type: Sshkey, parameters: [key]}]}", sshkey("tag", `["t"]`), ""},
		{"another name", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("alias", `"y"`)}, `the parameter "alias"`},
		{"as noop", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("noop", "true")}, `the parameter "noop"`},
		{"a schedule, with the word", "{to: web, exports: [File], dangerous: true}", tutti.Export{Type: "File", Title: "/x", Parameters: parameters("schedule", `"never"`)}, `the parameter "schedule"`},
		{"that is named", "{to: web, exports: [{type: File, parameters: [schedule]}], dangerous: true}", tutti.Export{Type: "File", Title: "/x", Parameters: parameters("schedule", `"never"`)}, ""},
		{"named, without the word", "{to: web, exports: [{type: A::B, parameters: [noop]}]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("noop", "true")}, `the parameter "noop"`},
		{"the alias of Nagios is its own", "{to: web, exports: [Nagios_host], dangerous: true}", tutti.Export{Type: "Nagios_host", Title: "x", Parameters: parameters("alias", `"y"`)}, ""},
		{"a call", "{to: web, exports: [Sshkey]}", sshkey("key", deferred), `the value of "key" contains more than data`},
		{"a call inside", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", `[{"b":`+deferred+`}]`)}, `the value of "a" contains more than data`},
		{"a call in disguise", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", strings.Replace(deferred, "__p", `\u005f\u005fp`, 1))}, `the value of "a" contains more`},
		{"an object of a type that the value describes", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", `{"__ptype":{"__ptype":"Pcore::ObjectType"}}`)}, "contains more than data"},
		{"a type of Ruby", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", `{"__ptype":"Pcore::RuntimeType"}`)}, "contains more than data"},
		{"a call, with the word", "{to: web, exports: [A::B], dangerous: true}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", deferred)}, ""},
		{"values of all kinds", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", `[1, {"__ptype":"Timestamp","__pvalue":"x"}, {"__ptype":"Pcore::IntegerType","from":1}, {"__ptype":"Pcore::StructElement","key_type":{"__ptype":"Pcore::StringType"}}, {"__ptype":"Hash","__pvalue":[{"__ptype":"Default"}, 2]}]`)}, ""},
		{"a title of two lines", "{to: web, exports: [{type: Host, title: own}]}", tutti.Export{Type: "Host", Title: "web-01 \n1.2.3.x\n4\tevil"}, "a control character"},
		{"a title of two lines, of a defined type", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x\ny"}, "a control character"},
		{"a parameter of two lines", "{to: web, exports: [Host]}", tutti.Export{Type: "Host", Title: "web-01", Parameters: parameters("comment", `"a\n192.0.2.1 b"`)}, "a control character"},
		{"one inside", "{to: web, exports: [Host]}", tutti.Export{Type: "Host", Title: "web-01", Parameters: parameters("host_aliases", `["a\u000a192.0.2.1 b"]`)}, "a control character"},
		{"lines of a defined type", "{to: web, exports: [A::B]}", tutti.Export{Type: "A::B", Title: "x", Parameters: parameters("a", `"a\nb"`)}, ""},
		{"lines of a message", "{to: web, exports: [Notify]}", tutti.Export{Type: "Notify", Title: "x", Parameters: parameters("message", `"a\nb"`)}, ""},
		{"lines, with the word", "{to: web, exports: [Host], dangerous: true}", tutti.Export{Type: "Host", Title: "web-01", Parameters: parameters("comment", `"a\nb"`)}, ""},
		{"its own title", "{to: web, exports: [{type: Sshkey, title: own}]}", sshkey(), ""},
		{"and what follows", "{to: web, exports: [{type: Sshkey, title: own}]}", tutti.Export{Type: "Sshkey", Title: "web-01_rsa"}, ""},
		{"a name that begins alike", "{to: web, exports: [{type: Sshkey, title: own}]}", tutti.Export{Type: "Sshkey", Title: "web-01-evil"}, `admits titles that are equal to "web-01"`},
		{"a name below", "{to: web, exports: [{type: Sshkey, title: own}]}", tutti.Export{Type: "Sshkey", Title: "web-01.example.net"}, "admits titles"},
		{"another's", "{to: web, exports: [{type: Sshkey, title: own}]}", tutti.Export{Type: "Sshkey", Title: "web-02"}, "admits titles"},
		{"tags of type and title", "{to: web, exports: [{type: Sshkey, tags: [cluster]}]}", sshkey(), ""},
		{"a tag that is granted", "{to: web, exports: [{type: A::B, tags: [cluster]}]}", tutti.Export{Type: "A::B", Title: "x", Tags: []string{"a", "a::b", "b", "cluster", "x"}}, ""},
		{"one that is a parameter", "{to: web, exports: [{type: Sshkey, tags: [cluster]}]}", sshkey("tag", `["cluster", "LB"]`), `does not admit the tag "lb"`},
		{"one that is a number", "{to: web, exports: [{type: Sshkey, tags: [cluster]}]}", sshkey("tag", `3`), `does not admit the tag "3"`},
		{"a name that Puppet has for nothing", "{to: web, exports: [File], dangerous: true}", tutti.Export{Type: "File", Title: "x", Parameters: parameters("x]}\n- {to: all", "1")}, "does not admit the parameter"},
		{"one that is not", "{to: web, exports: [{type: Sshkey, tags: [cluster]}]}", tutti.Export{Type: "Sshkey", Title: "x", Tags: []string{"cluster", "lb"}}, `does not admit the tag "lb"`},
		{"two halves are no grant", "{to: web, exports: [{type: Sshkey, parameters: [key]}]}, {to: web, exports: [{type: Sshkey, parameters: [type]}]}", sshkey("key", `"x"`, "type", `"y"`), `the parameter "type"`},
		{"one of two", "{to: web, exports: [{type: Sshkey, parameters: [key]}]}, {to: web, exports: [Sshkey]}", sshkey("key", `"x"`, "type", `"y"`), ""},
		{"a defined type with a plain name", "{to: web, exports: [{type: Database, defined: true}]}", tutti.Export{Type: "Database", Title: "x", Parameters: parameters("any", "1")}, ""},
	} {
		err := policy.ExportsOf(web(t, tc.grant), inWeb, "web-01").May(tc.export)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: refused: %v", tc.reason, err)
		case tc.want != "" && (tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want a refusal that says %q", tc.reason, err, tc.want)
		}
		if others := policy.ExportsOf(web(t, tc.grant), []tutti.GroupName{"db"}, "web-01").May(tc.export); others == nil {
			t.Errorf("%s: without the group it is admitted, too", tc.reason)
		}
	}
}

func TestManyExports(t *testing.T) {
	many := func(n int) []tutti.Export {
		out := make([]tutti.Export, n)
		for i := range out {
			out[i] = tutti.Export{Type: "A::B", Title: fmt.Sprint(i)}
		}
		return out
	}
	for grant, most := range map[string]int{"A::B": tutti.MostExports, "{type: A::B, most: 3}": 3, "{type: A::B, most: 500}": 500} {
		x := policy.ExportsOf(web(t, "{to: web, exports: ["+grant+"]}"), inWeb, "web-01")
		if refused, err := x.MayAll(policy.Inspect(many(most))); err != nil {
			t.Errorf("%s: %d: %s: %v", grant, most, refused, err)
		}
		if refused, err := x.MayAll(policy.Inspect(many(most + 1))); tutti.CodeOf(err) != tutti.CodeRefused || refused != "A::B" {
			t.Errorf("%s: %d: refused %q: %v", grant, most+1, refused, err)
		}
		if only := x.Only(append(many(most+1), tutti.Export{Type: "Exec", Title: "x"})); len(only) != most {
			t.Errorf("%s: %d are kept, want %d", grant, len(only), most)
		}
	}
}

// Grants in a log from before 0.3.0 keep their old meaning. If the same file is pushed now, these grants get the new
// meaning.
func TestGrantsOfAnOldLog(t *testing.T) {
	old := tutti.Fleet{Grants: []tutti.Grant{{To: "web", Exports: []string{"Service", "Exec", "Host"}}, {To: "web", Exports: []string{"File", "Mount"}, Dangerous: true}}}
	of := func(name string) tutti.Export {
		return tutti.Export{Type: name, Title: "x", Parameters: parameters("ensure", `"present"`)}
	}
	for name, want := range map[string]struct{ old, now bool }{
		"Service": {true, false}, "Exec": {false, false}, "Host": {true, true}, "File": {true, true}, "Mount": {true, true}, "User": {false, false},
	} {
		if may := policy.ExportsOf(old, inWeb, "web-01").May(of(name)) == nil; may != want.old {
			t.Errorf("%s by an old grant: %t, want %t", name, may, want.old)
		}
		if may := policy.ExportsOf(policy.Renewed(old), inWeb, "web-01").May(of(name)) == nil; may != want.now {
			t.Errorf("%s by the same file now: %t, want %t", name, may, want.now)
		}
	}
	if diff := cmp.Diff([]string{"Service"}, policy.ExportsOf(old, inWeb, "web-01").OldDangers()); diff != "" {
		t.Errorf("what takes the word: -want +got\n%s", diff)
	}
	if !policy.Old(old) || policy.Old(policy.Renewed(old)) {
		t.Error("old is not told from new")
	}
}

// If the result of Wants is added to the fleet file, the fleet file admits everything that the node wants to publish.
func TestWantsAdmit(t *testing.T) {
	names := rapid.SampledFrom([]string{"Sshkey", "Service", "Vcsrepo", "A::B", "Notify", "Ring_object_device"})
	words := rapid.SampledFrom([]string{"key", "type", "target", "ensure", "provider", "noop", "alias", "require", "tag"})
	values := rapid.SampledFrom([]string{`1`, `"x"`, `{"__ptype":"Deferred","name":"generate"}`})
	rapid.Check(t, func(t *rapid.T) {
		var exports []tutti.Export
		for i := range rapid.IntRange(1, 6).Draw(t, "exports") {
			e := tutti.Export{Type: names.Draw(t, "type"), Title: fmt.Sprint(i), Parameters: map[string]json.RawMessage{}}
			for range rapid.IntRange(0, 3).Draw(t, "parameters") {
				e.Parameters[words.Draw(t, "name")] = json.RawMessage(values.Draw(t, "value"))
			}
			exports = append(exports, e)
		}
		for range rapid.SampledFrom([]int{0, 0, 150}).Draw(t, "more") {
			exports = append(exports, tutti.Export{Type: "A::B", Title: fmt.Sprint("more", len(exports))})
		}
		writes := rapid.SliceOfN(rapid.SampledFrom([]string{"a/b", "node/web-02/x", "node/web-01/y", "shared/hiera/z"}), 0, 3).Draw(t, "writes")
		reads := rapid.SliceOfN(rapid.SampledFrom([]string{"a/b", "shared/x", "node/web-02/x"}), 0, 3).Draw(t, "reads")

		wants := policy.Wants(tutti.Fleet{}, inWeb, "web-01", policy.Inspect(exports), writes, reads)
		source := "fleet: x\ngroups: {web: {nodes: [web-01]}}\n"
		if len(wants) > 0 {
			source += "grants:\n"
		}
		for _, g := range wants {
			g.To = "web"
			source += "  - " + g.String() + "\n"
		}
		f, err := fleet.Parse("tutti.yaml", []byte(source))
		if err != nil {
			t.Fatalf("%s\n%v", source, err)
		}
		if _, err := policy.ExportsOf(f, inWeb, "web-01").MayAll(policy.Inspect(exports)); err != nil {
			t.Errorf("%s\n%v", source, err)
		}
		for _, key := range writes {
			if err := policy.MayWrite(f, inWeb, "web-01", key); err != nil {
				t.Errorf("%s\n%v", source, err)
			}
		}
		for _, key := range reads {
			if err := policy.MayRead(f, inWeb, "web-01", key); err != nil {
				t.Errorf("%s\n%v", source, err)
			}
		}
		if left := policy.Wants(f, inWeb, "web-01", policy.Inspect(exports), writes, reads); len(left) > 0 {
			t.Errorf("%s\nis not all: %v", source, left)
		}
	})
}

// The line that a refusal suggests keeps the limits of the existing grant.
func TestARefusalKeepsLimits(t *testing.T) {
	const limited = "{type: A::B, parameters: [port], title: own, tags: [web], relations: false, most: 3}"
	for _, tc := range []struct {
		reason string
		export tutti.Export
		want   string
	}{
		{"a tag", tutti.Export{Title: "web-01", Tags: []string{"class", "web"}}, "{type: A::B, parameters: [port], title: own, tags: [\"web\", \"class\"], relations: false, most: 3}"},
		{"a parameter", tutti.Export{Title: "web-01", Parameters: parameters("ip", `"x"`)}, "{type: A::B, parameters: [port, ip], title: own, tags: [\"web\"], relations: false, most: 3}"},
		{"a title", tutti.Export{Title: "x"}, "{type: A::B, parameters: [port], tags: [\"web\"], relations: false, most: 3}"},
		{"a relation", tutti.Export{Title: "web-01", Parameters: parameters("notify", `"x"`)}, "{type: A::B, parameters: [port], title: own, tags: [\"web\"], most: 3}"},
	} {
		tc.export.Type = "A::B"
		f := web(t, "{to: web, exports: ["+limited+"]}")
		err := policy.ExportsOf(f, inWeb, "web-01").May(tc.export)
		if err == nil || !strings.Contains(err.Error(), ": - {to: web, exports: ["+tc.want+"]}") {
			t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
		}
		if wider := web(t, "{to: web, exports: ["+tc.want+"]}"); policy.ExportsOf(wider, inWeb, "web-01").May(tc.export) != nil {
			t.Errorf("%s: what is proposed does not admit it", tc.reason)
		}
	}
}
