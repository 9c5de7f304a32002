package identity_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// If a renewal is killed at any point, the directory has either the old pair or
// the new pair.
func TestAKilledRenewalLeavesAPair(t *testing.T) {
	a, err := identity.Init(filepath.Join(t.TempDir(), "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.NewOperatorKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("ada")
	if err != nil {
		t.Fatal(err)
	}
	issued, err := a.SignOperator("ada", request)
	if err != nil {
		t.Fatal(err)
	}
	next, err := a.IssueOperator("ada")
	if err != nil {
		t.Fatal(err)
	}
	// The test begins with an old pair in two files, because two files are harder to replace than one.
	old := func() string {
		dir := filepath.Join(t.TempDir(), "ada")
		if err := key.WriteKey(dir); err != nil {
			t.Fatal(err)
		}
		if err := identity.WriteIssued(dir, issued); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	done := old()
	if err := next.Replace(done); err != nil {
		t.Fatal(err)
	}
	pair, err := os.ReadFile(filepath.Join(done, "operator.pem"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir, name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(dir, name string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason string
		killed func(dir string)
		want   string
	}{
		{"before it", func(string) {}, issued.Serial},
		{"while it wrote", func(dir string) { write(dir, ".new-1", pair[:100]) }, issued.Serial},
		{"when it had written", func(dir string) { write(dir, "operator.pem", pair) }, next.Issued().Serial},
		{"when it had removed one old file", func(dir string) { write(dir, "operator.pem", pair); remove(dir, "operator.crt") }, next.Issued().Serial},
		{"after it", func(dir string) {
			write(dir, "operator.pem", pair)
			remove(dir, "operator.crt")
			remove(dir, "operator.key")
		}, next.Issued().Serial},
	} {
		dir := old()
		tc.killed(dir)
		b, err := identity.LoadOperator(dir)
		if err != nil || b.Issued().Serial != tc.want {
			t.Errorf("%s: %v, %+v, want serial %s", tc.reason, err, b.Name, tc.want)
		}
		if err == nil {
			if err := b.Replace(dir); err != nil {
				t.Errorf("%s: renewed again: %v", tc.reason, err)
			}
		}
	}
}

func TestRequestsThatNobodySigns(t *testing.T) {
	a, err := identity.Init(filepath.Join(t.TempDir(), "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.NewOperatorKey()
	if err != nil {
		t.Fatal(err)
	}
	good, err := key.Request("ada")
	if err != nil {
		t.Fatal(err)
	}
	altered := append([]byte(nil), good...)
	altered[len(altered)/2] ^= 1
	for _, tc := range []struct {
		reason, name string
		request      []byte
	}{
		{"no request", "ada", nil},
		{"a certificate", "ada", a.CA()},
		{"altered", "ada", altered},
		{"a name that is none", "Ada Lovelace", good},
		{"a name with a path", "../ada", good},
	} {
		if _, err := a.SignOperator(tc.name, tc.request); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: %v, want invalid", tc.reason, err)
		}
	}
	out, err := a.SignOperator("bob", good) // the name comes from the caller, not from the request
	if err != nil {
		t.Fatal(err)
	}
	if b, err := key.Bundle(out, nil); err != nil || b.Name != "bob" {
		t.Errorf("%+v, %v", b.Name, err)
	}
}
