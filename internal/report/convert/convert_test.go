package convert_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/report/convert"
)

var of = convert.Of{Node: "node.example.net", At: time.Date(2026, 11, 21, 19, 0, 0, 123456000, time.UTC), Producer: "tutti.example.net"}

// want is what the Ruby code of PuppetDB and Foreman makes of each report, see testdata/record.rb.
func want(t *testing.T) map[string]struct{ PuppetDB, Foreman any } {
	t.Helper()
	raw, err := os.ReadFile("testdata/want.json")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]struct{ PuppetDB, Foreman any }
	if err := json.Unmarshal(raw, &out); err != nil || len(out) < 10 {
		t.Fatalf("%d reports, %v", len(out), err)
	}
	return out
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	dir := "../../../puppet/testdata/reports/"
	if strings.HasSuffix(name, "/report.json") {
		dir = "../../../puppet/testdata/runs/8.10.0/"
	}
	raw, err := os.ReadFile(dir + name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// plain returns JSON as Go values. The host of a recorded report may be another machine.
func plain(t *testing.T, raw []byte, err error) any {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sameTimes compares times that differ only in the name of the zone UTC.
var sameTimes = cmp.Comparer(func(a, b string) bool {
	return a == b || strings.Replace(a, "+00:00", "Z", 1) == strings.Replace(b, "+00:00", "Z", 1)
})

// TestAsRubyDoes compares the conversions with PuppetDB's and Foreman's own report processors.
func TestAsRubyDoes(t *testing.T) {
	for name, want := range want(t) {
		t.Run(name, func(t *testing.T) {
			raw := read(t, name)
			of := of
			host, _ := want.PuppetDB.(map[string]any)["certname"].(string)
			of.Node = tutti.NodeName(host)
			db, err := convert.PuppetDB(raw, of)
			if diff := cmp.Diff(want.PuppetDB, plain(t, db, err), sameTimes); diff != "" {
				t.Errorf("PuppetDB: -want +got\n%s", diff)
			}
			fm, err := convert.Foreman(raw, of)
			got, _ := plain(t, fm, err).(map[string]any)
			if diff := cmp.Diff(want.Foreman, got["config_report"]); diff != "" {
				t.Errorf("Foreman: -want +got\n%s", diff)
			}
		})
	}
}

// TestRubyReadsYAML lets Puppet read the YAML as its reports. Puppet must read the same report as from JSON.
func TestRubyReadsYAML(t *testing.T) {
	raw := []byte(strings.Replace(string(read(t, "8.10.0/second.json")), `"evaluation_time":`, `"none": 1e5, "small": 2E-7, "date": "2026-11-21", "no": "no", "text": "\u0085\ud83d\ude00\u0000 #{x}", "evaluation_time":`, 1))
	got, err := convert.YAML(raw, of)
	if err != nil {
		t.Fatal(err)
	}
	script := `require 'yaml'; require 'json'
module Puppet; module Transaction; class Report; def init_with(c) = @all = c.map; attr_reader :all; end; end; end
puts JSON.generate(YAML.unsafe_load($stdin.read).all)`
	cmd := exec.CommandContext(t.Context(), "ruby", "-e", script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(got), os.Stderr
	back, err := cmd.Output()
	if diff := cmp.Diff(plain(t, raw, nil), plain(t, back, err)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestANodeMayLie checks what a report must not decide: whose report it is, and what is secret.
func TestANodeMayLie(t *testing.T) {
	lie := `{"host":"other","time":"2026-11-21T19:00:00Z","environment":"production","transaction_uuid":"t","resource_statuses":{"File[/a]":{"time":"2026-11-21T19:00:00Z",
	 "events":[{"status":"success","redacted":true,"time":"2026-11-21T19:00:00Z","message":"hunter2","previous_value":"","desired_value":["hunter2"]}]}}}`
	for name, f := range map[string]func([]byte, convert.Of) ([]byte, error){"puppetdb": convert.PuppetDB, "foreman": convert.Foreman, "json": convert.JSON, "yaml": convert.YAML} {
		out, err := f([]byte(lie), of)
		if err != nil || !strings.Contains(string(out), "node.example.net") || strings.Contains(string(out), "other") {
			t.Errorf("%s: %v, it names another node: %s", name, err, out)
		}
		if strings.Contains(string(out), "hunter2") {
			t.Errorf("%s: it has the secret: %s", name, out)
		}
		for why, raw := range map[string]string{
			"no JSON": "{", "no object": "[]", "twice": `{"host":1,"host":2}`, "more": "{}{}", "an event": `{"resource_statuses":{"A":{"events":[1]}}}`,
			"deep": `{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}", "large": `{"a":"` + strings.Repeat("x", convert.Max) + `"}`,
		} {
			if out, err := f([]byte(raw), of); tutti.CodeOf(err) != tutti.CodeInvalid && tutti.CodeOf(err) != tutti.CodeDamaged {
				t.Errorf("%s: %s: %.100s, %v", name, why, out, err)
			}
		}
	}
}

// zip returns a text in gzip.
func zip(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write([]byte(text)) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// TestFacts checks the command for facts, which has the form of PuppetDB's terminus 7.12.1 without `trusted`.
func TestFacts(t *testing.T) {
	got, err := convert.PuppetDBFacts(zip(`{"kernel":"Linux","big":1e400,"certname":"other","_puppet_inventory_1":{"packages":[["nginx","1.22","apt"]]}}`), "production", of)
	want := `{"certname":"node.example.net","environment":"production","producer_timestamp":"` + of.At.UTC().Format("2006-01-02T15:04:05.000Z") + `","producer":"` + of.Producer +
		`","package_inventory":[["nginx","1.22","apt"]],"values":{"kernel":"Linux","big":1e400,"certname":"other"}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
	for why, zipped := range map[string][]byte{
		"no gzip": []byte("{}"), "no JSON": zip("{"), "no object": zip("[]"), "twice": zip(`{"a":1,"a":2}`), "more": zip("{}{}"), "large": zip(`{"a":"` + strings.Repeat("x", tutti.MaxFactsJSON) + `"}`),
		"deep": zip(`{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}"),
	} {
		if out, err := convert.PuppetDBFacts(zipped, "production", of); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: %.100s, %v", why, out, err)
		}
	}
	if _, err := convert.PuppetDBFacts(zip("{}"), "", of); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("no environment: %v", err)
	}
}

// The same report gives the same bytes each time, because PuppetDB compares reports by a hash.
func TestTheSameBytes(t *testing.T) {
	raw := read(t, "8.10.0/second.json")
	first, err := convert.PuppetDB(raw, of)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if next, err := convert.PuppetDB(raw, of); err != nil || !bytes.Equal(first, next) {
			t.Fatalf("the command differs: %v", err)
		}
	}
}

// FuzzConvert looks for a report that makes a conversion panic or that gives no JSON.
func FuzzConvert(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-21T19:00:00Z","environment":"e","metrics":{"time":{"name":"time","values":[["total","Total",1e300]]}},"logs":[{"time":"2026-11-21T19:00:00+23:59"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, convert := range []func([]byte, convert.Of) ([]byte, error){convert.PuppetDB, convert.Foreman, convert.JSON} {
			if out, err := convert(raw, of); err == nil && !json.Valid(out) {
				t.Errorf("no JSON: %s", out)
			}
		}
		_, _ = convert.YAML(raw, of)
	})
}
