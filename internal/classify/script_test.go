package classify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

func script(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "enc")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParse(t *testing.T) {
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	for _, tc := range []struct {
		reason string
		in     string
		want   tutti.Classification
		fails  string
	}{
		{"a list of classes", "classes: [role::web, ntp]", tutti.Classification{Classes: map[string]json.RawMessage{"role::web": raw("null"), "ntp": raw("null")}}, ""},
		{"a hash of classes", "---\nclasses:\n  ntp:\n  web: {port: 80, names: [a, b], deep: {x: true}}\n  empty: {}\n",
			tutti.Classification{Classes: map[string]json.RawMessage{"ntp": raw("null"), "web": raw(`{"deep":{"x":true},"names":["a","b"],"port":80}`), "empty": raw("null")}}, ""},
		{"parameters and environment", "parameters: {site: ber, n: 1.5, none: }\nenvironment: canary\n",
			tutti.Classification{Parameters: map[string]json.RawMessage{"site": raw(`"ber"`), "n": raw("1.5"), "none": raw("null")}, Environment: "canary"}, ""},
		{"other keys are left alone", "classes: {}\nname: web-01\n", tutti.Classification{}, ""},
		{"nothing is no answer", "", tutti.Classification{}, "must be a YAML hash"},
		{"an end without content", "---\n", tutti.Classification{}, "must be a YAML hash"},
		{"a list", "- role::web", tutti.Classification{}, "must be a YAML hash"},
		{"half a line", "classes: [web", tutti.Classification{}, "this is no YAML"},
		{"a text of classes", "classes: web", tutti.Classification{}, "classes: must be a list or a hash"},
		{"names as Puppet takes them", "classes: [Role::Web, '::ntp']", tutti.Classification{Classes: map[string]json.RawMessage{"role::web": raw("null"), "ntp": raw("null")}}, ""},
		{"symbols as keys", ":classes: [ntp]\n:environment: canary\n", tutti.Classification{Classes: map[string]json.RawMessage{"ntp": raw("null")}, Environment: "canary"}, ""},
		{"keys that are numbers", "parameters: {a: {1: b}}", tutti.Classification{Parameters: map[string]json.RawMessage{"a": raw(`{"1":"b"}`)}}, ""},
		{"an error in place of an answer", "error: the backend is down", tutti.Classification{}, "has only other keys"},
		{"a typing error", "classses: [web]", tutti.Classification{}, "has only other keys"},
		{"two documents", "classes: [web]\n---\nclasses: [db]\n", tutti.Classification{}, "a second YAML document"},
		{"a key that is there twice", "parameters: {a: {b: 1, b: 2}}", tutti.Classification{}, `the key "b" is there twice`},
		{"a date", "parameters: {a: 2026-11-29}", tutti.Classification{}, "put it into quotes"},
		{"a class that no Puppet can have", "classes: [web-1]", tutti.Classification{}, `"web-1" is not the name of a class`},
		{"the name of a module", "parameters: {module_name: x}", tutti.Classification{}, `"module_name" is not the name of a variable`},
		{"parameters of a class that are a list", "classes: {web: [80]}", tutti.Classification{}, "the parameters of web are not a hash"},
		{"a variable of Puppet", "parameters: {trusted: {certname: other}}", tutti.Classification{}, `"trusted" is not the name of a variable that the site may set`},
		{"a path as environment", "environment: ../x", tutti.Classification{}, "is not the name of an environment"},
		{"keys that are no texts", "parameters: {a: {[1]: b}}", tutti.Classification{}, "a key must be a text"},
		{"a number that JSON does not have", "parameters: {a: .nan}", tutti.Classification{}, "put it into quotes"},
		{"too much", "parameters: {a: " + strings.Repeat("x", tutti.MaxClassification) + "}", tutti.Classification{}, "bytes of JSON, at most"},
	} {
		got, err := Parse([]byte(tc.in))
		if tc.fails != "" {
			if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.fails)
			}
			continue
		}
		if len(got.Classes) == 0 {
			got.Classes = nil
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got\n%s", tc.reason, err, diff)
		}
	}
}

// The script is bounded in every respect, and gets nothing but the name of the node.
func TestTheScriptIsBounded(t *testing.T) {
	t.Setenv("TUTTI_SECRET", "hidden")
	for _, tc := range []struct {
		reason, text string
		timeout      time.Duration
		want         string // the parameters
		fails        string
	}{
		{"it gets the name", `echo "parameters: {n: \"$#\", node: $1}"`, time.Minute, `{"n":"1","node":"web-01"}`, ""},
		{"nothing of the server's environment", `echo "parameters: {x: \"<$TUTTI_SECRET>\"}"`, time.Minute, `{"x":"<>"}`, ""},
		{"no input", `read line && echo "parameters: {x: y}"; echo "environment: none"`, time.Minute, `null`, ""},
		{"a failure, with what it says", "echo 'parameters: {a: b}'\necho no such node >&2\nexit 3", time.Minute, "", "exit status 3: no such node"},
		{"a script that hangs, with what it has started", "sleep 1000 & echo 'parameters: {a: b}'\nwait", 50 * time.Millisecond, "", "no answer within 50ms"},
		{"endless output", "exec yes", time.Minute, "", "its output has more than"},
		{"output that is not YAML of an ENC", "echo hello", time.Minute, "", "its answer for web-01: it must be a YAML hash"},
	} {
		c := Config{Command: script(t, tc.text, 0o755), Timeout: tc.timeout}
		got, err := c.Ask(t.Context(), "web-01")
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.fails)
			}
			continue
		}
		raw, _ := json.Marshal(got.Parameters)
		text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(raw))
		if err != nil || text != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.reason, text, err, tc.want)
		}
	}
}

// A process that the script has started keeps a pipe open. The pipe ends when all processes of the script have ended.
func TestWhatTheScriptHasStartedEndsWithIt(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(pipe)
		read <- err
	}()
	c := Config{Command: script(t, "exec 3>"+pipe+"\nsleep 300 >/dev/null 2>&1 &\necho 'parameters: {a: b}'", 0o755), Timeout: time.Minute}
	if _, err := c.Ask(t.Context(), "web-01"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a process of the script still runs after a minute")
	}
}

func TestConfig(t *testing.T) {
	good := script(t, "", 0o755)
	for _, tc := range []struct {
		reason, in string
		want       *Config
		fails      string
	}{
		{"the command alone", "command: " + good, &Config{Command: good, Timeout: defaultTimeout, Every: defaultEvery, Parallel: defaultParallel}, ""},
		{"everything", "command: " + good + "\ntimeout: 30s\nevery: 1h\nparallel: 8\n", &Config{Command: good, Timeout: 30 * time.Second, Every: time.Hour, Parallel: 8}, ""},
		{"an empty file", "", nil, "enc.yaml:1: write `command: /path/of/the/script`"},
		{"no command", "\ntimeout: 5s\n", nil, "enc.yaml:2: the command is missing"},
		{"a relative path", "command: enc", nil, `enc.yaml:1: command "enc" must be an absolute path`},
		{"a file that does not exist", "command: /nowhere/enc", nil, "cannot be read"},
		{"a file that cannot run", "command: " + script(t, "", 0o644), nil, "chmod +x"},
		{"a file that others may change", "command: " + script(t, "", 0o775), nil, "has mode 0775, so others could change what the server runs: chmod go-w"},
		{"a directory", "command: /tmp", nil, "is not a file that can be executed"},
		{"an unknown key", "command: " + good + "\nuser: root\n", nil, `enc.yaml:2: unknown key "user"`},
		{"a key that occurs twice", "command: " + good + "\ncommand: " + good, nil, "enc.yaml:2: command occurs twice"},
		{"an endless timeout", "command: " + good + "\ntimeout: 0s\n", nil, `enc.yaml:2: timeout "0s" must be a time from 1s to 5m0s`},
		{"a number without a unit", "command: " + good + "\nevery: 5\n", nil, `enc.yaml:2: every "5" must be a time`},
		{"too many at one time", "command: " + good + "\nparallel: 1000\n", nil, `enc.yaml:2: parallel "1000" must be a number from 1 to 64`},
		{"no YAML", "command: [", nil, "this is no YAML"},
	} {
		got, err := parseConfig("enc.yaml", []byte(tc.in))
		if tc.fails != "" {
			if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.fails)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got\n%s", tc.reason, err, diff)
		}
	}
	if got, err := ReadConfig(t.TempDir()); got != nil || err != nil {
		t.Errorf("no file: %+v, %v", got, err)
	}
}
