package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
)

// startServer starts a complete server on loopback. startServer returns the options
// with which the first operator connects.
func startServer(t *testing.T) operator.ConnectOptions {
	t.Helper()
	dir := t.TempDir()
	o := operator.ConnectOptions{OperatorDir: filepath.Join(dir, "operator")}
	err := InitServer(InitOptions{
		Dir: filepath.Join(dir, "server"), Host: "127.0.0.1", Listen: bustest.Address(t), Bus: bustest.Address(t), Operator: "admin", OperatorDir: o.OperatorDir,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(ServerOptions{
		Dir: filepath.Join(dir, "server"), Socket: "-", Lives: identity.Lives{Operator: time.Hour},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return o
}

func load(t *testing.T, dir string) identity.OperatorBundle {
	t.Helper()
	b, err := identity.LoadOperator(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An operator's certificate is renewed when a third of its lifetime is left, and not
// before. The new certificate has a new key, and the code-signing key stays. The old
// certificate is valid until it expires.
func TestAnOperatorsCertificateRenews(t *testing.T) {
	admin := startServer(t)
	first := load(t, admin.OperatorDir)
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(admin.OperatorDir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "operator.pem", "code.key"} {
		if err := os.Chmod(filepath.Join(old, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	third := first.Expires().Add(-365 * 24 * time.Hour / 3)
	for _, step := range []struct {
		reason string
		now    time.Time
		renews bool
	}{
		{"more than a third is left", third.Add(-time.Hour), false},
		{"it has ended: that is for another operator", first.Expires().Add(time.Minute), false},
		{"a third is left", third.Add(time.Hour), true},
	} {
		if err := operator.RenewOperator(t.Context(), admin, step.now); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if renewed := load(t, admin.OperatorDir).Issued().Serial != first.Issued().Serial; renewed != step.renews {
			t.Errorf("%s: renewed %v, want %v", step.reason, renewed, step.renews)
		}
	}
	now := load(t, admin.OperatorDir)
	if now.CodeKey == nil || !now.CodeKey.Equal(first.CodeKey) || now.Name != "admin" {
		t.Errorf("after the renewal: %+v", now.Issued())
	}
	for name, dir := range map[string]string{"the new": admin.OperatorDir, "the old": old} {
		client, err := operator.Connect(operator.ConnectOptions{OperatorDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.ListOperators(t.Context())
		if err != nil || len(list) != 1 || list[0].Certificates != 2 {
			t.Errorf("with %s certificate: %+v, %v", name, list, err)
		}
	}
}

// A person can make an operator's key on another machine, and connect with that key
// and the server's answer. The code-signing key is copied only if the operator requests this.
func TestCreateAnOperator(t *testing.T) {
	admin := startServer(t)
	client, err := operator.Connect(admin)
	if err != nil {
		t.Fatal(err)
	}
	c := cli.Connection(admin)
	dir := t.TempDir()
	create := func(in cli.OperatorCreate) error {
		_, err := operator.CreateOperator(t.Context(), client, c, in)
		return err
	}
	comesIn := func(dir string) error {
		bob, err := operator.Connect(operator.ConnectOptions{OperatorDir: dir})
		if err != nil {
			return err
		}
		_, err = bob.ListJobs(t.Context())
		return err
	}
	made := filepath.Join(dir, "made")
	if err := create(cli.OperatorCreate{Name: "bob", Out: made}); err != nil {
		t.Fatal(err)
	}
	if err := comesIn(made); err != nil || load(t, made).CodeKey != nil {
		t.Errorf("bob: %v; has the code-signing key: %v", err, load(t, made).CodeKey != nil)
	}
	if err := create(cli.OperatorCreate{Name: "bob", Out: made}); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("into a directory that has credentials: %v, want a conflict", err)
	}
	signs := filepath.Join(dir, "signs")
	if err := create(cli.OperatorCreate{Name: "cy", Out: signs, CodeKey: true}); err != nil || load(t, signs).CodeKey == nil {
		t.Errorf("with the code-signing key: %v", err)
	}
	own := filepath.Join(dir, "own")
	request, err := operator.RequestOperator("dan", own)
	if err != nil {
		t.Fatal(err)
	}
	if err := create(cli.OperatorCreate{Name: "dan", Out: own, Request: request}); err != nil {
		t.Fatal(err)
	}
	if err := comesIn(own); err != nil {
		t.Errorf("dan: %v", err)
	}
	if err := create(cli.OperatorCreate{Name: "eve", Out: own, Request: []byte("x")}); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("a request that is none: %v", err)
	}
	if err := create(cli.OperatorCreate{Name: "eve", Out: own, Request: request, CodeKey: true}); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("the code-signing key to a request: %v", err)
	}
}
