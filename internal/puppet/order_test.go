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
		"flipped": bytes.Replace(whole, []byte("db-01"), []byte("db-11"), 1),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := puppet.ReadOrder(dir); err == nil || os.IsNotExist(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error with its path", reason, err)
		}
	}
}
