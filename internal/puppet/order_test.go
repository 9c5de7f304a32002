package puppet_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/puppet"
)

func TestADamagedMarkerIsAnErrorThatNamesIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "run.json")
	want := puppet.Order{Protocol: puppet.Protocol, Run: "00000000-0000-4000-8000-000000000001", Node: "db-01", ModulePath: []string{}, Tags: []string{}, SkipTags: []string{}}
	if err := puppet.WriteOrder(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := puppet.ReadOrder(dir)
	got.Sum = ""
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v, -want +got\n%s", err, diff)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for reason, content := range map[string][]byte{
		"truncated": whole[:len(whole)/2], "empty": nil, "garbage": make([]byte, len(whole)),
		"flipped": bytes.Replace(whole, []byte("db-01"), []byte("db-11"), 1), "no sum": []byte(`{"node":"db-01"}`),
		"a byte more": append(bytes.Clone(whole), '\n'),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := puppet.ReadOrder(dir); err == nil || os.IsNotExist(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error with its path", reason, err)
		}
	}
}

// TestAnOrderOfAnEarlierRelease reads an order that the agent of release 0.2.0 has written. The order lacks fields
// of later releases. If an upgrade replaces the agent during a run, the new agent reads the order and follows the run.
func TestAnOrderOfAnEarlierRelease(t *testing.T) {
	const written = `{"protocol":1,"run":"01a224d1-519d-737f-aa9f-4b26c56d9d0b","node":"db-01","mode":"apply","environment":"production",` +
		`"environmentpath":"/var/lib/tutti/agent/code","modulepath":null,"socket":"/run/tutti-agent/run.sock","lock_timeout":60,"gate_timeout":60,` +
		`"tags":null,"skip_tags":null,"debug":false,"tutti":{"run":"","node":"","job":"deploy-1","mode":"","environment":"","code":"","timeout":0,"attempt":0},` +
		`"launcher":"","started_at":"2023-11-14T22:13:20Z","sum":"sha256:e7e0e5fd65a276dd2f881dec9a2bb6ad12880dee8da5718d6beafd98524b698f"}`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := puppet.ReadOrder(dir)
	if err != nil || got.Node != "db-01" || got.Tutti.Job != "deploy-1" {
		t.Errorf("%+v, %v", got, err)
	}
}
